"""ConfigMaps in the spellings of the node-fencing proposal and of its published demo, read for one node.

Which object holds: the node's own (`fence-config-node-<name>`, or the older `fence-config-<name>`), else that of its `type`
label, else `fence-config-default`, else the built-in default. It holds as a whole (S11): nothing of another one is mixed in.
Methods with their templates and devices are `configmap_methods.py`; the whole is checked by `plan_compiler.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from policy.fence.config import (
    DEFAULTS,
    INSTANCE,
    LONGEST_DELAY,
    LONGEST_METHOD,
    LONGEST_OFF,
    LONGEST_WAIT,
    MOST_LEVELS,
    MOST_RESTARTS,
    MOST_TRIES,
    OWN_METHODS,
    SLIPS,
    FenceConfig,
    FenceStep,
    Method,
    MethodAction,
    OwnMethod,
    Source,
)
from policy.fence.configmap_methods import (
    ACTIONS,
    AGENT_PREFIX,
    METHOD_PREFIX,
    NO_FENCE,
    READING,
    UNREAD,
    ConfigLine,
    ConfigMap,
    DeviceLines,
    MethodDefinition,
    MethodDefinitions,
    ObjectLookup,
    canonical_parameter,
    driver_of,
    read_lines,
    require_node,
    seconds,
    whole_number,
)
from policy.fence.drivers import DRIVER_PARAMETERS, parameters_of, unknown_driver
from policy.fence.drivers.contract import DriverParameters
from policy.fence.plan import CutStorage, FencingPlan, PowerDevice
from policy.fence.plan_compiler import Findings, judge
from policy.objects.nodes import NodeView
from policy.values.errors import PolicyError, shown

FENCE_MAPS = "fence-"
"""How the names of all ConfigMaps of fence configuration begin."""
PREFIX = "fence-config-"
DEFAULT_NAME = "default"
"""The name of the built-in configuration; with the prefix, of the object that replaces it."""
TYPE_LABEL = "type"
CONFIG_KEY = "config.properties"

STEP_KEYS: Mapping[str, FenceStep] = {
    "isolation": FenceStep.ISOLATION,
    "power_management": FenceStep.POWER_MANAGEMENT,
    "power-management": FenceStep.POWER_MANAGEMENT,
    "recovery": FenceStep.RECOVERY,
}
BUILT_IN: Mapping[FenceStep, str] = {
    FenceStep.ISOLATION: "mark-unschedulable",
    FenceStep.POWER_MANAGEMENT: "restart-instance",
    FenceStep.RECOVERY: "mark-schedulable",
}
MOST_METHODS = 32

INSTANCE_NAMED_BY_NODE: Mapping[str, frozenset[str]] = {"gce": frozenset({"project", "zone"})}
"""Clouds where the node's name is the instance's name, once these parameters are known. In EC2, names are tags that anyone may
give to any instance."""

_SITE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveObject:
    """The object that holds. holder None: the built-in configuration."""

    source: Source
    holder: ConfigMap | None = None

    @property
    def name(self) -> str:
        return self.holder.name if self.holder is not None else DEFAULT_NAME

    @property
    def subject(self) -> str:
        return self.holder.subject if self.holder is not None else "the default fence configuration"


def winner_for(node: NodeView, lookup: ObjectLookup, findings: Findings) -> EffectiveObject:
    """The first of node, type and default that is there (S11)."""
    newer, older = (lookup.config_map(name) for name in (f"{PREFIX}node-{node.name}", f"{PREFIX}{node.name}"))
    if older is not None and not _is_of_node(older, node):
        older = None
    if newer is not None and older is not None:
        findings.warn(older.subject, "metadata.name", f"is not used: {newer.name} holds for Node/{node.name}")
    if (own := newer or older) is not None:
        return EffectiveObject(source=Source.NODE, holder=own)
    kind = node.labels.get(TYPE_LABEL, "")
    if kind and (of_type := lookup.config_map(f"{PREFIX}type-{kind.lower()}")) is not None:
        return EffectiveObject(source=Source.TYPE, holder=of_type)
    return EffectiveObject(source=Source.DEFAULT, holder=lookup.config_map(f"{PREFIX}{DEFAULT_NAME}"))


def read_config_maps(node: NodeView, lookup: ObjectLookup) -> FenceConfig:
    """The configuration of the node, with all that is wrong with it. It stands once the lookup wants nothing more."""
    findings = Findings()
    settings, common = _read_cluster_config(lookup, findings)
    winner = EffectiveObject(source=Source.DEFAULT)
    steps: dict[FenceStep, tuple[Method, ...]] = {}
    with findings.collecting():
        winner = winner_for(node, lookup, findings)
        reader = _Methods(node, lookup, findings, winner=winner, common=common)
        for step, (names, place) in _steps(winner, node, findings).items():
            steps[step] = reader.read_all(step, names, place=place)
    config = FenceConfig(
        node=node.name,
        name=winner.name,
        source=winner.source.value,
        subject=winner.subject,
        isolation=steps.get(FenceStep.ISOLATION, ()),
        power_management=steps.get(FenceStep.POWER_MANAGEMENT, ()),
        recovery=steps.get(FenceStep.RECOVERY, ()),
        settings=settings,
        warnings=findings.warnings,
        errors=findings.errors,
    )
    return judge(config)


def _is_of_node(found: ConfigMap, node: NodeView) -> bool:
    """`fence-config-type-x` is the object of a type, also if a node has the name `type-x`; only a node_name= makes it that
    node's."""
    if node.name != DEFAULT_NAME and not node.name.startswith("type-"):
        return True
    lines = read_lines(found, CONFIG_KEY)
    return "node_name" in lines and lines["node_name"].value == node.name


def _steps(winner: EffectiveObject, node: NodeView, findings: Findings) -> dict[FenceStep, tuple[list[str], tuple[str, str]]]:
    """The names of methods in each step, and the place at which they are listed. A step that is not written is empty."""
    if winner.holder is None:
        return {step: ([name], (winner.subject, step.value)) for step, name in BUILT_IN.items()}
    lines = read_lines(winner.holder, CONFIG_KEY)
    found: dict[FenceStep, tuple[list[str], tuple[str, str]]] = {}
    for written, line in lines.items():
        with findings.collecting():
            step = STEP_KEYS.get(written)
            if written == "node_name":
                require_node(line, node)
            elif step is None:
                raise line.refuse("is not known here; expected one of node_name, isolation, power_management, recovery")
            elif step in found:
                raise line.refuse("this step is written twice")
            else:
                found[step] = (_names(line, node), (line.subject, line.field))
    listed = {name for names, _ in found.values() for name in names}
    for key in winner.holder.data:
        if key.startswith(METHOD_PREFIX) and key.removeprefix(METHOD_PREFIX) not in listed:
            findings.warn(winner.subject, f"data[{key}]", "is not used: no step lists this method")
        elif not key.startswith(METHOD_PREFIX) and key != CONFIG_KEY:
            findings.refuse(winner.subject, f"data[{key}]", f"is not known here; expected {CONFIG_KEY} or {METHOD_PREFIX}<name>")
    return found


def _names(line: ConfigLine, node: NodeView) -> list[str]:
    names = line.filled_in(node).split()
    if len(names) > MOST_METHODS:
        raise line.refuse(f"expected at most {MOST_METHODS} methods, got {len(names)}")
    for name in names:
        if names.count(name) > 1:
            raise line.refuse(f"{name} is listed twice")
    return names


# `fence-cluster-config`: what holds for all nodes of a cluster: waits, tries, and common parameters. It is a health check, too,
# and names policies: those parts of it are read by `policy/dialects/node_fencing.py`.

NAME = "fence-cluster-config"
SETTINGS = ("grace_timeout", "giveup_retries", "policies", "restarts", "power_management_wait")
OF_POLICIES = ("fencing", "fencing_off")
"""Read with the policies, not here."""


def _read_cluster_config(lookup: ObjectLookup, findings: Findings) -> tuple[FencingPlan, Mapping[str, ConfigLine]]:
    """The settings, and the parameters for every method with a driver that has them. Each wrong line is an error of its own, and
    none becomes a default."""
    lines: dict[str, ConfigLine] = {}
    with findings.collecting():
        if (found := lookup.config_map(NAME)) is not None:
            lines = read_lines(found, CONFIG_KEY)
    common = {}
    settings = DEFAULTS
    for written, line in lines.items():
        with findings.collecting():
            if written in SETTINGS:
                settings = _with(settings, line)
            elif written in OF_POLICIES:
                continue
            elif is_common_parameter(written):
                common[written] = line
            else:
                raise line.refuse(f"is neither a setting ({', '.join(SETTINGS)}) nor a parameter of any driver")
    return settings, common


def _with(settings: FencingPlan, line: ConfigLine) -> FencingPlan:
    match line.written:
        case "grace_timeout":
            return replace(settings, wait_before_isolation=seconds(line, maximum=LONGEST_WAIT))
        case "giveup_retries":
            # N retries are N + 1 tries. None at all is refused as a count below 1 is everywhere (S7).
            return replace(settings, tries=1 + whole_number(line, minimum=1, maximum=MOST_TRIES - 1))
        case "restarts":
            return replace(settings, restarts=whole_number(line, minimum=0, maximum=MOST_RESTARTS))
        case "power_management_wait":
            return replace(settings, wait_before_power=seconds(line, maximum=LONGEST_WAIT))
        case _:
            return settings  # the names of policies


def is_common_parameter(written: str) -> bool:
    """Whether the key is a parameter that some driver knows, so that it may stand here for all nodes."""
    agents = parameters_of(f"{AGENT_PREFIX}any")
    drivers = {**DRIVER_PARAMETERS, **({f"{AGENT_PREFIX}any": agents} if agents is not None else {})}
    return any(canonical_parameter(name, written) in {*takes.names, *takes.secret} for name, takes in drivers.items())


class _Methods:
    """Reads the methods of all steps for one node."""

    def __init__(
        self,
        node: NodeView,
        lookup: ObjectLookup,
        findings: Findings,
        *,
        winner: EffectiveObject,
        common: Mapping[str, ConfigLine],
    ) -> None:
        self._node = node
        self._lookup = lookup
        self._findings = findings
        self._winner = winner
        self._common = common
        specific = winner.source is Source.NODE
        self._definitions = MethodDefinitions(node, lookup, findings, winner=winner.holder, specific=specific)
        self._devices = DeviceLines(node, lookup, findings, common=common)

    def read_all(self, step: FenceStep, names: list[str], *, place: tuple[str, str]) -> tuple[Method, ...]:
        """The methods that can be read; what is wrong with the others is among the findings."""
        found: list[Method] = []
        for name in names:
            with self._findings.collecting():
                found.append(self._read(step, name, place))
        return tuple(found)

    def _read(self, step: FenceStep, name: str, place: tuple[str, str]) -> Method:
        if (meant := SLIPS.get((step, name))) is not None:
            self._findings.warn(*place, f"{name} is taken as {meant}: a node that has recovered takes pods again")
            name = meant
        method = self._definitions.find(name, place=place)
        own = OWN_METHODS.get(method.agent)
        if own is None:
            return self._of_device(step, method)
        if step not in own.steps:
            expected = " or ".join(each.value for each in FenceStep if each in own.steps)
            raise PolicyError(*place, f"{name} does not belong into {step.value}: expected it in {expected}")
        if (line := method.control.get("action")) is not None:
            raise line.refuse(f"{method.agent} is an action of its own: leave it out")
        return self._of_instance(step, method, own) if own.of_instance else self._of_cluster(step, method, own)

    def _of_cluster(self, step: FenceStep, method: MethodDefinition, own: OwnMethod) -> Method:
        return Method(
            name=method.name,
            action=own.action,
            template=method.template,
            parameters=self._own_parameters(method, own),
            delay=self._delay(method),
            timeout=self._timeout(method, LONGEST_METHOD),
            tries=self._tries(step, method),
        )

    def _of_instance(self, step: FenceStep, method: MethodDefinition, own: OwnMethod) -> Method:
        known = self._instance_driver(method)
        if known is None:
            return self._of_unknown_instance(method, own)
        driver, takes, implied = known
        found = self._device(step, method, driver, takes, implied=implied)
        given = found.device.parameters if found.device is not None else {}
        if missing := [name for name in own.required if name not in given]:
            expected = "one of its parameters" if missing[0] in takes.names else f"another method: {driver} can't do this"
            raise method.refuse(f"{method.name} needs {', '.join(missing)}; expected {expected}")
        return replace(found, action=own.action, driver=driver)

    def _instance_driver(self, method: MethodDefinition) -> tuple[str, DriverParameters, Mapping[str, str]] | None:
        """The driver of the cloud that the node's machine is in, what it takes, and what follows from the node's name: by the
        providerID, else by what is configured. None: nothing says which instance the node is."""
        provider_id = self._node.provider_id
        for name, takes in DRIVER_PARAMETERS.items():
            if provider_id and takes.from_provider_id is not None and takes.from_provider_id(provider_id):
                return name, takes, {}
        if not provider_id:
            written = {key for key, line in {**self._common, **method.parameters}.items() if line.value}
            for name, needed in INSTANCE_NAMED_BY_NODE.items():
                if name in DRIVER_PARAMETERS and needed <= written:
                    return name, DRIVER_PARAMETERS[name], {"instance": self._node.name}
        return None

    def _of_unknown_instance(self, method: MethodDefinition, own: OwnMethod) -> Method:
        """The method is shown all the same. A Node that exists and has no such providerID is an error; one that does not exist
        yet may get it."""
        node = self._node
        why = f"Node/{node.name} has no providerID, so nothing says which instance it is"
        if node.provider_id:
            why = f"no driver knows the platform of its providerID ({node.provider_id.partition(':')[0]})"
        report = self._findings.refuse if node.uid else self._findings.warn
        report(
            *method.place,
            f"{method.name}: {why}; write a FencingTemplate, a FenceConfig or ConfigMap fence-config-node-{node.name}",
        )
        nowhere = PowerDevice(driver=INSTANCE, endpoint=f"{INSTANCE} of Node/{self._node.name}")
        return Method(name=method.name, action=own.action, driver=INSTANCE, template=method.template, device=nowhere)

    def _of_device(self, step: FenceStep, method: MethodDefinition) -> Method:
        driver = driver_of(method.agent)
        takes = parameters_of(driver)
        if takes is None:
            problem, line = NO_FENCE.get(method.agent) or unknown_driver(driver), method.control.get("agent_name")
            raise line.refuse(problem) if line is not None else method.refuse(problem)
        action = self._action(step, method, takes)
        found = self._device(step, method, driver, takes)
        storage = self._storage(step, method, takes)
        return replace(found, action=action, driver=driver, fabric=takes.fabric, storage=storage)

    def _device(
        self,
        step: FenceStep,
        method: MethodDefinition,
        driver: str,
        takes: DriverParameters,
        *,
        implied: Mapping[str, str] | None = None,
    ) -> Method:
        """The method with its device; the caller sets its action."""
        delay, timeout = self._delay(method), self._timeout(method, LONGEST_OFF)
        site = self._site(method)
        device, written = self._devices.read(method, driver, takes, implied=implied, site=site, delay=delay, timeout=timeout)
        return Method(
            name=method.name,
            action=MethodAction.OFF,
            template=method.template,
            parameters=written,
            device=device,
            level=self._level(step, method),
            delay=delay,
            timeout=timeout,
            tries=self._tries(step, method),
        )

    def _action(self, step: FenceStep, method: MethodDefinition, takes: DriverParameters) -> MethodAction:
        line = method.control.get("action")
        if line is None:
            # What agents do by default: reboot, or off for a switch port.
            off_or_on = MethodAction.ON if step is FenceStep.RECOVERY else MethodAction.OFF
            action = off_or_on if takes.fabric else MethodAction.REBOOT
            self._findings.warn(*method.place, f"{method.name} has no action=: taken as {action.value}")
            return action
        if line.value in READING:
            raise line.refuse(f"{line.value} only looks: nothing executed is never success; expected off, on or reboot")
        if line.value in UNREAD:
            raise line.refuse(f"after a {line.value} no off can be read; expected off, on or reboot")
        if line.value not in ACTIONS:
            raise line.refuse("expected off, on or reboot")
        return ACTIONS[line.value]

    def _storage(self, step: FenceStep, method: MethodDefinition, takes: DriverParameters) -> CutStorage:
        """The volumes that the node can reach by this path only: their pods may be freed once it is cut."""
        named: dict[str, tuple[str, ...]] = {}
        for key in ("storage_classes", "csi_drivers", "volume_handles"):
            line = method.control.get(key)
            if line is None:
                continue
            if not takes.fabric or step is FenceStep.POWER_MANAGEMENT:
                raise line.refuse("says what lies behind a path: expected it with a device that carries one")
            named[key] = tuple(dict.fromkeys(line.value.split()))
        return CutStorage(
            classes=named.get("storage_classes", ()),
            drivers=named.get("csi_drivers", ()),
            handles=named.get("volume_handles", ()),
        )

    def _own_parameters(self, method: MethodDefinition, own: OwnMethod) -> dict[str, str]:
        values = {}
        for key, line in method.parameters.items():
            if key not in own.parameters:
                expected = f"expected one of {', '.join(own.parameters)}" if own.parameters else "it takes none"
                raise line.refuse(f"is not a parameter of {method.agent}; {expected}")
            values[key] = line.filled_in(self._node)
            if not own.parameters[key].takes(values[key]):
                raise line.refuse(f"expected {own.parameters[key].value}, got {shown(values[key])}")
        if missing := [key for key in own.required if key not in values]:
            raise method.refuse(f"{method.name} needs {', '.join(missing)}")
        return values

    def _delay(self, method: MethodDefinition) -> timedelta:
        line = method.control.get("delay")
        return seconds(line, maximum=LONGEST_DELAY) if line is not None else timedelta(0)

    def _timeout(self, method: MethodDefinition, longest: timedelta) -> timedelta | None:
        line = method.control.get("timeout")
        return seconds(line, minimum=1, maximum=longest) if line is not None else None

    def _tries(self, step: FenceStep, method: MethodDefinition) -> int | None:
        line = method.control.get("tries")
        if line is None:
            return None
        if step is FenceStep.POWER_MANAGEMENT:
            raise line.refuse(f"how often power management is tried is giveup_retries in {NAME}")
        return whole_number(line, minimum=1, maximum=MOST_TRIES)

    def _level(self, step: FenceStep, method: MethodDefinition) -> int:
        line = method.control.get("level")
        if line is None:
            return 1
        if step is not FenceStep.POWER_MANAGEMENT:
            raise line.refuse("only power management has levels")
        return whole_number(line, minimum=1, maximum=MOST_LEVELS)

    def _site(self, method: MethodDefinition) -> str:
        line = method.control.get("site")
        if line is None:
            return "default"
        if _SITE.fullmatch(line.value) is None:
            raise line.refuse("expected lower-case letters, digits and dashes")
        return line.value
