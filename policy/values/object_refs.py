"""References to objects of the API, the dialect of a health check (its API group decides), what a valid name looks like, and the
mistakes that are found in objects."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from policy.values.machine_apis import CLUSTER_API, OPENSHIFT


class Dialect(StrEnum):
    """The set of rules for a check: rounding, empty selectors, what counts as healthy."""

    MEDIK8S = "medik8s"
    OPENSHIFT = "openshift"
    CLUSTER_API = "cluster-api"
    NODE_FENCING = "node-fencing"


_SECOND = CLUSTER_API.group


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectRef:
    """A reference to a Kubernetes object. `namespace` is empty for cluster-scoped kinds."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""

    @property
    def key(self) -> str:
        """Readable and unique in a cluster: `NodeHealthCheck/workers`, `MachineHealthCheck/openshift-machine-api/w`. Two groups
        have a kind MachineHealthCheck; Cluster API's has the name that kubectl gives it,
        `MachineHealthCheck.cluster.x-k8s.io/default/w`.
        """
        kind = f"{self.kind}.{_SECOND}" if self.api_version.startswith(f"{_SECOND}/") else self.kind
        return f"{kind}/{self.namespace}/{self.name}" if self.namespace else f"{kind}/{self.name}"


_GROUPS = {
    "remediation.medik8s.io": Dialect.MEDIK8S,
    OPENSHIFT.group: Dialect.OPENSHIFT,
    CLUSTER_API.group: Dialect.CLUSTER_API,
    "v1": Dialect.NODE_FENCING,  # a ConfigMap, of the core group
}


def dialect_of(ref: ObjectRef) -> Dialect:
    """The dialect of a health check by its API group, also if the check can't be read."""
    return _GROUPS.get(ref.api_version.partition("/")[0], Dialect.MEDIK8S)


# Valid names of objects, of files in a worker's mount, and of variables in its environment.
#
# People write these names, and variables of a node are filled into them. They become paths of the API and of files, so any other
# text is refused (S41).

FENCE_NAMESPACE = "nodewarden"
"""The namespace of ConfigMaps with fence configuration unless the settings name another: not `default`, where many people may
write who are not trusted with machines."""

LONGEST_NAME = 253
"""Of any object. What one object says of another's name no API server bounds: a longer one is cut where it is read, and so names
none, since it goes into reports, histories and URLs (S41)."""

_OBJECT_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_FILE = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9_.:@+=~-]+")
_VARIABLE = re.compile(r"[A-Za-z_][-._A-Za-z0-9]*")


def is_object_name(text: str) -> bool:
    return _OBJECT_NAME.fullmatch(text) is not None


def is_relative_file(text: str) -> bool:
    """Whether it is a path from a folder to a file below it."""
    return len(text) < 512 and all(_FILE.fullmatch(part) is not None for part in text.split("/"))


def is_variable(text: str) -> bool:
    return _VARIABLE.fullmatch(text) is not None


def in_natural_order(name: str) -> list[tuple[bool, int, str]]:
    """A key to sort names by: of two nodes, node-2 comes before node-10."""
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in re.split(r"([0-9]+)", name) if part]


# Mistakes in objects that others write, published as warning Events on them, also without an episode.
#
# `activities/cluster/report/alarms.py` publishes them; the cache of each kind of object finds them.


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """about: the object, with its uid. reason: of the Event. messages: what is wrong, one text for each Event."""

    about: ObjectRef
    uid: str
    reason: str
    messages: tuple[str, ...]


class Mistaken(Protocol):
    """The mistakes of one kind in one cluster."""

    @property
    def version(self) -> int:
        """Another number after each change."""

    def __iter__(self) -> Iterator[Mistake]:
        """All present mistakes."""
