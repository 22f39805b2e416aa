"""ConfigMaps in the spellings of the node-fencing proposal and of its published demo, read for one node.

Which object holds: the node's own (`fence-config-node-<name>`, or the older `fence-config-<name>`), else that of its `type`
label, else `fence-config-default`, else what is built in. It holds as a whole (S11): nothing of another one is mixed in. Methods
and templates are `definitions.py`, devices `devices.py`, the rules for the whole `validation.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from policy.fence.agents import ACTIONS, READING, UNREAD, driver_of, known_agent
from policy.fence.builtin_methods import OWN_METHODS, SLIPS, OwnMethod
from policy.fence.config import (
    INSTANCE,
    LONGEST_DELAY,
    LONGEST_METHOD,
    LONGEST_OFF,
    MOST_LEVELS,
    MOST_TRIES,
    FenceConfig,
    FenceStep,
    Method,
    MethodAction,
    Source,
)
from policy.fence.configmaps.cluster_config import CONFIG_KEY, NAME, read_cluster_config
from policy.fence.configmaps.definitions import METHOD_PREFIX, Definition, Definitions, require_node
from policy.fence.configmaps.devices import DeviceLines
from policy.fence.configmaps.lines import Line, read_lines, seconds, whole_number
from policy.fence.configmaps.object_lookup import ConfigMap, ObjectLookup
from policy.fence.drivers import DRIVER_PARAMETERS
from policy.fence.drivers.contract import DriverParameters
from policy.fence.plan import CutStorage, PowerDevice
from policy.fence.validation import Findings, judge
from policy.objects.nodes import NodeView
from policy.values.errors import PolicyError, shown

# Which cloud a node's machine is in, for methods that act on the instance: by the providerID, else by what is configured.

BY_NAME: Mapping[str, frozenset[str]] = {"gce": frozenset({"project", "zone"})}
"""Clouds where the node's name is an instance's, once this much is known. EC2's names are tags that anybody may share."""


class UnknownInstanceError(PolicyError):
    """Nothing says which instance a node is."""


def instance_driver(
    node: NodeView, method: Definition, common: Mapping[str, Line]
) -> tuple[str, DriverParameters, Mapping[str, str]]:
    """The driver, what it takes, and what follows from the node's name. Raises UnknownInstanceError saying what to write."""
    for name, takes in DRIVER_PARAMETERS.items():
        if node.provider_id and takes.from_provider_id is not None and takes.from_provider_id(node.provider_id):
            return name, takes, {}
    if not node.provider_id:
        written = {key for key, line in {**common, **method.parameters}.items() if line.value}
        for name, needed in BY_NAME.items():
            if name in DRIVER_PARAMETERS and needed <= written:
                return name, DRIVER_PARAMETERS[name], {"instance": node.name}
    raise UnknownInstanceError(
        *method.place,
        f"{method.name}: {_what(node)}; write a FencingTemplate, a FenceConfig or ConfigMap fence-config-node-{node.name}",
    )


def _what(node: NodeView) -> str:
    if not node.provider_id:
        return f"Node/{node.name} has no providerID, so nothing says which instance it is"
    return f"no driver knows the platform of its providerID ({node.provider_id.partition(':')[0]})"


PREFIX = "fence-config-"
DEFAULT_NAME = "default"
"""What the built-in configuration is called, and with the prefix the object that replaces it."""

TYPE_LABEL = "type"

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

_SITE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveObject:
    """The object that holds. holder None: the built-in configuration."""

    source: Source
    holder: ConfigMap | None = None

    @property
    def name(self) -> str:
        """Of the object."""
        return self.holder.name if self.holder is not None else DEFAULT_NAME

    @property
    def subject(self) -> str:
        """For messages."""
        return self.holder.subject if self.holder is not None else "the default fence configuration"


def winner_for(node: NodeView, shelf: ObjectLookup, findings: Findings) -> EffectiveObject:
    """The first of node, type and default that is there (S11)."""
    newer, older = (shelf.config_map(name) for name in (f"{PREFIX}node-{node.name}", f"{PREFIX}{node.name}"))
    if older is not None and not _is_of_node(older, node):
        older = None
    if newer is not None and older is not None:
        findings.warn(older.subject, "metadata.name", f"is not used: {newer.name} holds for Node/{node.name}")
    if (own := newer or older) is not None:
        return EffectiveObject(source=Source.NODE, holder=own)
    kind = node.labels.get(TYPE_LABEL, "")
    if kind and (of_type := shelf.config_map(f"{PREFIX}type-{kind.lower()}")) is not None:
        return EffectiveObject(source=Source.TYPE, holder=of_type)
    return EffectiveObject(source=Source.DEFAULT, holder=shelf.config_map(f"{PREFIX}{DEFAULT_NAME}"))


def read_config_maps(node: NodeView, shelf: ObjectLookup) -> FenceConfig:
    """What holds for the node, with all that is wrong with it. Of worth only when the lookup wants nothing more."""
    findings = Findings()
    cluster = read_cluster_config(_looked_up(shelf, NAME, findings), findings)
    winner = EffectiveObject(source=Source.DEFAULT)
    steps: dict[FenceStep, tuple[Method, ...]] = {}
    with findings.collecting():
        winner = winner_for(node, shelf, findings)
        reader = _Methods(node, shelf, findings, winner=winner, common=cluster.common)
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
        settings=cluster.settings,
        warnings=findings.warnings,
        errors=findings.errors,
    )
    return judge(config)


def _looked_up(shelf: ObjectLookup, name: str, findings: Findings) -> ConfigMap | None:
    with findings.collecting():
        return shelf.config_map(name)
    return None


def _is_of_node(found: ConfigMap, node: NodeView) -> bool:
    """`fence-config-type-x` is a type's object, whatever a node is called; only a node_name= makes it that node's."""
    if node.name != DEFAULT_NAME and not node.name.startswith("type-"):
        return True
    lines = read_lines(found, CONFIG_KEY)
    return "node_name" in lines and lines["node_name"].value == node.name


def _steps(winner: EffectiveObject, node: NodeView, findings: Findings) -> dict[FenceStep, tuple[list[str], tuple[str, str]]]:
    """The names in each step, and the place that they stand at. A step that is not written is empty."""
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


def _names(line: Line, node: NodeView) -> list[str]:
    names = line.filled_in(node).split()
    if len(names) > MOST_METHODS:
        raise line.refuse(f"expected at most {MOST_METHODS} methods, got {len(names)}")
    for name in names:
        if names.count(name) > 1:
            raise line.refuse(f"{name} is listed twice")
    return names


class _Methods:
    """Reads the methods of all steps for one node."""

    def __init__(
        self, node: NodeView, shelf: ObjectLookup, findings: Findings, *, winner: EffectiveObject, common: Mapping[str, Line]
    ) -> None:
        self._node = node
        self._shelf = shelf
        self._findings = findings
        self._winner = winner
        self._common = common
        specific = winner.source is Source.NODE
        self._definitions = Definitions(node, shelf, findings, winner=winner.holder, specific=specific)
        self._devices = DeviceLines(node, shelf, findings, common=common)

    def read_all(self, step: FenceStep, names: list[str], *, place: tuple[str, str]) -> tuple[Method, ...]:
        """Those that can be read; what is wrong with the others is among the findings."""
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

    def _of_cluster(self, step: FenceStep, method: Definition, own: OwnMethod) -> Method:
        return Method(
            name=method.name,
            action=own.action,
            template=method.template,
            parameters=self._told(method, own, method.parameters),
            delay=self._delay(method),
            timeout=self._timeout(method, LONGEST_METHOD),
            tries=self._tries(step, method),
        )

    def _of_instance(self, step: FenceStep, method: Definition, own: OwnMethod) -> Method:
        try:
            driver, takes, implied = instance_driver(self._node, method, self._common)
        except UnknownInstanceError as error:
            return self._of_unknown_instance(method, own, error)
        found = self._device(step, method, driver, takes, implied=implied)
        given = found.device.parameters if found.device is not None else {}
        if missing := [name for name in own.required if name not in given]:
            expected = "one of its parameters" if missing[0] in takes.names else f"another method: {driver} can't do this"
            raise method.refuse(f"{method.name} needs {', '.join(missing)}; expected {expected}")
        return replace(found, action=own.action, driver=driver)

    def _of_unknown_instance(self, method: Definition, own: OwnMethod, error: UnknownInstanceError) -> Method:
        """To be shown all the same. A Node that is there and says nothing is an error; one that is not there may yet say it."""
        tell = self._findings.refuse if self._node.uid else self._findings.warn
        tell(error.subject, error.field, error.problem)
        nowhere = PowerDevice(driver=INSTANCE, endpoint=f"{INSTANCE} of Node/{self._node.name}")
        return Method(name=method.name, action=own.action, driver=INSTANCE, template=method.template, device=nowhere)

    def _of_device(self, step: FenceStep, method: Definition) -> Method:
        takes = known_agent(method.agent)
        if isinstance(takes, str):
            line = method.control.get("agent_name")
            raise line.refuse(takes) if line is not None else method.refuse(takes)
        driver = driver_of(method.agent)
        action = self._action(step, method, takes)
        found = self._device(step, method, driver, takes)
        storage = self._storage(step, method, takes)
        return replace(found, action=action, driver=driver, fabric=takes.fabric, storage=storage)

    def _device(
        self,
        step: FenceStep,
        method: Definition,
        driver: str,
        takes: DriverParameters,
        *,
        implied: Mapping[str, str] | None = None,
    ) -> Method:
        """The device of a method, as a method that has yet to get its action."""
        delay, timeout = self._delay(method), self._timeout(method, LONGEST_OFF)
        site = self._site(method)
        found = self._devices.read(method, driver, takes, implied=implied, site=site, delay=delay, timeout=timeout)
        return Method(
            name=method.name,
            action=MethodAction.OFF,
            template=method.template,
            parameters=found.written,
            device=found.device,
            level=self._level(step, method),
            delay=delay,
            timeout=timeout,
            tries=self._tries(step, method),
        )

    def _action(self, step: FenceStep, method: Definition, takes: DriverParameters) -> MethodAction:
        line = method.control.get("action")
        if line is None:
            # What agents do by themselves where nothing is said: reboot, or off for a switch port.
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

    def _storage(self, step: FenceStep, method: Definition, takes: DriverParameters) -> CutStorage:
        """The volumes to which the path is the node's only way: their pods may be freed once it is cut."""
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

    def _told(self, method: Definition, own: OwnMethod, lines: Mapping[str, Line]) -> dict[str, str]:
        told = {}
        for key, line in lines.items():
            if key not in own.parameters:
                expected = f"expected one of {', '.join(own.parameters)}" if own.parameters else "it takes none"
                raise line.refuse(f"is not a parameter of {method.agent}; {expected}")
            told[key] = line.filled_in(self._node)
            if not own.parameters[key].takes(told[key]):
                raise line.refuse(f"expected {own.parameters[key].value}, got {shown(told[key])}")
        if missing := [key for key in own.required if key not in told]:
            raise method.refuse(f"{method.name} needs {', '.join(missing)}")
        return told

    def _delay(self, method: Definition) -> timedelta:
        line = method.control.get("delay")
        return seconds(line, maximum=LONGEST_DELAY) if line is not None else timedelta(0)

    def _timeout(self, method: Definition, longest: timedelta) -> timedelta | None:
        line = method.control.get("timeout")
        return seconds(line, minimum=1, maximum=longest) if line is not None else None

    def _tries(self, step: FenceStep, method: Definition) -> int | None:
        line = method.control.get("tries")
        if line is None:
            return None
        if step is FenceStep.POWER_MANAGEMENT:
            raise line.refuse(f"how often power management is tried is giveup_retries in {NAME}")
        return whole_number(line, minimum=1, maximum=MOST_TRIES)

    def _level(self, step: FenceStep, method: Definition) -> int:
        line = method.control.get("level")
        if line is None:
            return 1
        if step is not FenceStep.POWER_MANAGEMENT:
            raise line.refuse("only power management has levels")
        return whole_number(line, minimum=1, maximum=MOST_LEVELS)

    def _site(self, method: Definition) -> str:
        line = method.control.get("site")
        if line is None:
            return "default"
        if _SITE.fullmatch(line.value) is None:
            raise line.refuse("expected lower-case letters, digits and dashes")
        return line.value
