"""The `power` part of a template, resolved for one node: which devices feed it, and how each is told apart from its neighbours'.

No device is accepted unless something that *identifies* the node's own plug came from node-specific configuration, a value
with the node's name in it, or the node's providerID (S10): a shared address alone would switch off whoever it happens to be.
Values may contain `{{ .NodeName }}` and `{{ .ProviderID }}`. What a driver can be told is `drivers/`, speaking to devices
`activities/power/`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta

from policy.fence.config import LONGEST_DELAY, LONGEST_OFF
from policy.fence.drivers import DRIVER_PARAMETERS, canonical, parameters_of, same_device, unknown
from policy.fence.drivers.contract import DriverParameters, ParameterError, names_a_credential
from policy.fence.plan import CredentialKind, CredentialRef, PowerDevice, problem_of_place
from policy.fence.variables import VariableError, fill_in, identifies, with_node_name
from policy.objects.nodes import NodeView
from policy.values.fields import Fields

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

_SECOND = timedelta(seconds=1)
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


class DeviceReader:
    """Reads devices for one node; `namespace` is the template's, where its secrets live unless they say otherwise."""

    __slots__ = ("_namespace", "_node")

    def __init__(self, *, node: NodeView, namespace: str) -> None:
        self._node = node
        self._namespace = namespace

    def read(self, spec: Fields, name: str) -> tuple[PowerDevice, ...]:
        """All devices that feed the node: a list, or a single one without a list round it."""
        return tuple(device for _, device in self.read_named(spec, name))

    def read_named(self, spec: Fields, name: str) -> list[tuple[str, PowerDevice]]:
        """The same, each with the name that it was given, "" where it was given none."""
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
        """A device that carries a path of the node: a switch port."""
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
        driver = canonical(_name(fields, "driver", also="_"))
        takes = parameters_of(driver)
        if takes is None:
            raise fields.refuse("driver", unknown(driver))
        if takes.fabric and not fabric:
            raise fields.refuse("driver", f"{driver} cuts a path and leaves the machine running: expected a power device")
        if fabric and not takes.fabric:
            raise fields.refuse("driver", f"{driver} switches power: expected it in power, and here the device of a path")
        return driver, takes

    def _device(self, fields: Fields, driver: str, takes: DriverParameters) -> PowerDevice:
        shared = _values(fields.within_or_empty("parameters"))
        by_node = fields.within_or_empty("nodeParameters")
        own = _values(by_node.within(self._node.name)) if by_node.has(self._node.name) else {}
        # S11: as nearest to the node wins, value by value, inside the one template that applies as a whole.
        written = {**shared, **own}
        places = {key: f"nodeParameters.{self._node.name}.{key}" if key in own else f"parameters.{key}" for key in written}
        for key, place in places.items():
            if key in takes.secret:
                raise fields.refuse(place, "is a credential: expected it in a Secret, named by secretRef")
            if key not in takes.names and not takes.any_name:
                raise fields.refuse(place, f"is not a parameter of {driver}; expected one of {', '.join(takes.names)}")
        given = takes.from_provider_id(self._node.provider_id) if takes.from_provider_id is not None else {}
        if not (takes.identifying & set(given) or self._identified(takes, written, own)):
            raise fields.refuse(
                f"nodeParameters.{self._node.name}",
                f"nothing identifies the device of node {self._node.name}: expected one of "
                f"{', '.join(sorted(takes.identifying))} here, or one in parameters with {{{{ .NodeName }}}} "
                "or {{ .ProviderID }} in its value",
            )
        parameters = {key: self._rendered(fields, places[key], value) for key, value in written.items()}
        for key, value in given.items():
            if parameters.setdefault(key, value) != value:
                raise fields.refuse(places[key], f"contradicts the providerID of node {self._node.name}, which says {value!r}")
        try:
            endpoint = takes.endpoint(parameters)
        except ParameterError as error:
            raise fields.refuse(places.get(error.parameter, f"parameters.{error.parameter}"), error.problem) from error
        self._refuse_a_neighbours_endpoint(fields, takes, endpoint, shared, by_node)
        credentials = self._credentials(fields, takes)
        if takes.needed and not credentials:
            raise fields.refuse("secretRef", f"expected the Secret with user and password, which {driver} needs, got nothing")
        return PowerDevice(
            driver=driver,
            endpoint=endpoint,
            parameters=parameters,
            credentials=credentials,
            site=_name(fields, "site", "default"),
            delay=fields.duration("delay", timedelta(0), maximum=LONGEST_DELAY),
            off_timeout=_off_timeout(fields, takes),
        )

    def _identified(self, takes: DriverParameters, written: Mapping[str, str], own: Mapping[str, str]) -> bool:
        return any(key in takes.identifying and (key in own or identifies(value)) for key, value in written.items())

    def _rendered(self, fields: Fields, field: str, value: str) -> str:
        try:
            return fill_in(value, self._node)
        except VariableError as error:
            raise fields.refuse(field, str(error)) from error

    def _place(self, fields: Fields, kind: CredentialKind, field: str, written: str) -> str:
        """Where a credential is, held to what that may look like with the node's own words in it (S41)."""
        place = self._rendered(fields, field, written)
        if (problem := problem_of_place(kind, place, self._namespace)) is not None:
            raise fields.refuse(field, problem)
        return place

    def _refuse_a_neighbours_endpoint(
        self, fields: Fields, takes: DriverParameters, endpoint: str, shared: Mapping[str, str], by_node: Fields
    ) -> None:
        """The same plug under two nodes is a copying mistake that would switch off the wrong one (S9, S10)."""
        for other in by_node.names():
            if other == self._node.name:
                continue
            theirs = {**shared, **_values(by_node.within(other))}
            try:
                found = takes.endpoint({key: with_node_name(value, other) for key, value in theirs.items()})
            except ParameterError:
                continue  # refused when it is that node's turn; whatever it means, it is not this device
            if same_device(found, endpoint):
                raise fields.refuse(f"nodeParameters.{other}", f"{endpoint} is the device of node {self._node.name} too")

    def _credentials(self, fields: Fields, takes: DriverParameters) -> tuple[CredentialRef, ...]:
        """All references in their order: the list, then secretRef, which is the short form of one."""
        found = [self._credential(each) for each in fields.each("credentials")]
        if fields.has("secretRef"):
            found.append(self._secret(fields.within("secretRef"), takes))
        return tuple(found)

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

    def _secret(self, reference: Fields, takes: DriverParameters) -> CredentialRef:
        reference.only(*SECRET_FIELDS)
        keys = _keys(reference)
        if not keys and {"username", "password"} <= takes.secret and not takes.any_name:
            keys = {
                "username": reference.text("usernameKey", "username"),
                "password": reference.text("passwordKey", "password"),
            }
        return CredentialRef(
            kind=CredentialKind.SECRET,
            name=self._place(reference, CredentialKind.SECRET, "name", reference.text("name")),
            namespace=self._namespace_of(reference),
            keys=keys,
        )

    def _namespace_of(self, reference: Fields) -> str:
        """A template's own and no other: whoever may write templates in one namespace must not have the Secrets of another one
        sent to a device of his choice (S40). What lives in no namespace, which only an administrator writes, must say."""
        named = reference.text("namespace", self._namespace or None)
        if self._namespace and named != self._namespace:
            expected = f"expected the template's own namespace, {self._namespace}, or nothing, got {named!r}"
            raise reference.refuse("namespace", f"{expected}: copy the object there")
        return named


def _keys(fields: Fields) -> dict[str, str]:
    keys = fields.within_or_empty("keys")
    return {name: keys.text(name) for name in keys.names()}


def _off_timeout(fields: Fields, takes: DriverParameters) -> timedelta | None:
    if not fields.has("timeout"):
        return takes.off_takes
    return fields.duration("timeout", minimum=_SECOND, maximum=LONGEST_OFF)


def _values(fields: Fields) -> dict[str, str]:
    """Parameters are texts; whole numbers are taken too, as people write ports without quotes."""
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
    """Driver and site become parts of endpoints and task queues. `also`: a character that counts as a dash here."""
    name = fields.text(field, default)
    if _NAME.fullmatch(name.replace(also, "-") if also else name) is None:
        raise fields.refuse(field, f"expected lower-case letters, digits and dashes, got {name!r}")
    return name
