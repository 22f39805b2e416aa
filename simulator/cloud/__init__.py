"""Clouds that real client libraries talk to, with simulated machines behind their instances."""
