"""An instance of Google Compute Engine: `project`, `zone` and `instance`, which a Node's providerID gives by itself.

Optional are `plug` in place of `instance` (the fence agents' name), `api-endpoint` (a private endpoint) and `discard-local-ssd`
(true by default). Without the secret `service-account-json` the worker uses its own identity (Application Default Credentials).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from policy.fence.drivers.contract import HOST, DriverParameters, ParameterError, is_under

NAMES = ("project", "zone", "instance", "plug", "api-endpoint", "discard-local-ssd")
SERVICE_ACCOUNT = "service-account-json"

GOOGLES = ("googleapis.com",)
PUBLIC_API = "https://compute.googleapis.com"

# Ids and names only, never the numbers that the API takes for them too: a device has one spelling (S9).
_LABEL = r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?"
_DOMAIN = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)+"
_PROJECT = rf"(?:{_DOMAIN}:)?{_LABEL}"
_EXPECTED = {
    "project": (re.compile(_PROJECT), "a project's id (my-project, example.com:my-project)"),
    "zone": (re.compile(_LABEL), "the name of a zone (us-central1-a)"),
    "instance": (re.compile(_LABEL), "the name of an instance"),
    "plug": (re.compile(_LABEL), "the name of an instance"),
}
_PROVIDER_ID = re.compile(rf"gce://(?P<project>{_PROJECT})/(?P<zone>{_LABEL})/(?P<instance>{_LABEL})")
_URL = re.compile(r"(?:(?P<scheme>https?)://)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]/:?#@\s]+)(?::(?P<port>[0-9]{1,5}))?/?")


@dataclass(frozen=True, slots=True, kw_only=True)
class GceInstance:
    """One instance, and the address of its API. discard_local_ssd: whether its scratch disks are discarded when it is
    stopped."""

    project: str
    zone: str
    instance: str
    api: str = PUBLIC_API
    discard_local_ssd: bool = True

    @property
    def endpoint(self) -> str:
        """The instance, in the one spelling used for pinning: that of a providerID."""
        return f"gce://{self.project}/{self.zone}/{self.instance}"

    @property
    def api_is_plain(self) -> bool:
        """Whether the API is reached without TLS, which only an endpoint on the loopback may be."""
        return self.api.startswith("http://")

    @property
    def api_is_googles(self) -> bool:
        """Whether the API is Google's own, private endpoints of it included."""
        return is_under(self.api, GOOGLES)

    @classmethod
    def parse(cls, parameters: Mapping[str, str]) -> GceInstance:
        """From the parameters of a device. Raises ParameterError."""
        for name in parameters:
            if name not in NAMES:
                raise ParameterError(name, f"is not known: expected {', '.join(NAMES)}")
        instance, plug = parameters.get("instance"), parameters.get("plug")
        if instance is not None and plug is not None and instance != plug:
            raise ParameterError("plug", f"expected it once or the same twice: instance is {instance!r}, plug is {plug!r}")
        discard = parameters.get("discard-local-ssd", "true")
        if discard not in ("true", "false"):
            raise ParameterError("discard-local-ssd", f"expected true or false, got {discard!r}")
        return cls(
            project=_matching(parameters, "project"),
            zone=_matching(parameters, "zone"),
            instance=_matching(parameters, "plug" if instance is None and plug is not None else "instance"),
            api=_api(parameters.get("api-endpoint")),
            discard_local_ssd=discard == "true",
        )


def instance_of_provider_id(provider_id: str) -> Mapping[str, str]:
    """Project, zone and instance of a Node's `spec.providerID`; empty where it is not one of Compute Engine."""
    found = _PROVIDER_ID.fullmatch(provider_id)
    return found.groupdict() if found else {}


def _matching(parameters: Mapping[str, str], name: str) -> str:
    value = parameters.get(name, "")
    pattern, expected = _EXPECTED[name]
    if pattern.fullmatch(value) is None:
        raise ParameterError(name, f"expected {expected}, got {repr(value) if value else 'nothing'}")
    return value


def _api(url: str | None) -> str:
    """The API's address, in one spelling. A token travels there, so it is TLS for all but the loopback."""
    if url is None:
        return PUBLIC_API
    refused = ParameterError("api-endpoint", f"expected https:// and a host, with or without a port, got {url!r}")
    found = _URL.fullmatch(url)
    if found is None or (found["port"] is not None and not 0 < int(found["port"]) < 65536):
        raise refused
    host = found["host"].lower()
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        if HOST.fullmatch(host) is None:
            raise refused from None
        loopback = host == "localhost"
    else:
        loopback = address.is_loopback
        host = f"[{address}]" if address.version == 6 else str(address)
    scheme = found["scheme"] or "https"
    if scheme == "http" and not loopback:
        raise ParameterError("api-endpoint", f"expected https:// for an endpoint beyond the loopback, got {url!r}")
    return f"{scheme}://{host}" + (f":{int(found['port'])}" if found["port"] is not None else "")


_TOKEN_URI = re.compile(
    rf"(?P<scheme>https?)://(?P<host>{HOST.pattern}|\[[0-9A-Fa-f:.]{{2,45}}\])(?::[0-9]{{1,5}})?(?:/[A-Za-z0-9._~:/-]*)?"
)


def is_token_uri(url: str) -> bool:
    """Whether a service account's key may name this URL as the source of its tokens: signed requests go there over TLS, except
    on the loopback, and the URL has the usual form without user and query (S41)."""
    found = _TOKEN_URI.fullmatch(url)
    if found is None or found["scheme"] == "https":
        return found is not None
    try:
        return ipaddress.ip_address(found["host"].strip("[]")).is_loopback
    except ValueError:
        return found["host"] == "localhost"


OFF_TAKES = timedelta(seconds=150)
"""The cloud presses a hanging guest's power button first, and cuts it off only after some 90 seconds."""

GCE = DriverParameters(
    names=NAMES,
    # A project and a zone are common to many nodes: only the name tells them apart (S10).
    identifying=frozenset({"instance", "plug"}),
    secret=frozenset({SERVICE_ACCOUNT}),
    endpoint=lambda parameters: GceInstance.parse(parameters).endpoint,
    from_provider_id=instance_of_provider_id,
    off_takes=OFF_TAKES,
)
