"""The `power` part of a template, resolved for one node: which devices feed it, and how each is told apart from its neighbours'.

No device is accepted unless something that *identifies* the node's own plug came from node-specific configuration, a value
with the node's name in it, or the node's providerID (S10): a shared address alone would switch off whoever it happens to be.
Values may contain `{{ .NodeName }}` and `{{ .ProviderID }}`. What a driver can be told is `power_drivers/`, speaking to devices
`activities/power/`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from policy.credential_names import names_a_credential
from policy.fields import Fields
from policy.nodes import NodeView
from policy.plan import CredentialKind, CredentialRef, PowerDevice
from policy.power_drivers import canonical, parameters_of, unknown
from policy.power_drivers.contract import DriverParameters, ParameterError
from policy.variables import VariableError, fill_in, identifies, with_node_name

DEVICE_FIELDS = ("driver", "site", "parameters", "nodeParameters", "secretRef")
SECRET_FIELDS = ("name", "namespace", "usernameKey", "passwordKey")

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


class DeviceReader:
    """Reads devices for one node; `namespace` is the template's, where its secrets live unless they say otherwise."""

    __slots__ = ("_namespace", "_node")

    def __init__(self, *, node: NodeView, namespace: str) -> None:
        self._node = node
        self._namespace = namespace

    def read(self, spec: Fields, name: str) -> tuple[PowerDevice, ...]:
        """All devices that feed the node: a list, or a single one without a list round it."""
        found: dict[str, PowerDevice] = {}
        for fields in spec.each(name, single=True):
            device = self._device(fields)
            if device.endpoint in found:
                # Two entries for one plug would count one reading twice where proof needs each of k devices (S4).
                raise fields.refuse("parameters", f"{device.endpoint} is listed twice for node {self._node.name}")
            found[device.endpoint] = device
        if not found:
            raise spec.refuse(name, "expected at least one power device: nothing executed is never success")
        return tuple(found.values())

    def _device(self, fields: Fields) -> PowerDevice:
        fields.only(*DEVICE_FIELDS)
        driver = canonical(_name(fields, "driver", also="_"))
        takes = parameters_of(driver)
        if takes is None:
            raise fields.refuse("driver", unknown(driver))
        if takes.fabric:
            raise fields.refuse("driver", f"{driver} cuts a path and leaves the machine running: expected a power device")
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
        if not self._identified(takes, written, own):
            raise fields.refuse(
                f"nodeParameters.{self._node.name}",
                f"nothing identifies the device of node {self._node.name}: expected one of "
                f"{', '.join(sorted(takes.identifying))} here, or one in parameters with {{{{ .NodeName }}}} "
                "or {{ .ProviderID }} in its value",
            )
        parameters = {key: self._rendered(fields, places[key], value) for key, value in written.items()}
        try:
            endpoint = takes.endpoint(parameters)
        except ParameterError as error:
            raise fields.refuse(places.get(error.parameter, f"parameters.{error.parameter}"), error.problem) from error
        self._refuse_a_neighbours_endpoint(fields, takes, endpoint, shared, by_node)
        secret = self._secret(fields)
        if takes.needed and secret is None:
            raise fields.refuse("secretRef", f"expected the Secret with user and password, which {driver} needs, got nothing")
        return PowerDevice(
            driver=driver,
            endpoint=endpoint,
            parameters=parameters,
            credentials=(secret,) if secret is not None else (),
            site=_name(fields, "site", "default"),
        )

    def _identified(self, takes: DriverParameters, written: Mapping[str, str], own: Mapping[str, str]) -> bool:
        return any(key in takes.identifying and (key in own or identifies(value)) for key, value in written.items())

    def _rendered(self, fields: Fields, field: str, value: str) -> str:
        try:
            return fill_in(value, self._node)
        except VariableError as error:
            raise fields.refuse(field, str(error)) from error

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
            if found == endpoint:
                raise fields.refuse(f"nodeParameters.{other}", f"{endpoint} is the device of node {self._node.name} too")

    def _secret(self, fields: Fields) -> CredentialRef | None:
        if not fields.has("secretRef"):
            return None
        reference = fields.within("secretRef")
        reference.only(*SECRET_FIELDS)
        return CredentialRef(
            kind=CredentialKind.SECRET,
            name=self._rendered(reference, "name", reference.text("name")),
            namespace=reference.text("namespace", self._namespace),
            keys={
                "username": reference.text("usernameKey", "username"),
                "password": reference.text("passwordKey", "password"),
            },
        )


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
