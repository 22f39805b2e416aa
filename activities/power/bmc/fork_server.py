"""Forks a process for each session of a protocol. The protocol's library is loaded once. Run by its path, with the protocol's
module.

`fork_server.py bmc.ipmi` waits with `main` of `bmc/ipmi.py` at hand. Standard input is a socket of the worker's
(`child_handle.py`). Each message on it asks for one child and carries two sockets: the one that becomes the child's standard
input and output, and its leash. What a child promises is `child.py`.

- It never sees what a child is asked: that goes from the worker to the child, on the child's own socket. So no later child has a
  secret of another one.
- A child has that socket and nothing else that is open here.
- A child is killed with its process group when the worker lets go of the leash. It ends with this process, and this process ends
  with the worker.
- It has one thread: of several only the one that forks lives on in a child, with the locks of the others closed for ever.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from types import ModuleType

CONTROL = 0
"""The worker's socket, in the place of standard input. It ends with the worker."""

PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4


class Server:
    """The children that live. main: the protocol's, which reads a request from standard input and answers on standard output."""

    def __init__(self, main: Callable[[], None]) -> None:
        self._main = main
        self._pid = os.getpid()
        self._control = socket.socket(fileno=CONTROL)
        self._leashes: dict[int, socket.socket] = {}
        self._held: dict[int, int] = {}
        self._poll = select.poll()

    def serve(self) -> None:
        """Fork, kill and wait for children until the worker is gone."""
        _prctl(PR_SET_DUMPABLE, 0)  # children have it from here: an agent, which runs as the same user, can't look into them
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for each in (CONTROL, woken):
            self._poll.register(each, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in self._poll.poll()}
            # In this order: a leash that was let go of is closed when its child is waited for, and its number may be the next
            # one's. The child of a number that was read before that would be another.
            for leash in ready - {woken, CONTROL}:
                self._kill(leash)
            if woken in ready:
                os.read(woken, 4096)
                self._reap()
            if CONTROL in ready and not self._accept():
                return

    def _accept(self) -> bool:
        """One message of the worker's; False where there will be no other."""
        message, sockets, _, _ = socket.recv_fds(self._control, 1, 2)
        if len(sockets) == 2:  # else there was no room for them here, and the worker sees them closed
            self._fork(sockets[0], socket.socket(fileno=os.dup(sockets[1])))
        for each in sockets:
            os.close(each)
        return bool(message)

    def _fork(self, operation: int, leash: socket.socket) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            with leash:
                _report(leash, f"refused {error.strerror}")
            return
        if pid == 0:
            self._be_child(operation)
        self._leashes[pid] = leash
        self._held[leash.fileno()] = pid
        self._poll.register(leash, select.POLLIN)

    def _be_child(self, operation: int) -> None:
        """Does not return."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            _end_with_parent(self._pid)
            os.dup2(operation, 0)
            os.dup2(operation, 1)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))
            self._main()
            status = 0
        finally:
            os._exit(status)  # nothing of the server's own may be cleaned up, or go on, in here

    def _kill(self, leash: int) -> None:
        """Kill the child of a leash. The number is its own until `_reap` has waited for it."""
        self._poll.unregister(leash)
        pid = self._held.pop(leash)
        os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):  # it was killed before it had a group
            os.killpg(pid, signal.SIGKILL)

    def _reap(self) -> None:
        while self._leashes:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            with self._leashes.pop(pid) as leash:
                if self._held.pop(leash.fileno(), None):
                    self._poll.unregister(leash)
                _report(leash, f"ended {os.waitstatus_to_exitcode(status)}")


def _end_with_parent(parent: int) -> None:
    """Be killed when the parent ends. Elsewhere than on Linux only the alarm at the deadline does it."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise ProcessLookupError(f"the server {parent} has ended")


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux" and ctypes.CDLL(None).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(f"prctl refused option {option}")


def _report(leash: socket.socket, what: str) -> None:
    with contextlib.suppress(ConnectionError):  # the worker has let go of it meanwhile
        leash.sendall(what.encode())


def load_beside(name: str) -> ModuleType:
    """A module of `activities/power/`, whatever copy of ours is installed and wherever we were started."""
    package = ModuleType("activities")
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib takes 8 ms to load
    package.__path__ = [os.path.dirname(os.path.dirname(here))]  # noqa: PTH120 - as above
    sys.modules["activities"] = package
    return importlib.import_module(f"activities.power.{name}")


if __name__ == "__main__":
    protocol = load_beside(sys.argv[1])
    gc.freeze()  # so that no child copies what it only looks through
    Server(protocol.main).serve()
