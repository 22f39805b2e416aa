"""Remediation: by which steps a machine is repaired or replaced, how often and how soon again, and what it must not cost.

From facts to decisions, without I/O and without a clock of its own: `ladder.py` decides which steps a target has, which one comes
next, how long a node may be held meanwhile and how many targets of a check at once; `memory.py` keeps which steps have failed
and when the next try is due, `remediation_objects.py` reads what another controller's object reports about its work, and
`control_plane.py` decides what a control plane can spare.
"""
