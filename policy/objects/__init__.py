"""What is known of the objects of a cluster: Nodes, Machines, Events, remediation objects, our marks, and the parts it has."""
