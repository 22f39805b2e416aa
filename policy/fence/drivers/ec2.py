"""EC2 instances: `region` and `instance`, which a Node's providerID usually gives, and optionally an endpoint and a quarantine.

The worker's own identity (an instance profile, a pod's role) is enough; keys of an IAM user come from a reference.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass

from policy.fence.drivers.contract import HOST, DriverParameters, ParameterError, is_under

AMAZONS = ("amazonaws.com", "amazonaws.com.cn", "api.aws", "api.amazonwebservices.com.cn", "amazonaws.eu")
PARAMETERS = ("region", "instance", "plug", "endpoint-url", "quarantine-group")
ACCESS_KEY, SECRET_KEY, SESSION_TOKEN = "access-key-id", "secret-access-key", "session-token"

# A region ends with its first number (us-east-1, us-gov-west-1, eusc-de-east-1).
_REGION = r"[a-z]{2,8}(?:-[a-z]{1,16}){1,3}-[0-9]{1,2}"
_INSTANCE = r"i-[0-9a-f]{3,32}"
_GROUP = re.compile(r"sg-[0-9a-f]{3,32}")

# Without a user, a query or a fragment: they have no meaning here, and a password in one would be kept in plans.
_URL = re.compile(
    rf"(?P<scheme>https?)://(?P<host>{HOST.pattern}|\[[0-9A-Fa-f:.]{{2,45}}\])(?::(?P<port>[0-9]{{1,5}}))?(?:/[A-Za-z0-9._~/-]*)?"
)

# A zone is its region and a letter (us-east-1a; an Outpost is in one of those), or its region and a place: us-west-2-lax-1a
# (local zone), us-east-1-wl1-bos-wlz-1 and eu-central-1-wl1-ber-wlz1 (wavelength zones).
_PROVIDER_ID = re.compile(rf"aws:///(?P<region>{_REGION})(?:[a-z]|(?:-[a-z0-9]{{1,16}}){{1,6}})/(?P<instance>{_INSTANCE})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ec2Parameters:
    """One instance, and how to reach and to cut it off. endpoint_url: None for the region's own."""

    region: str
    instance: str
    endpoint_url: str | None = None
    quarantine_group: str | None = None

    @property
    def endpoint(self) -> str:
        """The instance in the one spelling used for pinning. Names of regions are unique over all of AWS's partitions."""
        return f"ec2://{self.region}/{self.instance}"

    @property
    def api_is_amazons(self) -> bool:
        """Whether the API is Amazon's own, VPC endpoints of it included."""
        return self.endpoint_url is None or is_under(self.endpoint_url, AMAZONS)

    @classmethod
    def parse(cls, parameters: Mapping[str, str]) -> Ec2Parameters:
        """From the parameters of a device. Raises ParameterError."""
        for name in parameters:
            if name not in PARAMETERS:
                raise ParameterError(name, f"is not known: expected one of {', '.join(PARAMETERS)}")
        group = parameters.get("quarantine-group")
        if group is not None and _GROUP.fullmatch(group) is None:
            raise ParameterError(
                "quarantine-group", f"expected the id of a security group like sg-0123456789abcdef0, got {group!r}"
            )
        return cls(
            region=_matching(parameters, "region", _REGION, "a region like us-east-1"),
            instance=_instance(parameters),
            endpoint_url=_url(parameters["endpoint-url"]) if "endpoint-url" in parameters else None,
            quarantine_group=group,
        )


def _instance(parameters: Mapping[str, str]) -> str:
    name = "plug" if "plug" in parameters and "instance" not in parameters else "instance"
    instance = _matching(parameters, name, _INSTANCE, "an instance id like i-0123456789abcdef0")
    if parameters.get("plug", instance) != instance:
        raise ParameterError("plug", f"expected the same as 'instance' ({instance}) or nothing, got {parameters['plug']!r}")
    return instance


def _matching(parameters: Mapping[str, str], name: str, pattern: str, expected: str) -> str:
    value = parameters.get(name, "")
    if re.fullmatch(pattern, value) is None:
        raise ParameterError(name, f"expected {expected}, got {repr(value) if value else 'nothing'}")
    return value


def _url(text: str) -> str:
    """Over plain HTTP anyone on the network path reads the session token and can replay a signed command."""
    url = _URL.fullmatch(text)
    usable = url is not None and (url["port"] is None or 0 < int(url["port"]) < 65536)
    if url is None or not usable or not (url["scheme"] == "https" or _is_loopback(url["host"].strip("[]"))):
        raise ParameterError("endpoint-url", f"expected a URL like https://host:port, or http:// on the loopback, got {text!r}")
    return text.rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _from_provider_id(provider_id: str) -> Mapping[str, str]:
    match = _PROVIDER_ID.fullmatch(provider_id)
    return match.groupdict() if match is not None else {}


EC2 = DriverParameters(
    names=PARAMETERS,
    # Not the region: a whole cluster shares it.
    identifying=frozenset({"instance", "plug"}),
    secret=frozenset({ACCESS_KEY, SECRET_KEY, SESSION_TOKEN}),
    endpoint=lambda parameters: Ec2Parameters.parse(parameters).endpoint,
    from_provider_id=_from_provider_id,
)
