"""Which volumes of a node have failed, and which of its pods are evicted because of that, by the node's conditions and Events.

A message names volumes by what their cloud, their CSI driver or Kubernetes calls them, and pods as `namespace/name`. Only
volumes attached to the node and pods on it right now can be named: other words mean nothing, and a message without any such
volume changes nothing. `activities/cluster/acts/failed_volumes.py` reads the objects, `workflows/remediation/steps.py`
acts on them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from policy.fence.plan import CORDON, WITH_VOLUMES, Act, Chosen, FencingPlan, PlannedMethod, PowerDevice
from policy.fence.template_reader import GROUP, VERSION, VOLUME_DETACHMENT
from policy.values.errors import PolicyError
from policy.values.fields import Fields

EVENTS_WITHIN = timedelta(minutes=10)
"""An Event is no state, and no program withdraws one: an old one may be about a volume that works again."""

EVICTION_TIMEOUT = timedelta(minutes=5)
LONGEST = timedelta(hours=24)

SHORTEST_NAME = 4
LISTED = 10
LONGEST_MESSAGE = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeRule:
    """A `VolumeDetachmentTemplate`. conditions: types of node conditions, or reasons of Events on the node, that report failed
    volumes. events_within: how old such an Event may be. eviction_timeout: how long pods get to end by themselves."""

    conditions: tuple[str, ...]
    events_within: timedelta = EVENTS_WITHIN
    eviction_timeout: timedelta = EVICTION_TIMEOUT


def read_volume_template(obj: Mapping[str, object]) -> VolumeRule:
    """The rule in the template. Raises PolicyError naming the template, the field and what was expected."""
    metadata = Fields(obj, subject=VOLUME_DETACHMENT).within("metadata")
    fields = Fields(obj, subject=f"{VOLUME_DETACHMENT}/{metadata.text('namespace')}/{metadata.text('name')}")
    fields.must_be(f"{GROUP}/{VERSION}", VOLUME_DETACHMENT)
    spec = fields.within("spec").within("template").within("spec")
    spec.only("conditions", "eventsWithin", "evictionTimeout")
    conditions = spec.texts("conditions")
    if not conditions or not all(conditions):
        raise spec.refuse("conditions", "expected at least one type of a node condition, or reason of an Event on the node")
    return VolumeRule(
        conditions=tuple(dict.fromkeys(conditions)),
        events_within=spec.duration("eventsWithin", EVENTS_WITHIN, maximum=LONGEST),
        eviction_timeout=spec.duration("evictionTimeout", EVICTION_TIMEOUT, maximum=LONGEST),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeMessage:
    """One message about a node. by: the type of its condition, or the reason of its Event."""

    by: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedVolume:
    """A PersistentVolume that is attached to the node, and what its cloud calls it."""

    name: str
    handle: str

    @property
    def names(self) -> tuple[str, ...]:
        """The names that a message may use: clouds also call a disk by the last part of its path."""
        return tuple(dict.fromkeys(each for each in (self.name, self.handle, self.handle.rpartition("/")[2]) if each))


@dataclass(frozen=True, slots=True, kw_only=True)
class PodOnNode:
    """A pod on the node that has not finished. volumes: the PersistentVolumes that it mounts. stays: it belongs to the node (a
    DaemonSet's, or a mirror pod), so it is not evicted."""

    key: str
    uid: str
    volumes: tuple[str, ...] = ()
    stays: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The failed volumes, and the pods that are evicted because of them. refused: why nothing may be done about such messages,
    "" where they are clear."""

    volumes: tuple[AttachedVolume, ...] = ()
    mounting: tuple[PodOnNode, ...] = ()
    crashing: tuple[PodOnNode, ...] = ()
    refused: str = ""

    def __str__(self) -> str:
        volumes = ", ".join(f"{each.handle} ({each.name})" for each in self.volumes)
        pods = [f"{', '.join(pod.key for pod in pods)} {verb}" for pods, verb in self._pods() if pods]
        return f"{volumes}; {'; '.join(pods) or 'no pod mounts it'}"

    def _pods(self) -> tuple[tuple[tuple[PodOnNode, ...], str], ...]:
        return (self.mounting, "mounting"), (self.crashing, "crashing")


def find_failure(messages: Iterable[VolumeMessage], attached: Iterable[AttachedVolume], pods: Iterable[PodOnNode]) -> Failure:
    """Every volume and pod that is named. Nothing at all where it is not clear which volume has failed."""
    messages, attached, pods = tuple(messages), tuple(attached), tuple(pods)
    named = tuple(volume for volume in attached if any(_names(each.message, name) for each in messages for name in volume.names))
    if not named:
        quoted = (
            "; ".join(f"{each.by} says {each.message[:LONGEST_MESSAGE]!r}" for each in messages) or "no message mentions a volume"
        )
        there = ", ".join(volume.handle for volume in attached[:LISTED]) or "none"
        return Failure(refused=f"{quoted}: that names no volume attached to the node (attached: {there})")
    without = [volume.name for volume in named if not volume.handle]
    if without:
        return Failure(refused=f"PersistentVolume {', '.join(without)} does not say what its cloud calls it")
    names = {volume.name for volume in named}
    mounting = tuple(pod for pod in pods if names.intersection(pod.volumes))
    if bound := [pod.key for pod in mounting if pod.stays]:
        return Failure(refused=f"{', '.join(bound[:LISTED])} mounts it and belongs to the node, so that no eviction would end it")
    crashing = (pod for pod in pods if pod not in mounting and not pod.stays)
    return Failure(
        volumes=named,
        mounting=mounting,
        crashing=tuple(pod for pod in crashing if any(_names_pod(each.message, pod) for each in messages)),
    )


def _names(message: str, name: str) -> bool:
    """Whether the name stands there as a word of its own. A name that could be a word of prose (`data`) has to be marked as
    one: quoted, or behind its kind."""
    word = re.escape(name)
    if len(name) >= SHORTEST_NAME and re.search(r"[a-zA-Z]", name) and re.search(r"[\d_.:/-]", name):
        return re.search(rf"(?<![\w.-]){word}(?![\w-]|\.\w)", message) is not None
    return re.search(rf"([\"'`]){word}\1|(?i:\b(?:persistentvolume|volume|pv)/){word}(?![\w-]|\.\w)", message) is not None


def _names_pod(message: str, pod: PodOnNode) -> bool:
    uid = bool(pod.uid) and _names(message, pod.uid)
    return uid or re.search(rf"(?<![\w./-]){re.escape(pod.key)}(?![\w/-]|\.\w)", message) is not None


def detaching(
    plan: FencingPlan, failure: Failure, *, eviction_timeout: timedelta = EVICTION_TIMEOUT
) -> tuple[PlannedMethod, ...]:
    """The isolation of the proposal's example, in its order: unschedulable, those pods evicted, those volumes detached. The
    machine's volumes are looked up before anything is touched. Raises PolicyError where the plan knows no volumes."""
    device = _device(plan)
    only = Chosen(
        handles=tuple(volume.handle for volume in failure.volumes),
        volumes=tuple(volume.name for volume in failure.volumes),
        pods=tuple(pod.uid for pod in failure.crashing),
    )
    filters = {"ignore-daemonsets": "true", "delete-emptydir-data": "true"}
    return (
        PlannedMethod(name=Act.CHECK_VOLUMES.value, act=Act.CHECK_VOLUMES, device=device, only=only),
        CORDON,
        PlannedMethod(name=Act.DRAIN.value, act=Act.DRAIN, parameters=filters, timeout=eviction_timeout, only=only),
        PlannedMethod(name=Act.DETACH_VOLUMES.value, act=Act.DETACH_VOLUMES, device=device, only=only),
        PlannedMethod(name=Act.FREE_CUT_PODS.value, act=Act.FREE_CUT_PODS, only=only),
    )


def _device(plan: FencingPlan) -> PowerDevice:
    named = [each.device for each in plan.isolation if each.act is Act.DETACH_VOLUMES and each.device is not None]
    found = [*named, *(device for device in plan.devices if device.driver in WITH_VOLUMES)]
    if not found:
        known = ", ".join(sorted(WITH_VOLUMES))
        raise PolicyError(
            plan.source, Act.DETACH_VOLUMES.value, f"expected a device of a cloud with volumes that we know ({known})"
        )
    return found[0]
