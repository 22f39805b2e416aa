"""Snapshots of a cluster's objects: Nodes, Machines, Events, remediation objects, our marks, and the parts of a cluster."""
