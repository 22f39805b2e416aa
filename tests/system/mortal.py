"""Starts a program that dies with whoever started it, however that one dies: `python mortal.py PARENT PROGRAM ARGUMENT...`.

A test run that is killed cleans nothing up, and a worker left over from it is no dead weight: it goes on fencing, and reads the
kubeconfig anew, under whose path the next run may have put its own cluster. The kernel's parent-death signal needs no cooperation
and no moment; it survives the exec. Where there is none (not Linux), the program is simply started.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def command(*arguments: str) -> list[str]:
    """The command line that starts this one as a mortal."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *arguments]


def die_with(parent: int) -> None:
    """Ask the kernel for it; for the case that the parent was faster, look."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    die_with(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606 - it becomes the program that was asked for
