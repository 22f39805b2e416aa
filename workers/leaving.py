"""How a process that has used Temporal's SDK ends: at once.

The SDK's core runs threads of its own. While the interpreter takes itself apart they may still come back with an answer that
nobody waits for any more: the process then crashes, or waits for itself for ever. What matters has been done by then, so that
this last part is left out.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from typing import NoReturn


def leave(code: int) -> NoReturn:
    """End with this exit code, everything that was printed and logged being out."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
            stream.flush()
    os._exit(code)
