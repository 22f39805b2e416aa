"""Our own fence configuration: `FencingTemplate` and `FenceConfig` (nodewarden.io/v1alpha1), resolved here for one node.

The result is a typed `FenceConfig` (`config.py`) without secrets. Anything doubtful is refused: a template is read when a node is
about to lose its power, and then a guess is dangerous. The sections: the devices of a node, the spec that both kinds share,
`FencingTemplate`, the object `FenceConfig`. `activities/cluster/live/plans.py` reads the objects; the schemas that an API server
checks beforehand are in `deploy/crds/`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

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
    OWN_METHODS,
    FenceConfig,
    FenceStep,
    Method,
    MethodAction,
    OwnMethod,
    VariableError,
    fill_in,
    has_variable,
    identifies,
    with_node_name,
)
from policy.fence.drivers import (
    DRIVER_PARAMETERS,
    DeviceIndex,
    canonical_driver,
    parameters_of,
    same_device,
    unknown_driver,
)
from policy.fence.drivers.contract import DriverParameters, ParameterError, names_a_credential, unidentified
from policy.fence.plan import CredentialKind, CredentialRef, CutStorage, FencingPlan, Freeing, PowerDevice, problem_of_place
from policy.fence.plan_compiler import KDUMP_TIMES, judge
from policy.objects.nodes import NodeView
from policy.values.errors import PolicyError, shown
from policy.values.fields import Fields
from policy.values.object_refs import ObjectRef
from policy.values.selectors import Selector, parse_selector

# The devices of one node: which ones feed it, and what distinguishes each from its neighbours'.
#
# No device is accepted unless something that *identifies* the node's own plug came from node-specific configuration, a value with
# the node's name in it, or the node's providerID (S10): a shared address alone could switch off any machine. Values may contain
# `{{ .NodeName }}` and `{{ .ProviderID }}`. The parameters of drivers are `drivers/`; `activities/power/` speaks to devices.

DEVICE_FIELDS = (
    "name",
    "driver",
    "site",
    "parameters",
    "nodeParameters",
    "secretRef",
    "credentials",
    "delay",
    "timeout",
)
SECRET_FIELDS = ("name", "namespace", "usernameKey", "passwordKey", "keys")
CREDENTIAL_FIELDS = ("kind", "name", "namespace", "keys")

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


class _Neighbours:
    """The nodes in the `nodeParameters` of one device, by their own devices: found once for the readers of all nodes."""

    def __init__(self, takes: DriverParameters, shared: Mapping[str, str], by_node: Fields) -> None:
        self._index = DeviceIndex[str]()
        self._problem: PolicyError | None = None
        self._others = by_node.names()
        for other in self._others:
            try:
                theirs = {**shared, **_values(by_node.within(other))}
                self._index.add(other, takes.endpoint({key: with_node_name(value, other) for key, value in theirs.items()}))
            except ParameterError:
                continue  # refused when that node is read; it can't be this device
            except PolicyError as error:
                self._problem = error
                break

    def other_with(self, endpoint: str, node: str) -> str:
        """The first other node with that device, "" for none. Raises PolicyError for an entry before it that can't be read."""
        other = next((each for each in self._index.having(endpoint) if each != node), "") if self._others else ""
        if not other and self._problem is not None:
            raise self._problem.with_traceback(None)
        return other


class _OfAllNodes:
    """What one device of an object says of every node, each part read when the first node needs it."""

    __slots__ = ("by_node", "neighbours", "rest", "shared")

    def __init__(self, fields: Fields) -> None:
        self.shared = _values(fields.within_or_empty("parameters"))
        self.by_node = fields.within_or_empty("nodeParameters")
        self.neighbours: _Neighbours | None = None
        self.rest: _Rest | None = None


class _Rest(NamedTuple):
    """What a device has beside its parameters; the credentials may be a node's own."""

    credentials: tuple[CredentialRef, ...]
    site: str
    delay: timedelta
    off_timeout: timedelta | None


class DeviceReader:
    """Reads devices for one node. namespace: of the template, where its secrets live unless it names another namespace.
    known: shared by the readers of all nodes, by the place of the device and its driver."""

    __slots__ = ("_known", "_namespace", "_node")

    def __init__(self, *, node: NodeView, namespace: str, known: dict[tuple[str, str], _OfAllNodes] | None = None) -> None:
        self._node = node
        self._namespace = namespace
        self._known = known if known is not None else {}

    def read(self, spec: Fields, name: str) -> list[tuple[str, PowerDevice]]:
        """All devices that feed the node, from a list or from a single one without a list round it; each with its name, "" if it
        has none."""
        found: dict[str, tuple[str, PowerDevice]] = {}
        for fields in spec.each(name, single=True):
            fields.only(*DEVICE_FIELDS)
            device = self._device(fields, *self._driver(fields))
            if other := next((known for known in found if same_device(known, device.endpoint)), ""):
                # Two entries for one plug would count one reading twice where proof needs each of k devices (S4).
                twice = "is listed twice" if other == device.endpoint else f"is the same device as {other}, which is listed"
                raise fields.refuse("parameters", f"{device.endpoint} {twice} for node {self._node.name}")
            found[device.endpoint] = fields.text("name", ""), device
        if not found:
            raise spec.refuse(name, "expected at least one power device: nothing executed is never success")
        return list(found.values())

    def of_path(self, fields: Fields) -> PowerDevice:
        """The device that carries a path of the node: a switch port."""
        return self._device(fields, *self._driver(fields, fabric=True))

    def of_instance(self, fields: Fields) -> PowerDevice:
        """The cloud machine that the node's providerID names."""
        if fields.has("driver"):
            return self._device(fields, *self._driver(fields))
        for driver, takes in DRIVER_PARAMETERS.items():
            if takes.from_provider_id is not None and takes.from_provider_id(self._node.provider_id):
                return self._device(fields, driver, takes)
        raise fields.refuse("driver", f"no driver knows the providerID of node {self._node.name}: expected the driver's name")

    def _driver(self, fields: Fields, *, fabric: bool = False) -> tuple[str, DriverParameters]:
        driver = canonical_driver(_name(fields, "driver", also="_"))
        takes = parameters_of(driver)
        if takes is None:
            raise fields.refuse("driver", unknown_driver(driver))
        if takes.fabric and not fabric:
            raise fields.refuse("driver", f"{driver} cuts a path and leaves the machine running: expected a power device")
        if fabric and not takes.fabric:
            raise fields.refuse("driver", f"{driver} switches power: expected it in power, and here the device of a path")
        return driver, takes

    def _device(self, fields: Fields, driver: str, takes: DriverParameters) -> PowerDevice:
        at = fields.at(""), driver
        known = self._known[at] = self._known.get(at) or _OfAllNodes(fields)
        name, by_node = self._node.name, known.by_node
        own = _values(by_node.within(name)) if by_node.has(name) else {}
        # S11: inside the one template that applies as a whole, the value nearest to the node wins.
        written = {**known.shared, **own}

        def place(key: str) -> str:
            return f"nodeParameters.{name}.{key}" if key in own else f"parameters.{key}"

        for key in written:
            if key in takes.secret:
                raise fields.refuse(place(key), "is a credential: expected it in a Secret, named by secretRef")
            if key not in takes.names and not takes.any_name:
                raise fields.refuse(place(key), f"is not a parameter of {driver}; expected one of {', '.join(takes.names)}")
        given = takes.from_provider_id(self._node.provider_id) if takes.from_provider_id is not None else {}
        identified = any(key in takes.identifying and (key in own or identifies(value)) for key, value in written.items())
        if not (identified or takes.identifying & set(given)):
            raise fields.refuse(
                f"nodeParameters.{name}",
                unidentified(
                    name, takes.identifying, "here, or one in parameters with {{ .NodeName }} or {{ .ProviderID }} in its value"
                ),
            )
        parameters = {key: self._rendered(fields, place, key, value) for key, value in written.items()}
        for key, value in given.items():
            if parameters.setdefault(key, value) != value:
                raise fields.refuse(place(key), f"contradicts the providerID of node {name}, which says {value!r}")
        try:
            endpoint = takes.endpoint(parameters)
        except ParameterError as error:
            raise fields.refuse(place(error.parameter), error.problem) from error
        if known.neighbours is None:
            known.neighbours = _Neighbours(takes, known.shared, by_node)
        if other := known.neighbours.other_with(endpoint, name):
            # The same plug under two nodes is a copying mistake that would switch off the wrong machine (S9, S10).
            raise fields.refuse(f"nodeParameters.{other}", f"{endpoint} is the device of node {name} too")
        rest = known.rest or self._rest(fields, driver, takes)
        if known.rest is None and not self._fills_in(fields, "credentials", "secretRef"):
            known.rest = rest
        return PowerDevice(
            driver=driver,
            endpoint=endpoint,
            parameters=parameters,
            credentials=rest.credentials,
            site=rest.site,
            delay=rest.delay,
            off_timeout=rest.off_timeout,
        )

    def _rest(self, fields: Fields, driver: str, takes: DriverParameters) -> _Rest:
        credentials, off_timeout = self._credentials(fields, takes), takes.off_takes
        if takes.needed and not credentials:
            raise fields.refuse("secretRef", f"expected the Secret with user and password, which {driver} needs, got nothing")
        if fields.has("timeout"):
            off_timeout = fields.duration("timeout", minimum=_SECOND, maximum=LONGEST_OFF)
        site = _name(fields, "site", "default")
        return _Rest(credentials, site, fields.duration("delay", timedelta(0), maximum=LONGEST_DELAY), off_timeout)

    @staticmethod
    def _fills_in(fields: Fields, *names: str) -> bool:
        """Whether something there may differ from node to node."""
        return any(has_variable(str(fields.value(name))) for name in names if fields.has(name))

    def _rendered(self, fields: Fields, place: Callable[[str], str], key: str, value: str) -> str:
        try:
            return fill_in(value, self._node)
        except VariableError as error:
            raise fields.refuse(place(key), str(error)) from error

    def _place(self, fields: Fields, kind: CredentialKind, field: str, written: str) -> str:
        """Where a credential is, checked after the node's own values are filled in (S41)."""
        place = self._rendered(fields, str, field, written)
        if (problem := problem_of_place(kind, place, self._namespace)) is not None:
            raise fields.refuse(field, problem)
        return place

    def _credentials(self, fields: Fields, takes: DriverParameters) -> tuple[CredentialRef, ...]:
        """All references in their order: the list, then secretRef, the short form of one."""
        found = [self._credential(each) for each in fields.each("credentials")]
        if not fields.has("secretRef"):
            return tuple(found)
        reference = fields.within("secretRef")
        reference.only(*SECRET_FIELDS)
        keys = _keys(reference)
        if not keys and {"username", "password"} <= takes.secret and not takes.any_name:
            keys = {
                "username": reference.text("usernameKey", "username"),
                "password": reference.text("passwordKey", "password"),
            }
        secret = CredentialRef(
            kind=CredentialKind.SECRET,
            name=self._place(reference, CredentialKind.SECRET, "name", reference.text("name")),
            namespace=self._namespace_of(reference),
            keys=keys,
        )
        return (*found, secret)

    def _credential(self, fields: Fields) -> CredentialRef:
        fields.only(*CREDENTIAL_FIELDS)
        written = fields.text("kind", CredentialKind.SECRET.value)
        if written not in set(CredentialKind):
            raise fields.refuse("kind", f"expected one of {', '.join(CredentialKind)}, got {written!r}")
        kind, keys = CredentialKind(written), _keys(fields)
        if kind in {CredentialKind.FILE, CredentialKind.ENVIRONMENT}:
            if not keys:
                raise fields.refuse("keys", "expected a parameter and where its value is, such as password: bmc/password")
            places = {key: self._place(fields, kind, f"keys.{key}", at) for key, at in keys.items()}
            return CredentialRef(kind=kind, namespace=self._namespace, keys=places)
        return CredentialRef(
            kind=kind,
            name=self._place(fields, kind, "name", fields.text("name")),
            namespace=self._namespace_of(fields),
            keys=keys,
        )

    def _namespace_of(self, reference: Fields) -> str:
        """The template's own namespace and no other: a writer of templates in one namespace must not have the Secrets of another
        one sent to a device of their choice (S40). A cluster-scoped object, which only an administrator writes, must name it."""
        named = reference.text("namespace", self._namespace or None)
        if self._namespace and named != self._namespace:
            expected = f"expected the template's own namespace, {self._namespace}, or nothing, got {named!r}"
            raise reference.refuse("namespace", f"{expected}: copy the object there")
        return named


def _keys(fields: Fields) -> dict[str, str]:
    keys = fields.within_or_empty("keys")
    return {name: keys.text(name) for name in keys.names()}


def _values(fields: Fields) -> dict[str, str]:
    """Parameters are texts; whole numbers are accepted, too, because people write ports without quotes."""
    values: dict[str, str] = {}
    for key in fields.names():
        if names_a_credential(key):
            # The value is not shown: it may be one (S12).
            raise fields.refuse(key, "is a credential: expected it in a Secret, named by secretRef")
        value = fields.value(key)
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str) or not value.strip():
            raise fields.refuse(key, "expected a non-empty string (quote it) or a whole number")
        values[key] = value.strip()
    return values


def _name(fields: Fields, field: str, default: str | None = None, *, also: str = "") -> str:
    """A name that becomes a part of endpoints and task queues. also: a character that counts as a dash here."""
    name = fields.text(field, default)
    if _NAME.fullmatch(name.replace(also, "-") if also else name) is None:
        raise fields.refuse(field, f"expected lower-case letters, digits and dashes, got {name!r}")
    return name


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


class SpecReader:
    """Reads the configuration of any number of nodes from the object of that kind and name. namespace: of Secrets if their
    reference names none, "" if references must name one. cordon: whether isolation and recovery that are left out mean a cordon
    and its end, or nothing. Raises PolicyError for the first error that is one for every node."""

    def __init__(self, spec: Fields, *, name: str, kind: str, subject: str, namespace: str, cordon: bool) -> None:
        self._spec, self._namespace = spec, namespace
        self._known: dict[tuple[str, str], _OfAllNodes] = {}
        settings = _settings(spec)
        self._kdump = (_kdump(spec.within("kdump")),) if spec.has("kdump") else ()
        self._cordoned = (Method(name=MethodAction.CORDON.value, action=MethodAction.CORDON),) if cordon else ()
        self._uncordoned = (Method(name=MethodAction.UNCORDON.value, action=MethodAction.UNCORDON),) if cordon else ()
        self._of_all = FenceConfig(
            node="",
            name=name,
            source=kind,
            subject=subject,
            settings=settings,
            warnings=("freeing is none: what ran on the node stays bound to it",) if settings.freeing is Freeing.NONE else (),
        )

    def of(self, node: NodeView) -> FenceConfig:
        """The configuration of that node. Raises PolicyError for the first error."""
        spec, devices = self._spec, DeviceReader(node=node, namespace=self._namespace, known=self._known)
        config = replace(
            self._of_all,
            node=node.name,
            isolation=_methods(spec, "isolation", FenceStep.ISOLATION, devices, self._cordoned),
            power_management=(*self._kdump, *_power(spec, devices, self._of_all.settings.freeing)),
            recovery=_methods(spec, "recovery", FenceStep.RECOVERY, devices, self._uncordoned),
        )
        return judge(config)


def _settings(spec: Fields) -> FencingPlan:
    freeing = spec.text("freeing", Freeing.AUTOMATIC.value)
    if freeing not in set(Freeing):
        raise spec.refuse("freeing", f"expected one of {', '.join(Freeing)}, got {freeing!r}")
    return replace(
        DEFAULTS,
        freeing=Freeing(freeing),
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
        # Without any device and any path nothing would be done: the reader refuses it.
        return [devices.read(spec, "power")] if spec.has("power") or not spec.has("isolation") else []
    if spec.has("power"):
        raise spec.refuse("powerLevels", "power is written, too: expected one of them")
    found = []
    for level in spec.each("powerLevels"):
        level.only("devices")
        found.append(devices.read(level, "devices"))
    if not 1 <= len(found) <= MOST_LEVELS:
        raise spec.refuse("powerLevels", f"expected from 1 to {MOST_LEVELS} levels, got {len(found)}")
    return found


def _kdump(fields: Fields) -> Method:
    fields.only(*KDUMP_FIELDS)
    parameters = {}
    for name in KDUMP_TIMES:
        if fields.has(name):
            parameters[name] = str(int(fields.duration(name, minimum=_SECOND, maximum=_LONGEST_WINDOW).total_seconds()))
    if fields.has("trusted"):
        parameters["trusted"] = "yes" if fields.flag("trusted", default=False) else "no"
    return Method(name=MethodAction.KDUMP.value, action=MethodAction.KDUMP, parameters=parameters)


def _methods(spec: Fields, field: str, step: FenceStep, devices: DeviceReader, default: tuple[Method, ...]) -> tuple[Method, ...]:
    if not spec.has(field):
        return default
    return tuple(_method(fields, step, devices) for fields in spec.each(field))


def _method(fields: Fields, step: FenceStep, devices: DeviceReader) -> Method:
    fields.only(*METHOD_FIELDS)
    delay = fields.duration("delay", timedelta(0), maximum=LONGEST_DELAY)
    timeout = fields.duration("timeout", minimum=_SECOND, maximum=LONGEST_METHOD) if fields.has("timeout") else None
    tries = fields.whole("tries", minimum=1, maximum=MOST_TRIES) if fields.has("tries") else None
    found = _own_method(fields, step, devices) if fields.has("method") else _path_method(fields, devices)
    return replace(found, name=fields.text("name", found.name), delay=delay, timeout=timeout, tries=tries)


def _own_method(fields: Fields, step: FenceStep, devices: DeviceReader) -> Method:
    name = fields.text("method")
    own = OWN_METHODS.get(name)
    known = [name for name, each in OWN_METHODS.items() if step in each.steps]
    if own is None or step not in own.steps:
        raise fields.refuse("method", f"expected one of {', '.join(known)} in {step.value}, got {shown(name)}")
    if fields.has("action"):
        raise fields.refuse("action", f"{name} is an action of its own: leave it out")
    if own.of_instance:
        device = devices.of_instance(fields)
        if missing := [each for each in own.required if each not in device.parameters]:
            raise fields.refuse("parameters", f"{name} needs {', '.join(missing)}")
        return Method(name=name, action=own.action, driver=device.driver, parameters=device.parameters, device=device)
    for field in ("storage", *DEVICE_FIELDS):
        if field not in {"name", "parameters", "delay", "timeout"} and fields.has(field):
            raise fields.refuse(field, f"{name} acts on the cluster's objects: leave it out")
    return Method(name=name, action=own.action, parameters=_own_parameters(fields.within_or_empty("parameters"), name, own))


def _own_parameters(fields: Fields, method: str, own: OwnMethod) -> dict[str, str]:
    values = {}
    for name in fields.names():
        if name not in own.parameters:
            expected = f"expected one of {', '.join(own.parameters)}" if own.parameters else "it takes none"
            raise fields.refuse(name, f"is not a parameter of {method}; {expected}")
        value = fields.value(name)
        values[name] = str(value) if isinstance(value, int) and not isinstance(value, bool) else fields.text(name)
        if not own.parameters[name].takes(values[name]):
            raise fields.refuse(name, f"expected {own.parameters[name].value}, got {shown(value)}")
    if missing := [name for name in own.required if name not in values]:
        raise fields.refuse("", f"{method} needs {', '.join(missing)}")
    return values


def _path_method(fields: Fields, devices: DeviceReader) -> Method:
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


# `FencingTemplate`, and the other templates of our group.

KIND = "FencingTemplate"
MACHINE_DELETION = "MachineDeletionTemplate"
REBOOT = "RebootTemplate"
VOLUME_DETACHMENT = "VolumeDetachmentTemplate"
OWN_KINDS = (KIND, MACHINE_DELETION, REBOOT, VOLUME_DETACHMENT)
"""Templates that nodewarden carries out itself: a step of a ladder that names one creates no object and asks no other
controller."""


def is_fencing_template(reference: ObjectRef) -> bool:
    """Whether the reference names a FencingTemplate, in any version."""
    return reference.kind == KIND and reference.api_version.partition("/")[0] == GROUP


def is_own_template(reference: ObjectRef) -> bool:
    """Whether nodewarden itself carries out the template, instead of the controller of another kind of object."""
    return reference.kind in OWN_KINDS and reference.api_version.partition("/")[0] == GROUP


def why_untrusted(reference: ObjectRef, trusted: Collection[str]) -> str:
    """Why a FencingTemplate of that namespace does not count, "" if it does, or if the reference names another kind (S40)."""
    if not is_fencing_template(reference) or reference.namespace in trusted:
        return ""
    return f"templates count in {', '.join(filter(None, trusted)) or 'no namespace'} (setting template_namespaces)"


def read_fencing_template(obj: Mapping[str, object]) -> SpecReader:
    """What reads it for one node. Raises PolicyError naming the template, the field and what was expected."""
    metadata = Fields(obj, subject=KIND).within("metadata")
    name, namespace = metadata.text("name"), metadata.text("namespace")
    subject = f"{KIND}/{namespace}/{name}"
    fields = Fields(obj, subject=subject)
    fields.must_be(f"{GROUP}/{VERSION}", KIND)
    spec = fields.within("spec").within("template").within("spec")
    spec.only(*SPEC_FIELDS)
    return SpecReader(spec, name=name, kind=KIND, subject=subject, namespace=namespace, cordon=True)


# `FenceConfig`: how nodes are fenced, as one validated object instead of ConfigMaps. It is cluster-scoped, as Nodes are, so that
# a right in one namespace decides on no machine.
#
# If several apply to a node, the most specific holds, as a whole (S11): the one that names it, else one with a selector that
# matches it, else one for all nodes; two of the same rank are refused.

FENCE_CONFIG_KIND = "FenceConfig"
NODE_FIELDS = ("nodeName", "nodeSelector")


class FenceConfigs:
    """All FenceConfigs of a cluster, ranked for any number of nodes: by the node that each names, else by its selector."""

    def __init__(self, objects: Iterable[Mapping[str, object]]) -> None:
        self._problem: PolicyError | None = None
        self._named: defaultdict[str, list[FenceConfigReader]] = defaultdict(list)
        self._selected: list[tuple[Selector, FenceConfigReader]] = []
        self._of_all: list[FenceConfigReader] = []
        try:
            for obj in objects:
                self._rank(FenceConfigReader(obj), obj)
        except PolicyError as error:
            self._problem = error

    def holding(self, node: NodeView) -> FenceConfigReader | None:
        """The one that holds for a node, None if none does. Raises PolicyError if one can't be read, which may be the one that
        was meant, and if two have the same rank."""
        if self._problem is not None:
            raise self._problem.with_traceback(None)
        selected = [each for selector, each in self._selected if selector.matches(node.labels)]
        best = self._named.get(node.name) or selected or self._of_all
        if len(best) > 1:
            names = ", ".join(sorted(each.name for each in best))
            raise PolicyError(
                f"Node/{node.name}", FENCE_CONFIG_KIND, f"several of the same rank are about it: {names}; expected one"
            )
        return best[0] if best else None

    def _rank(self, reader: FenceConfigReader, obj: Mapping[str, object]) -> None:
        spec = Fields(obj, subject=reader.subject).within("spec")
        if spec.has("nodeName"):
            if spec.has("nodeSelector"):
                raise spec.refuse("nodeSelector", "nodeName is written, too: expected one of them")
            self._named[spec.text("nodeName")].append(reader)
        elif spec.has("nodeSelector"):
            self._selected.append((parse_selector(spec.within("nodeSelector"), []), reader))
        else:
            self._of_all.append(reader)


class FenceConfigReader:
    """One FenceConfig; what is wrong with it is among the errors of each node. Raises PolicyError where it has no name."""

    def __init__(self, obj: Mapping[str, object]) -> None:
        self.name = Fields(obj, subject=FENCE_CONFIG_KIND).within("metadata").text("name")
        self.subject = f"{FENCE_CONFIG_KIND}/{self.name}"
        self._obj = obj
        self._reader: SpecReader | None = None

    def of(self, node: NodeView) -> FenceConfig:
        try:
            if self._reader is None:
                self._reader = self._read()
            return self._reader.of(node)
        except PolicyError as error:
            why = (str(error),)
            return FenceConfig(node=node.name, name=self.name, source=FENCE_CONFIG_KIND, subject=self.subject, errors=why)

    def _read(self) -> SpecReader:
        fields = Fields(self._obj, subject=self.subject)
        fields.must_be(f"{GROUP}/{VERSION}", FENCE_CONFIG_KIND)
        spec = fields.within("spec")
        spec.only(*NODE_FIELDS, *SPEC_FIELDS)
        return SpecReader(spec, name=self.name, kind=FENCE_CONFIG_KIND, subject=self.subject, namespace="", cordon=False)
