"""All of a cluster at one moment: what every check thinks of everybody, who may be acted on now, and why nobody else."""
