"""Preservation: which machine is kept, until when, and what that asks of its Machine and Node.

From facts to decisions, without I/O and without a clock of its own: `requests.py` is what people and we ask for,
`kept_machine.py` what is known of one machine, `decision.py` the state machine, `effects.py` what has to be written for it,
`automatic.py` the cap, `pools.py` the configuration, and `survey.py` all of it for many machines, and which goes first when a
set is scaled down.
"""
