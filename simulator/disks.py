"""Where the volumes of the simulated storage driver really are: on a network that knows nothing of them, or disks of a cloud.

The driver's controllers (`controllers/volume_binder.py`, `controllers/csi_attacher.py`) ask it for a disk, and have it attached
and detached. A disk that another program takes off a machine, a fencing for instance, is gone for the writers there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable


class DiskBusyError(Exception):
    """The disk is attached to another machine; asked again later it may not be."""


class Disks(ABC):
    """All calls may be repeated. `on_gone` is told the disk and the machine that no longer has it."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[str, str], None]] = []

    def on_gone(self, listener: Callable[[str, str], None]) -> None:
        """Called with each disk that has left a machine, by any hand."""
        self._listeners.append(listener)

    def gone(self, disk: str, node: str) -> None:
        """It has left that machine."""
        for listener in self._listeners:
            listener(disk, node)

    @abstractmethod
    async def create(self, volume: str, *, node: str) -> str:
        """The handle of a disk for that PersistentVolume, where the machine of that node could have it."""

    @abstractmethod
    async def attach(self, disk: str, node: str) -> None:
        """Raises DiskBusyError while another machine has it."""

    @abstractmethod
    async def detach(self, disk: str, node: str) -> None:
        """Nothing where that machine has it no more."""


class NetworkDisks(Disks):
    """Every machine reaches every volume by its name at any time: the worst storage there is."""

    async def create(self, volume: str, *, node: str) -> str:  # noqa: ARG002 - it is everywhere
        return volume

    async def attach(self, disk: str, node: str) -> None:
        """Nothing stands between."""

    async def detach(self, disk: str, node: str) -> None:
        """The writers go on."""
