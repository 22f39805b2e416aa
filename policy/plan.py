"""What a fencing would do to one node: resolved, validated, and free of secrets (references only, S12).

A plan is made once at the start of an episode (`activities/cluster/plans.py` reads the objects, `policy/templates.py`
turns them into this) and is kept for the whole of it, so that an edit of a template never changes a running episode.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum


class Freeing(StrEnum):
    """How workloads of a node that is proven off are freed. `automatic`: by the taint where the server acts on it."""

    AUTOMATIC = "automatic"
    OUT_OF_SERVICE_TAINT = "out-of-service-taint"
    DELETION = "deletion"
    NONE = "none"


class CredentialKind(StrEnum):
    """What a reference to a credential leads to. `file` and `env` are read on the power worker itself."""

    SECRET = "Secret"  # noqa: S105 - a kind of object
    CONFIG_MAP = "ConfigMap"
    FILE = "file"
    ENVIRONMENT = "env"


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialRef:
    """Where parameters that are secret live. Only ever the reference travels; the power worker resolves it at the moment of use.

    keys: which driver parameter is in which key of the object's data; empty: every key is the parameter of that name. For `file`
    and `env` the values are the path and the variable, and name and namespace are empty. properties: the values are lines
    `key=value` of the text in that key of a ConfigMap (the published node-fencing demo writes passwords there).
    """

    kind: CredentialKind = CredentialKind.SECRET
    name: str = ""
    namespace: str = ""
    keys: Mapping[str, str] = field(default_factory=dict)
    properties: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerDevice:
    """One device that feeds the node. `endpoint` identifies device and plug and is pinned for the episode (S9).

    `site` names the task queue of the workers that can reach it (`power.<site>`). credentials: a later reference wins, parameter
    by parameter; none where the driver's worker has an identity of its own (a cloud account).
    """

    driver: str
    endpoint: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    credentials: tuple[CredentialRef, ...] = ()
    site: str = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class FencingPlan:
    """Everything a fencing episode needs to know beforehand.

    wait_before_power counts from the moment the node stopped being Ready. tries: of each step, at least 1 (S7).
    restarts: of the whole flow after a step used up its tries. boot_timeout: from power-on to a new boot id and Ready.
    """

    source: str
    devices: tuple[PowerDevice, ...]
    wait_before_power: timedelta = timedelta(minutes=5)
    tries: int = 3
    restarts: int = 1
    retry_interval: timedelta = timedelta(seconds=5)
    act_deadline: timedelta = timedelta(seconds=15)
    off_timeout: timedelta = timedelta(seconds=60)
    free_timeout: timedelta = timedelta(minutes=5)
    boot_timeout: timedelta = timedelta(minutes=10)
    freeing: Freeing = Freeing.AUTOMATIC
    taint_honoured: bool = True
    """Whether this cluster's controllers act on the out-of-service taint (Kubernetes 1.26 and newer)."""
    warnings: tuple[str, ...] = ()
