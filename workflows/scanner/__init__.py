"""What the scanner decides: who may act, who is kept, who fails again and again."""
