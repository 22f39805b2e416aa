"""What runs in Temporal, from outside: episodes, scanners, preservations, checks of devices, and what ended."""
