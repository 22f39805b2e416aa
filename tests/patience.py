"""How much longer than on a quiet machine is waited before a test has failed."""

PATIENCE = 3
"""The seconds in tests are those of two quiet cores. A machine that is slow, or does other work, gets this many times as many: no
test takes longer for it but one that fails."""
