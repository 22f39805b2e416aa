"""What people are told: statuses, conditions, Events, NodeFence objects."""
