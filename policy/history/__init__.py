"""What became of nodes: the spells that were not repaired, and the repairs that ended."""
