"""What runs on one machine, seen from the machine: containers, which know nothing of the kubelet's health.

Containers outlive a kubelet that stops, sleep while the kernel hangs, and die only with the power or a reboot.
The holder of a single-writer volume is known to the shared storage for exactly as long as it can write.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from simulator.storage import SharedStorage


@dataclass(frozen=True, slots=True, kw_only=True)
class MountedVolume:
    """One volume of a container. `attached_name` is its name in `volumesInUse`."""

    name: str
    attached_name: str
    single_writer: bool
    exclusive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """The containers of one pod as one thing: nothing here needs them apart."""

    pod: str
    pod_uid: str
    volumes: tuple[MountedVolume, ...]
    started: datetime


class Containers:
    """The container runtime of one machine, from boot to power off."""

    def __init__(self, *, node: str, storage: SharedStorage) -> None:
        self._node = node
        self._storage = storage
        self._boot_id = ""
        self._running: dict[str, Container] = {}

    def __iter__(self) -> Iterator[Container]:
        return iter(list(self._running.values()))

    def get(self, pod_uid: str) -> Container | None:
        return self._running.get(pod_uid)

    @property
    def mounted(self) -> set[str]:
        return {volume.attached_name for container in self._running.values() for volume in container.volumes}

    def booted(self, boot_id: str) -> None:
        self._boot_id = boot_id

    def start(self, *, pod: str, pod_uid: str, volumes: tuple[MountedVolume, ...]) -> Container:
        container = Container(pod=pod, pod_uid=pod_uid, volumes=volumes, started=datetime.now(UTC))
        self._running[pod_uid] = container
        for volume in container.volumes:
            if volume.single_writer:
                self._storage.begin(
                    volume=volume.name,
                    pod=pod,
                    pod_uid=pod_uid,
                    node=self._node,
                    boot_id=self._boot_id,
                    exclusive=volume.exclusive,
                )
        return container

    def kill(self, pod_uid: str) -> None:
        container = self._running.pop(pod_uid, None)
        for volume in container.volumes if container else ():
            self._storage.end(volume=volume.name, pod_uid=pod_uid)

    def lose_power(self) -> None:
        for container in self:
            self.kill(container.pod_uid)

    def freeze(self) -> None:
        for container in self:
            for volume in container.volumes:
                self._storage.suspend(volume=volume.name, pod_uid=container.pod_uid)

    def thaw(self) -> None:
        for container in self:
            for volume in container.volumes:
                self._storage.resume(volume=volume.name, pod_uid=container.pod_uid)
