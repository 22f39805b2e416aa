"""Stored worlds and what is decided about them, as Pacemaker keeps its 855: small files whose diff is a changed decision.

`worlds.py` reads a case's objects, `decisions.py` asks `policy` about them, `drawn_worlds.py` draws clusters at random,
`write.py` writes the decisions anew and draws the stored ones. How a case is written: tests/README.md.
"""
