"""Preservation: which machine is kept, until when, and what that asks of its Machine and Node.

From facts to decisions, without I/O and without a clock of its own: `requests.py` reads what people and pools ask for,
`machine_snapshot.py` is a snapshot of one machine, `keep_or_release.py` the state machine and what has to be written for it, and
`pool_cap.py` decides for many machines: the cap of a pool, and which machine goes first when a set is scaled down.
`preservation_index.py` keeps all of it up to date for the scanner.
"""
