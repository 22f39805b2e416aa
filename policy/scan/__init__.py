"""All of a cluster at one moment: what every check thinks of every target, which node may be acted on now, and why no other
one."""
