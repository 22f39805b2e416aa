"""Remediation: by which steps a machine is repaired or replaced, how often and how soon again, and what it must not cost.

From facts to decisions, without I/O and without a clock of its own: `ladder.py` is which steps a target has, the way from
one to the next, how long a node may be held meanwhile and how many of a check at once; `memory.py` what is remembered of those
that failed and when the next try is due, `remediation_objects.py` what the object of another controller says about its work,
and `control_plane.py` with `etcd.py` what a control plane can spare.
"""
