"""A Temporal server of our own, for people who have none."""
