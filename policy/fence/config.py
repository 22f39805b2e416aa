"""The one typed fence configuration of a node, made from any spelling; and what all spellings share: bounds, our own methods,
variables in values, and how it is shown.

It carries references to credentials, never a credential (S12). If it has a single error, none of it holds: a configuration is
applied whole or not at all. `plan_compiler.py` checks it and makes the plan of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from policy.fence.plan import CredentialKind, CredentialRef, CutStorage, FencingPlan, Freeing, PowerDevice
from policy.objects.nodes import NodeView
from policy.values.times import format_duration

CLUSTER = "cluster"
"""The driver of methods that act on objects of the cluster."""

INSTANCE = "instance"
"""The driver of an unknown instance: nothing says which one it is, or in which cloud."""

DEFAULTS = FencingPlan(source="", levels=())
"""The settings of a configuration that names none."""


class FenceStep(StrEnum):
    """The steps of the node-fencing proposal, in their order, as records and `fence plan` name them."""

    ISOLATION = "isolation"
    POWER_MANAGEMENT = "power-management"
    RECOVERY = "recovery"


class Source(StrEnum):
    """At which level of the fallback the winning ConfigMap was found. Of our own kinds the source is the kind."""

    NODE = "node"
    TYPE = "type"
    DEFAULT = "default"


class MethodAction(StrEnum):
    """What a method does. The first four act on a device; reboot and restart are an off half and an on half, never a reset
    (S5)."""

    OFF = "off"
    ON = "on"
    REBOOT = "reboot"
    RESTART = "restart"
    CORDON = "mark-unschedulable"
    UNCORDON = "mark-schedulable"
    TAINT = "taint"
    DRAIN = "drain"
    FREE_PODS = "free-pods"
    OUT_OF_SERVICE_TAINT = "out-of-service-taint"
    RELEASE_VOLUMES = "release-volumes"
    DETACH_VOLUMES = "detach-volumes"
    QUARANTINE = "quarantine"
    LIFT_QUARANTINE = "lift-quarantine"
    DELETE_NODE = "delete-node"
    TERMINATE = "terminate-instance"
    KDUMP = "kdump"

    @property
    def has_off(self) -> bool:
        return self in {MethodAction.OFF, MethodAction.REBOOT, MethodAction.RESTART}

    @property
    def has_on(self) -> bool:
        return self in {MethodAction.ON, MethodAction.REBOOT, MethodAction.RESTART}


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One method of a step. name: as its configuration calls it. template: the object that it is an instance of, "" without one.

    parameters: under the names that the configuration uses, filled in for the node; secret ones are in the device's credentials.
    device: what is switched, its parameters in the driver's own names. fabric: the device carries a path (a switch port), so
    that off cuts it and proves nothing about power; storage: the volumes behind that path. level: of power devices; the first
    level with all devices off fences the node.
    """

    name: str
    action: MethodAction
    driver: str = CLUSTER
    template: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    device: PowerDevice | None = None
    fabric: bool = False
    storage: CutStorage = field(default_factory=CutStorage)
    level: int = 1
    delay: timedelta = timedelta(0)
    timeout: timedelta | None = None
    tries: int | None = None

    @property
    def power_level(self) -> int:
        """Its level, 0 for a method that switches no power."""
        return self.level if self.device is not None and not self.fabric else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceConfig:
    """How a node is fenced. name: of the winning object, "default" if there is none. subject: its kind and name.

    settings: of the whole flow, as a plan without any device; its wait_before_isolation is how long a node stays `new` if no
    health check has waited already. warnings and errors are sentences that name object and field, and never a value that may be
    secret.
    """

    node: str
    name: str
    source: str
    subject: str
    isolation: tuple[Method, ...] = ()
    power_management: tuple[Method, ...] = ()
    recovery: tuple[Method, ...] = ()
    settings: FencingPlan = DEFAULTS
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()

    def step(self, step: FenceStep) -> tuple[Method, ...]:
        match step:
            case FenceStep.ISOLATION:
                return self.isolation
            case FenceStep.POWER_MANAGEMENT:
                return self.power_management
            case FenceStep.RECOVERY:
                return self.recovery

    def lists(self, action: MethodAction) -> bool:
        return any(method.action is action for method in self.power_management)


def freeing_of(config: FenceConfig) -> Freeing:
    """The way that is listed; if none is, the cluster's best one (the proposal frees everything after power management)."""
    if config.settings.freeing is not Freeing.AUTOMATIC:
        return config.settings.freeing
    taint = config.lists(MethodAction.OUT_OF_SERVICE_TAINT)
    deletion = config.lists(MethodAction.FREE_PODS) or config.lists(MethodAction.RELEASE_VOLUMES)
    if taint and not deletion:
        return Freeing.OUT_OF_SERVICE_TAINT
    return Freeing.DELETION if deletion and not taint else Freeing.AUTOMATIC


# The bounds of what a fence configuration may ask for, in any spelling. A workflow polls and repeats within these, so its history
# is bounded whatever the configuration says.

LONGEST_ACT = timedelta(seconds=30)
"""A longer act could not be waited out before its outcome is read (S34)."""
LONGEST_WAIT = timedelta(hours=24)
LONGEST_RETRY_INTERVAL = timedelta(minutes=10)
LONGEST_OFF = timedelta(minutes=10)
LONGEST_FREEING = timedelta(minutes=30)
LONGEST_BOOT = timedelta(hours=2)
LONGEST_DELAY = timedelta(minutes=10)
LONGEST_METHOD = timedelta(minutes=30)
MOST_TRIES, MOST_RESTARTS, MOST_LEVELS = 10, 5, 9


# Our own methods: their names need no definition, because they act on the cluster, or on the instance itself. The steps in which
# each may stand follow from what it does: nothing is freed before a proof, nothing is switched in recovery.

_ISOLATION = frozenset({FenceStep.ISOLATION})
_POWER = frozenset({FenceStep.POWER_MANAGEMENT})
_RECOVERY = frozenset({FenceStep.RECOVERY})

EFFECTS = ("NoSchedule", "PreferNoSchedule")
"""Not NoExecute: it deletes pods, which needs the proof of off (S1)."""

YES, NO = frozenset({"1", "yes", "on", "true"}), frozenset({"0", "no", "off", "false"})
LONGEST_SECONDS = 3600

_KEY = re.compile(r"([a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?)?")


class ParameterKind(StrEnum):
    """What a parameter of one of our methods may be."""

    KEY = "the key of a taint"
    VALUE = "the value of a taint"
    EFFECT = f"one of {', '.join(EFFECTS)}"
    ANSWER = "yes or no"
    SECONDS = f"whole seconds from 1 to {LONGEST_SECONDS}, without a unit"

    def takes(self, value: str) -> bool:
        match self:
            case ParameterKind.KEY:
                return _KEY.fullmatch(value) is not None
            case ParameterKind.VALUE:
                return _VALUE.fullmatch(value) is not None
            case ParameterKind.EFFECT:
                return value in EFFECTS
            case ParameterKind.ANSWER:
                return value.lower() in YES | NO
            case ParameterKind.SECONDS:
                return value.isascii() and value.isdigit() and len(value) < 9 and 1 <= int(value) <= LONGEST_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnMethod:
    """parameters: those that it takes; required: those that it must have. of_instance: it acts on the machine that the node's
    providerID names, and takes the parameters of that cloud's driver."""

    action: MethodAction
    steps: frozenset[FenceStep]
    parameters: Mapping[str, ParameterKind] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    of_instance: bool = False


_CORDON = OwnMethod(action=MethodAction.CORDON, steps=_ISOLATION)
_UNCORDON = OwnMethod(action=MethodAction.UNCORDON, steps=_RECOVERY)
_FREE_PODS = OwnMethod(action=MethodAction.FREE_PODS, steps=_ISOLATION | _POWER)

OWN_METHODS: Mapping[str, OwnMethod] = {
    "mark-unschedulable": _CORDON,
    "cordon": _CORDON,
    "mark-schedulable": _UNCORDON,
    "uncordon": _UNCORDON,
    "free-pods": _FREE_PODS,
    "clean-pods": _FREE_PODS,
    "taint": OwnMethod(
        action=MethodAction.TAINT,
        steps=_ISOLATION,
        parameters={"key": ParameterKind.KEY, "value": ParameterKind.VALUE, "effect": ParameterKind.EFFECT},
        required=("key", "effect"),
    ),
    "drain": OwnMethod(
        action=MethodAction.DRAIN,
        steps=_ISOLATION,
        parameters={
            "force": ParameterKind.ANSWER,
            "ignore-daemonsets": ParameterKind.ANSWER,
            "delete-emptydir-data": ParameterKind.ANSWER,
            "grace-period": ParameterKind.SECONDS,
            "skip-wait-for-delete-timeout": ParameterKind.SECONDS,
        },
    ),
    "out-of-service-taint": OwnMethod(action=MethodAction.OUT_OF_SERVICE_TAINT, steps=_POWER),
    "release-volumes": OwnMethod(action=MethodAction.RELEASE_VOLUMES, steps=_POWER),
    "delete-node": OwnMethod(action=MethodAction.DELETE_NODE, steps=_POWER),
    "kdump": OwnMethod(
        action=MethodAction.KDUMP,
        steps=_ISOLATION | _POWER,
        parameters={
            "window": ParameterKind.SECONDS,
            "silence": ParameterKind.SECONDS,
            "longest": ParameterKind.SECONDS,
            "trusted": ParameterKind.ANSWER,
        },
    ),
    "restart-instance": OwnMethod(action=MethodAction.RESTART, steps=_POWER, of_instance=True),
    "terminate-instance": OwnMethod(action=MethodAction.TERMINATE, steps=_POWER, of_instance=True),
    "detach-volumes": OwnMethod(action=MethodAction.DETACH_VOLUMES, steps=_ISOLATION, of_instance=True),
    "quarantine": OwnMethod(
        action=MethodAction.QUARANTINE,
        steps=_ISOLATION,
        required=("quarantine-group",),
        of_instance=True,
    ),
    "lift-quarantine": OwnMethod(action=MethodAction.LIFT_QUARANTINE, steps=_RECOVERY, of_instance=True),
}

SLIPS: Mapping[tuple[FenceStep, str], str] = {(FenceStep.RECOVERY, "mark-unschedulable"): "mark-schedulable"}
"""The proposal's own default says `recovery=mark-unschedulable`, which would leave a recovered node cordoned."""


# The variables that a configuration may put into values, such as `{{ .NodeName }}`, filled in for one node. Some of them differ
# from node to node: a value with one of those identifies the node's own device (S10).

REGION_LABEL = "topology.kubernetes.io/region"

IDENTIFYING = frozenset({"NodeName", "ProviderID", "InstanceID"})

_VARIABLE = re.compile(r"\{\{\s*\.(\w+)\s*\}\}")
_PLACEHOLDER = re.compile(r"\[[A-Z][A-Z0-9_]*\]")


class VariableError(ValueError):
    """A value that can't be filled in. The text never repeats the value: it may be a password (S12)."""


def identifies(value: str) -> bool:
    """Whether the value contains a variable that differs from node to node."""
    return bool(IDENTIFYING & set(_VARIABLE.findall(value)))


def has_variable(value: str) -> bool:
    """Whether it may have one, rightly spelled or not."""
    return "{{" in value or "}}" in value


def fill_in(value: str, node: NodeView) -> str:
    """The value for this node. Raises VariableError for a variable that is unknown or that the node does not give."""
    if not has_variable(value) and "[" not in value:
        return value
    known = {
        "NodeName": node.name,
        "ProviderID": node.provider_id,
        "InstanceID": node.provider_id.rpartition("/")[2],
        "Zone": node.zone,
        "Region": node.labels.get(REGION_LABEL, ""),
    }
    for variable in _VARIABLE.findall(value):
        if not known.get(variable):
            why = "the node has none" if variable in known else f"expected one of {', '.join(sorted(known))}"
            raise VariableError(f"{{{{ .{variable} }}}} can't be filled in: {why}")
    filled = _VARIABLE.sub(lambda match: known[match[1]], value)
    if "{{" in filled or "}}" in filled:
        raise VariableError("expected variables like {{ .NodeName }}")
    if (placeholder := _PLACEHOLDER.search(filled)) is not None:
        # As documents write it, the node-fencing proposal first: no program fills it in.
        raise VariableError(
            f"{placeholder[0]} stands for something: write the value itself, or a variable like {{{{ .NodeName }}}}"
        )
    return filled


def has_placeholder(text: str) -> bool:
    """Whether a name was copied from a document with its placeholder left in."""
    return _PLACEHOLDER.search(text) is not None


def with_node_name(value: str, name: str) -> str:
    """Another node's value as far as it can be filled in: only that node's name is known here."""
    return _VARIABLE.sub(lambda match: name if match[1] == "NodeName" else match[0], value)


# A configuration for people and programs, as `fence plan` prints it: of a credential its place, never its value (S12).

_WORDS = {MethodAction.CORDON: "cordon", MethodAction.UNCORDON: "uncordon"}
"""Other actions are shown by their own names."""

_TAINTED = "delete the pods and set the out-of-service taint, for which Kubernetes detaches volumes"
_FREED = {
    Freeing.AUTOMATIC: f"{_TAINTED}; in a cluster that does not act on it, delete the volume attachments instead",
    Freeing.OUT_OF_SERVICE_TAINT: _TAINTED,
    Freeing.DELETION: "delete the pods, and the volume attachments that none of them needs any more",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownAct:
    """One act of a fencing. action: None where it only waits. method: of that step, "" where none lists it."""

    step: FenceStep
    does: str
    action: MethodAction | None = None
    method: str = ""


def acts_in_order(config: FenceConfig) -> tuple[ShownAct, ...]:
    """What a fencing does where nothing goes wrong, in the order of `workflows/fencing/story.py`, whatever its configuration
    lists first."""
    plan, power, found = config.settings, config.power_management, list[ShownAct]()
    dump = next((each for each in (*config.isolation, *power) if each.action is MethodAction.KDUMP), None)
    offs = sorted((each for each in power if each.action.has_off), key=lambda each: each.power_level)
    ends = next((each for each in power if each.action is MethodAction.TERMINATE), None) if offs else None

    def add(step: FenceStep, does: str, action: MethodAction | None = None, method: Method | None = None) -> None:
        by = f" by {method.driver}" if method is not None and method.driver != CLUSTER else ""
        found.append(ShownAct(step=step, does=does.format(by=by), action=action, method=method.name if method else ""))

    def add_methods(step: FenceStep, *, paths_stay_cut: bool = False) -> None:
        for each in config.step(step):
            if each.fabric and paths_stay_cut:
                add(step, "leave the path cut: pods were freed behind it, and the node has not restarted", None, each)
            elif each.action is not MethodAction.KDUMP:
                word = ("cut" if each.action.has_off else "restore") + " the path" if each.fabric else each.action.value
                add(step, f"{_WORDS.get(each.action, word)}{{by}}", each.action, each)

    step = FenceStep.ISOLATION
    if plan.wait_before_isolation:
        add(step, f"wait {format_duration(plan.wait_before_isolation)}, unless a health check asks for the fencing")
    add_methods(step)
    step = FenceStep.POWER_MANAGEMENT
    if offs:
        if dump is not None and dump.parameters.get("trusted", "no").lower() in YES and frees(config) is not Freeing.NONE:
            add(step, "delete the pods while the node says that its kernel dumps", MethodAction.FREE_PODS, dump)
        if plan.wait_before_power:
            waited = f"wait until {format_duration(plan.wait_before_power)} after the node stopped being Ready"
            add(step, f"{waited}; a person's fencing of a Ready node does not wait")
        if dump is not None:
            add(step, "wait while the node writes its crash dump", MethodAction.KDUMP, dump)
        for each in offs:
            later = f" (level {each.level}: only where none before it is proven off)" if each.power_level > 1 else ""
            add(step, f"power off{{by}}, and read it until off is proven{later}", MethodAction.OFF, each)
        add(step, "wait until the API server says that the node is not Ready")
        if (freeing := frees(config)) in _FREED:
            by_taint = freeing is not Freeing.DELETION
            add(step, _FREED[freeing], MethodAction.OUT_OF_SERVICE_TAINT if by_taint else MethodAction.FREE_PODS)
        for each in power:
            if each.action is MethodAction.DELETE_NODE:
                add(step, "delete the Node", each.action, each)
        if ends is not None:
            add(step, "give the machine up for good{by}", ends.action, ends)
    ons = [each for each in power if each.action.has_on and ends is None]
    for each in ons:
        later = f" (level {each.level}: only if it was switched off)" if each.power_level > 1 else ""
        add(step, f"power on{{by}}{later}", MethodAction.ON, each)
    returns = bool(ons) or not offs
    if returns:
        add(step, f"wait until the node is Ready with a new boot id, at most {format_duration(plan.boot_timeout)}")
    elif ends is None:
        add(step, "leave the machine off")
    add_methods(FenceStep.RECOVERY, paths_stay_cut=not returns)
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownMethod:
    """One method of a step. parameters: a credential's value is its place. level: of a power device, 0 for all others: a level
    is switched only where none before it is proven off."""

    method: str
    template: str
    driver: str
    action: MethodAction
    parameters: Mapping[str, str]
    level: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownConfig:
    """Which configuration holds for a node, where it comes from, and what each of its steps would do. An interface: fields are
    added, never renamed. frees: how its workloads are freed once it is proven off, whether a step lists that or not. order: what
    is done, in its order."""

    node: str
    config: str
    source: str
    steps: Mapping[FenceStep, tuple[ShownMethod, ...]]
    warnings: tuple[str, ...]
    errors: tuple[str, ...]
    frees: Freeing = Freeing.NONE
    order: tuple[ShownAct, ...] = ()


def frees(config: FenceConfig) -> Freeing:
    """How workloads are freed after power management; not at all where no device is switched off."""
    switches = any(each.action.has_off for each in config.power_management)
    return freeing_of(config) if switches else Freeing.NONE


def shown_config(config: FenceConfig) -> ShownConfig:
    """The configuration without any credential."""
    steps = {
        step: tuple(
            ShownMethod(
                method=method.name,
                template=method.template,
                driver=method.driver,
                action=method.action,
                parameters=shown_parameters(method),
                level=method.power_level,
            )
            for method in config.step(step)
        )
        for step in FenceStep
    }
    return ShownConfig(
        node=config.node,
        config=config.name,
        source=config.source,
        steps=steps,
        warnings=config.warnings,
        errors=config.errors,
        frees=frees(config),
        order=acts_in_order(config),
    )


def shown_parameters(method: Method) -> dict[str, str]:
    """Plain parameters as they are, credentials by their places. If two references give the same one, the later is shown: it is
    the one that is used."""
    shown = dict(method.parameters)
    for reference in method.device.credentials if method.device is not None else ():
        shown |= _places(reference)
    return shown


def _places(reference: CredentialRef) -> dict[str, str]:
    place = f"{reference.kind.value.lower()}:{reference.namespace}/{reference.name}"
    if not reference.keys:
        return {"*": place}
    match reference.kind:
        case CredentialKind.FILE | CredentialKind.ENVIRONMENT:
            return {name: f"{reference.kind.value}:{key}" for name, key in reference.keys.items()}
        case CredentialKind.CONFIG_MAP | CredentialKind.SECRET:
            within = f"{reference.properties}." if reference.properties else ""
            return {name: f"{place}#{within}{key}" for name, key in reference.keys.items()}
