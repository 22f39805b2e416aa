"""A ladder of steps, one after the other, until the node is well or its machine is another one."""
