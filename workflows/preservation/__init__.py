"""A machine is kept as it is for whoever wants to look into it, and cut off from what others need."""
