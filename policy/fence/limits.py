"""The bounds of what a fence configuration may ask for, in whichever spelling.

A workflow polls and repeats within these; with them its history is bounded, whatever anybody writes.
"""

from __future__ import annotations

from datetime import timedelta

LONGEST_ACT = timedelta(seconds=30)
"""An act that may take longer could not be waited out before its outcome is read (S34)."""

LONGEST_WAIT = timedelta(hours=24)
LONGEST_RETRY_INTERVAL = timedelta(minutes=10)
LONGEST_OFF = timedelta(minutes=10)
LONGEST_FREEING = timedelta(minutes=30)
LONGEST_BOOT = timedelta(hours=2)
LONGEST_DELAY = timedelta(minutes=10)
LONGEST_METHOD = timedelta(minutes=30)
MOST_TRIES, MOST_RESTARTS, MOST_LEVELS = 10, 5, 9
