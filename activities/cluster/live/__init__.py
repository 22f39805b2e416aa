"""What is read right before an act, past every cache: last looks, leases of nodes, plans, needs."""
