"""What is watched, and the view of a cluster that comes of it."""
