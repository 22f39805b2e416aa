"""A machine is kept as it is for people to look into, and cut off from what other machines need."""
