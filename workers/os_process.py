"""The operating system's side of a process: how it ends, and that no dump of its memory is written.

A process that has used Temporal's SDK ends at once. The SDK's core runs threads of its own. While the interpreter takes itself
apart they may still come back with an answer that nothing waits for any more: the process then crashes, or waits for itself for
ever. What matters has been done by then, so that this last part is left out.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import resource
import sys
from typing import NoReturn


def leave(code: int) -> NoReturn:
    """End with this exit code, everything that was printed and logged being out."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # it is read no more
            stream.flush()
    os._exit(code)


# What was needed for a moment only is given back to the system: the C library keeps it, as after the import of a client.

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
DEFAULT_THRESHOLD = 128 * 1024


def keep_little_spare_memory() -> None:
    """Fix what the C library keeps of what is free, and from which size on a block is apart, at its own defaults. Where they are
    not fixed they grow with each large block that is freed, up to 64 MB for each pool of threads: 14 MB of a worker at rest."""
    if (set_option := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        for option in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD):
            set_option(option, DEFAULT_THRESHOLD)


def give_back_memory() -> None:
    """Where the C library has no way to do so, it keeps it."""
    gc.collect()
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)


# Keeps what a process knows in its memory: no core dump of it is written, and no other process of this user's looks into it.
#
# A worker holds passwords of devices and keys. A dump of it would lie on a disk, or go to whatever `core_pattern` names; and
# fence agents are programs of others that run as the same user.

PR_SET_DUMPABLE = 4
LONGEST_DUMP = 1 if sys.platform == "linux" else 0
"""Bytes. Linux pipes a dump to a program whatever the limit is, unless it is exactly 1; a file of 1 byte is never written."""


def keep_memory_private() -> None:
    """Of this process for its life; of what it starts no dump is written either.

    Looking into it is left to root: `py-spy` needs sudo, `/proc/<pid>/environ` is closed.
    """
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0 if most == 0 else LONGEST_DUMP, most))
    if sys.platform == "linux" and ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError("prctl refused to make this process undumpable")
