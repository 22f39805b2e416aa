"""Our own fence configuration: `FencingTemplate` and `FenceConfig` (nodewarden.io/v1alpha1), resolved here for one node.

The result is a `FenceConfig` with a `FencingPlan` without secrets. Anything doubtful is refused: a template is read when a node
is about to lose its power, and then a guess is dangerous. The first section reads the spec that both kinds share, the second
`FencingTemplate`, the third `FenceConfig`. `activities/cluster/live/plans.py` reads the objects; the schemas that an API server
checks beforehand are in `deploy/crds/`; devices are `policy/fence/power_devices.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from enum import IntEnum

from policy.fence.builtin_methods import OWN_METHODS, OwnMethod
from policy.fence.compiling import KDUMP_TIMES
from policy.fence.config import (
    DEFAULTS,
    LONGEST_ACT,
    LONGEST_BOOT,
    LONGEST_DELAY,
    LONGEST_FREEING,
    LONGEST_METHOD,
    LONGEST_OFF,
    LONGEST_RETRY_INTERVAL,
    LONGEST_WAIT,
    MOST_LEVELS,
    MOST_RESTARTS,
    MOST_TRIES,
    FenceConfig,
    FenceStep,
    Method,
    MethodAction,
)
from policy.fence.plan import CutStorage, FencingPlan, Freeing, PowerDevice
from policy.fence.power_devices import DEVICE_FIELDS, DeviceReader
from policy.fence.validation import judge
from policy.objects.nodes import NodeView
from policy.values.errors import PolicyError, shown
from policy.values.fields import Fields
from policy.values.object_refs import ObjectRef
from policy.values.selectors import parse_selector

# The spec that both kinds share: steps, devices and settings.

GROUP = "nodewarden.io"
VERSION = "v1alpha1"

SPEC_FIELDS = (
    "isolation",
    "power",
    "powerLevels",
    "powerOn",
    "recovery",
    "freeing",
    "deleteNode",
    "terminateInstance",
    "kdump",
    "waitBeforeIsolation",
    "waitBeforePower",
    "tries",
    "restarts",
    "retryInterval",
    "actDeadline",
    "offTimeout",
    "freeTimeout",
    "bootTimeout",
)
METHOD_FIELDS = ("method", "action", "tries", "storage", *DEVICE_FIELDS)
STORAGE_FIELDS = ("classes", "drivers", "handles")
KDUMP_FIELDS = (*KDUMP_TIMES, "trusted")

_SECOND = timedelta(seconds=1)
_LONGEST_WINDOW = timedelta(hours=1)

_FREED_BY = {Freeing.DELETION: MethodAction.FREE_PODS, Freeing.OUT_OF_SERVICE_TAINT: MethodAction.OUT_OF_SERVICE_TAINT}


def read_spec(spec: Fields, *, node: NodeView, name: str, kind: str, subject: str, namespace: str, cordon: bool) -> FenceConfig:
    """The configuration of that node, from the object of that kind and name. namespace: where Secrets live unless they say
    otherwise, "" where they must say. cordon: whether isolation and recovery that are left out are a cordon and its end, or
    nothing. Raises PolicyError for the first thing that is wrong."""
    devices = DeviceReader(node=node, namespace=namespace)
    settings = _settings(spec)
    kdump = (_kdump(spec.within("kdump")),) if spec.has("kdump") else ()
    cordoned = (Method(name=MethodAction.CORDON.value, action=MethodAction.CORDON),) if cordon else ()
    uncordoned = (Method(name=MethodAction.UNCORDON.value, action=MethodAction.UNCORDON),) if cordon else ()
    config = FenceConfig(
        node=node.name,
        name=name,
        source=kind,
        subject=subject,
        isolation=_methods(spec, "isolation", FenceStep.ISOLATION, devices, cordoned),
        power_management=(*kdump, *_power(spec, devices, settings.freeing)),
        recovery=_methods(spec, "recovery", FenceStep.RECOVERY, devices, uncordoned),
        settings=settings,
        warnings=("freeing is none: what ran on the node stays bound to it",) if settings.freeing is Freeing.NONE else (),
    )
    return judge(config)


def _settings(spec: Fields) -> FencingPlan:
    return replace(
        DEFAULTS,
        freeing=_freeing(spec),
        wait_before_isolation=spec.duration("waitBeforeIsolation", DEFAULTS.wait_before_isolation, maximum=LONGEST_WAIT),
        wait_before_power=spec.duration("waitBeforePower", DEFAULTS.wait_before_power, maximum=LONGEST_WAIT),
        tries=spec.whole("tries", DEFAULTS.tries, minimum=1, maximum=MOST_TRIES),
        restarts=spec.whole("restarts", DEFAULTS.restarts, minimum=0, maximum=MOST_RESTARTS),
        retry_interval=spec.duration("retryInterval", DEFAULTS.retry_interval, maximum=LONGEST_RETRY_INTERVAL),
        act_deadline=spec.duration("actDeadline", DEFAULTS.act_deadline, minimum=_SECOND, maximum=LONGEST_ACT),
        off_timeout=spec.duration("offTimeout", DEFAULTS.off_timeout, minimum=_SECOND, maximum=LONGEST_OFF),
        free_timeout=spec.duration("freeTimeout", DEFAULTS.free_timeout, minimum=_SECOND, maximum=LONGEST_FREEING),
        boot_timeout=spec.duration("bootTimeout", DEFAULTS.boot_timeout, minimum=_SECOND, maximum=LONGEST_BOOT),
    )


def _freeing(spec: Fields) -> Freeing:
    written = spec.text("freeing", Freeing.AUTOMATIC.value)
    if written not in set(Freeing):
        raise spec.refuse("freeing", f"expected one of {', '.join(Freeing)}, got {written!r}")
    return Freeing(written)


# Power management -----------------------------------------------------------------------------------------------------------


def _power(spec: Fields, devices: DeviceReader, freeing: Freeing) -> tuple[Method, ...]:
    levels = _levels(spec, devices)
    on = spec.flag("powerOn", default=not spec.flag("terminateInstance", default=False))
    action = MethodAction.REBOOT if on else MethodAction.OFF
    switched = [
        Method(
            name=name or device.driver,
            action=action,
            driver=device.driver,
            parameters=device.parameters,
            device=device,
            level=number,
            delay=device.delay,
            timeout=device.off_timeout,
        )
        for number, level in enumerate(levels, start=1)
        for name, device in level
    ]
    consequences = []
    if switched and freeing in _FREED_BY:
        consequences.append(Method(name=_FREED_BY[freeing].value, action=_FREED_BY[freeing]))
    if spec.flag("deleteNode", default=False):
        consequences.append(Method(name=MethodAction.DELETE_NODE.value, action=MethodAction.DELETE_NODE))
    if spec.flag("terminateInstance", default=False):
        device = switched[0].device if switched else None
        driver = device.driver if device is not None else "nothing"
        consequences.append(
            Method(name=MethodAction.TERMINATE.value, action=MethodAction.TERMINATE, driver=driver, device=device)
        )
    return (*switched, *consequences)


def _levels(spec: Fields, devices: DeviceReader) -> list[list[tuple[str, PowerDevice]]]:
    if not spec.has("powerLevels"):
        # Without any device and any path nothing would be done: the reader says so.
        return [devices.read_named(spec, "power")] if spec.has("power") or not spec.has("isolation") else []
    if spec.has("power"):
        raise spec.refuse("powerLevels", "power is written, too: expected one of them")
    found = []
    for level in spec.each("powerLevels"):
        level.only("devices")
        found.append(devices.read_named(level, "devices"))
    if not 1 <= len(found) <= MOST_LEVELS:
        raise spec.refuse("powerLevels", f"expected from 1 to {MOST_LEVELS} levels, got {len(found)}")
    return found


def _kdump(fields: Fields) -> Method:
    fields.only(*KDUMP_FIELDS)
    told = {}
    for name in KDUMP_TIMES:
        if fields.has(name):
            told[name] = str(int(fields.duration(name, minimum=_SECOND, maximum=_LONGEST_WINDOW).total_seconds()))
    if fields.has("trusted"):
        told["trusted"] = "yes" if fields.flag("trusted", default=False) else "no"
    return Method(name=MethodAction.KDUMP.value, action=MethodAction.KDUMP, parameters=told)


# Isolation and recovery -----------------------------------------------------------------------------------------------------


def _methods(spec: Fields, field: str, step: FenceStep, devices: DeviceReader, default: tuple[Method, ...]) -> tuple[Method, ...]:
    if not spec.has(field):
        return default
    return tuple(_method(fields, step, devices) for fields in spec.each(field))


def _method(fields: Fields, step: FenceStep, devices: DeviceReader) -> Method:
    fields.only(*METHOD_FIELDS)
    delay = fields.duration("delay", timedelta(0), maximum=LONGEST_DELAY)
    timeout = fields.duration("timeout", minimum=_SECOND, maximum=LONGEST_METHOD) if fields.has("timeout") else None
    tries = fields.whole("tries", minimum=1, maximum=MOST_TRIES) if fields.has("tries") else None
    found = _of_ours(fields, step, devices) if fields.has("method") else _of_path(fields, devices)
    return replace(found, name=fields.text("name", found.name), delay=delay, timeout=timeout, tries=tries)


def _of_ours(fields: Fields, step: FenceStep, devices: DeviceReader) -> Method:
    word = fields.text("method")
    own = OWN_METHODS.get(word)
    known = [name for name, each in OWN_METHODS.items() if step in each.steps]
    if own is None or step not in own.steps:
        raise fields.refuse("method", f"expected one of {', '.join(known)} in {step.value}, got {shown(word)}")
    if fields.has("action"):
        raise fields.refuse("action", f"{word} is an action of its own: leave it out")
    if own.of_instance:
        device = devices.of_instance(fields)
        if missing := [name for name in own.required if name not in device.parameters]:
            raise fields.refuse("parameters", f"{word} needs {', '.join(missing)}")
        return Method(name=word, action=own.action, driver=device.driver, parameters=device.parameters, device=device)
    for field in ("storage", *DEVICE_FIELDS):
        if field not in {"name", "parameters", "delay", "timeout"} and fields.has(field):
            raise fields.refuse(field, f"{word} acts on the cluster's objects: leave it out")
    return Method(name=word, action=own.action, parameters=_told(fields.within_or_empty("parameters"), word, own))


def _told(fields: Fields, word: str, own: OwnMethod) -> dict[str, str]:
    told = {}
    for name in fields.names():
        if name not in own.parameters:
            expected = f"expected one of {', '.join(own.parameters)}" if own.parameters else "it takes none"
            raise fields.refuse(name, f"is not a parameter of {word}; {expected}")
        value = fields.value(name)
        told[name] = str(value) if isinstance(value, int) and not isinstance(value, bool) else fields.text(name)
        if not own.parameters[name].takes(told[name]):
            raise fields.refuse(name, f"expected {own.parameters[name].value}, got {shown(value)}")
    if missing := [name for name in own.required if name not in told]:
        raise fields.refuse("", f"{word} needs {', '.join(missing)}")
    return told


def _of_path(fields: Fields, devices: DeviceReader) -> Method:
    if not fields.has("driver"):
        raise fields.refuse("method", "expected a method of ours, or the driver of a device that carries a path")
    written = fields.text("action")
    if written not in {MethodAction.OFF.value, MethodAction.ON.value}:
        raise fields.refuse("action", f"expected off or on, got {shown(written)}")
    device = devices.of_path(fields)
    storage = fields.within_or_empty("storage")
    storage.only(*STORAGE_FIELDS)
    return Method(
        name=device.driver,
        action=MethodAction(written),
        driver=device.driver,
        parameters=device.parameters,
        device=device,
        fabric=True,
        storage=CutStorage(classes=storage.texts("classes"), drivers=storage.texts("drivers"), handles=storage.texts("handles")),
    )


KIND = "FencingTemplate"
MACHINE_DELETION = "MachineDeletionTemplate"
REBOOT = "RebootTemplate"
VOLUME_DETACHMENT = "VolumeDetachmentTemplate"
OWN_KINDS = (KIND, MACHINE_DELETION, REBOOT, VOLUME_DETACHMENT)
"""Templates that nodewarden carries out itself: what a ladder names makes no object of ours, and asks no other controller."""

PLAN_FIELDS = SPEC_FIELDS
"""Of `spec.template.spec`."""


def is_fencing_template(reference: ObjectRef) -> bool:
    """Whether a reference names our own kind of template, in whatever version."""
    return reference.kind == KIND and reference.api_version.partition("/")[0] == GROUP


def is_own_template(reference: ObjectRef) -> bool:
    """Whether nodewarden itself carries out what the template says, instead of the controller of another kind of object."""
    return reference.kind in OWN_KINDS and reference.api_version.partition("/")[0] == GROUP


def why_untrusted(reference: ObjectRef, trusted: Collection[str]) -> str:
    """Why a FencingTemplate of that namespace does not count, "" where it does or is another kind (S40)."""
    if not is_fencing_template(reference) or reference.namespace in trusted:
        return ""
    return f"templates count in {', '.join(filter(None, trusted)) or 'no namespace'} (setting template_namespaces)"


def read_fencing_template(obj: Mapping[str, object], node: NodeView) -> FenceConfig:
    """The configuration for one node. Raises PolicyError naming the template, the field and what was expected."""
    metadata = Fields(obj, subject=KIND).within("metadata")
    name, namespace = metadata.text("name"), metadata.text("namespace")
    subject = f"{KIND}/{namespace}/{name}"
    fields = Fields(obj, subject=subject)
    fields.must_be(f"{GROUP}/{VERSION}", KIND)
    spec = fields.within("spec").within("template").within("spec")
    spec.only(*PLAN_FIELDS)
    return read_spec(spec, node=node, name=name, kind=KIND, subject=subject, namespace=namespace, cordon=True)


# `FenceConfig`: how nodes are fenced, as one validated object instead of ConfigMaps. It is cluster-scoped, like the nodes that it
# is about, so that a right in one namespace decides on no machine.
#
# Where several are about a node, the most specific holds, as a whole (S11): the one with its name, else one with a selector that
# fits, else one for all nodes; two of the same rank are refused.

FENCE_CONFIG_KIND = "FenceConfig"
WHOM_FIELDS = ("nodeName", "nodeSelector")


class Rank(IntEnum):
    """How much an object is about one node."""

    ALL = 0
    SELECTED = 1
    NAMED = 2


def chosen(objects: Iterable[Mapping[str, object]], node: NodeView) -> Mapping[str, object] | None:
    """The FenceConfig that holds for a node, None without one. Raises PolicyError where that can't be told: one that can't be
    read may be the one that was meant."""
    ranked: dict[Rank, list[Mapping[str, object]]] = {}
    for obj in objects:
        rank = rank_of(obj, node)
        if rank is not None:
            ranked.setdefault(rank, []).append(obj)
    if not ranked:
        return None
    best = ranked[max(ranked)]
    if len(best) > 1:
        names = ", ".join(sorted(_head(obj)[0] for obj in best))
        raise PolicyError(f"Node/{node.name}", FENCE_CONFIG_KIND, f"several of the same rank are about it: {names}; expected one")
    return best[0]


def rank_of(obj: Mapping[str, object], node: NodeView) -> Rank | None:
    """How much the object is about the node, None where it is not. Raises PolicyError."""
    _, subject = _head(obj)
    spec = Fields(obj, subject=subject).within("spec")
    if spec.has("nodeName"):
        if spec.has("nodeSelector"):
            raise spec.refuse("nodeSelector", "nodeName is written, too: expected one of them")
        return Rank.NAMED if spec.text("nodeName") == node.name else None
    if spec.has("nodeSelector"):
        return Rank.SELECTED if parse_selector(spec.within("nodeSelector"), []).matches(node.labels) else None
    return Rank.ALL


def read_fence_config(obj: Mapping[str, object], node: NodeView) -> FenceConfig:
    """The configuration for one node; what is wrong is among its errors."""
    name, subject = _head(obj)
    try:
        fields = Fields(obj, subject=subject)
        fields.must_be(f"{GROUP}/{VERSION}", FENCE_CONFIG_KIND)
        spec = fields.within("spec")
        spec.only(*WHOM_FIELDS, *SPEC_FIELDS)
        return read_spec(spec, node=node, name=name, kind=FENCE_CONFIG_KIND, subject=subject, namespace="", cordon=False)
    except PolicyError as error:
        return FenceConfig(node=node.name, name=name, source=FENCE_CONFIG_KIND, subject=subject, errors=(str(error),))


def _head(obj: Mapping[str, object]) -> tuple[str, str]:
    name = Fields(obj, subject=FENCE_CONFIG_KIND).within("metadata").text("name")
    return name, f"{FENCE_CONFIG_KIND}/{name}"
