"""The parameters of devices: one spelling of each endpoint, the same for plan and driver, and named where they are bad."""

from __future__ import annotations

import pytest

from activities.errors import ErrorType
from activities.power.driver import PowerError
from policy.fence.drivers import DRIVER_PARAMETERS
from policy.fence.drivers.contract import ParameterError
from tests.power.targets import endpoint_of

ONE = "/redfish/v1/Systems/1"
GCE = {"project": "a-project", "zone": "us-central1-a", "instance": "node-1"}


@pytest.mark.parametrize(
    ("driver", "parameters", "endpoint"),
    [
        ("ipmi", {"ip": "10.0.0.7"}, "ipmi://10.0.0.7:623"),
        ("ipmi", {"ip": "10.0.0.7", "ipport": "6301"}, "ipmi://10.0.0.7:6301"),
        ("ipmi", {"ip": "BMC-7.Example.org"}, "ipmi://bmc-7.example.org:623"),
        ("ipmi", {"ip": "FE80:0::1"}, "ipmi://[fe80::1]:623"),
        ("ipmi", {"ip": "10.0.0.7", "cipher": "17", "privilege": "operator"}, "ipmi://10.0.0.7:623"),
        ("ec2", {"region": "us-east-1", "instance": "i-0abc"}, "ec2://us-east-1/i-0abc"),
        ("redfish", {"ip": "10.0.0.7"}, "redfish://10.0.0.7:443"),
        ("redfish", {"ip": "10.0.0.7", "system": "1"}, f"redfish://10.0.0.7:443{ONE}"),
        ("redfish", {"ip": "10.0.0.7", "system": ONE}, f"redfish://10.0.0.7:443{ONE}"),
        ("redfish", {"ip": "10.0.0.7", "system": f"{ONE}/"}, f"redfish://10.0.0.7:443{ONE}"),
        (
            "redfish",
            {"ip": "BMC-7.Example.org", "system": "System.Embedded.1"},
            "redfish://bmc-7.example.org:443/redfish/v1/Systems/System.Embedded.1",
        ),
        ("redfish", {"ip": "FE80:0::1", "ipport": "8443"}, "redfish://[fe80::1]:8443"),
        ("redfish", {"ip": "10.0.0.7", "scheme": "http"}, "redfish://10.0.0.7:80"),
        ("redfish", {"ip": "10.0.0.7", "scheme": "http", "ipport": "8000"}, "redfish://10.0.0.7:8000"),
        ("redfish", {"ip": "10.0.0.7", "ssl-insecure": "1"}, "redfish://10.0.0.7:443"),
        ("redfish", {"ip": "10.0.0.7", "ca-file": "/etc/bmc/ca.pem"}, "redfish://10.0.0.7:443"),
    ],
)
def test_an_endpoint_has_one_spelling(driver: str, parameters: dict[str, str], endpoint: str) -> None:
    """S9: what is pinned can be compared, and policy and driver say the same."""
    assert DRIVER_PARAMETERS[driver].endpoint(parameters) == endpoint == endpoint_of(driver, parameters)


@pytest.mark.parametrize(
    ("driver", "parameters", "parameter", "says"),
    [
        ("ipmi", {}, "ip", "expected the address or name of the BMC, got nothing"),
        ("ipmi", {"ip": ""}, "ip", "expected the address or name of the BMC, got nothing"),
        ("ipmi", {"ip": "10.0.0.7; reboot"}, "ip", "expected an IP address or a host name, got '10.0.0.7; reboot'"),
        ("ipmi", {"ip": "10.0.0.7\n"}, "ip", "expected an IP address or a host name"),
        ("ipmi", {"ip": "-f"}, "ip", "expected an IP address or a host name"),
        ("ipmi", {"ip": "10.0.0.7", "ipport": "0"}, "ipport", "expected a number from 1 to 65535, got '0'"),
        ("ipmi", {"ip": "10.0.0.7", "ipport": "65536"}, "ipport", "expected a number from 1 to 65535"),
        ("ipmi", {"ip": "10.0.0.7", "ipport": " 623"}, "ipport", "expected a number from 1 to 65535"),
        ("ipmi", {"ip": "10.0.0.7", "ipport": "٦٢٣"}, "ipport", "expected a number from 1 to 65535"),
        ("ipmi", {"ip": "10.0.0.7", "cipher": "0"}, "cipher", "expected 3 or 17, got '0'"),
        ("ipmi", {"ip": "10.0.0.7", "privilege": "user"}, "privilege", "expected operator or administrator, got 'user'"),
        ("ipmi", {"ip": "10.0.0.7", "port": "623"}, "port", "is not known: expected one of ip, ipport, cipher, privilege"),
        ("ec2", {"instance": "i-0abc"}, "region", "expected a region like us-east-1, got nothing"),
        ("redfish", {}, "ip", "expected the address or name of the Redfish service, got nothing"),
        ("redfish", {"ip": "10.0.0.7/redfish"}, "ip", "expected an IP address or a host name"),
        ("redfish", {"ip": "10.0.0.7", "ipport": "0"}, "ipport", "from 1 to 65535"),
        ("redfish", {"ip": "10.0.0.7", "scheme": "HTTPS"}, "scheme", "expected https or http, got 'HTTPS'"),
        ("redfish", {"ip": "10.0.0.7", "ssl-insecure": "please"}, "ssl-insecure", "expected true or false, got 'please'"),
        ("redfish", {"ip": "10.0.0.7", "ca-file": "ca.pem"}, "ca-file", "expected the absolute path of a file"),
        ("redfish", {"ip": "10.0.0.7", "ca-file": "/ca.pem", "ssl-insecure": "true"}, "ca-file", "one or the other"),
        ("redfish", {"ip": "10.0.0.7", "ca-file": "/ca.pem", "scheme": "http"}, "ca-file", "one or the other"),
        ("redfish", {"ip": "10.0.0.7", "ssl": "1"}, "ssl", "is not known: expected one of ip, ipport, system"),
        *(
            ("redfish", {"ip": "10.0.0.7", "system": value}, "system", "expected the id of a system or its path")
            for value in ("", "/", "..", ".", "/redfish/v1", "/redfish/v1/Systems/..", "/redfish/v1/Systems//1", "/Systems/1")
        ),
        *(
            ("redfish", {"ip": "10.0.0.7", "system": value}, "system", "expected the id")
            for value in ("a/b", "1?x=y", "1#x", "1\r\nX: y", "http://other/redfish/v1/Systems/1", "%31", "é")
        ),
        ("gce", GCE | {"project": ""}, "project", "expected a project's id"),
        ("gce", GCE | {"project": "12345"}, "project", "got '12345'"),
        ("gce", GCE | {"project": "a/b"}, "project", "got 'a/b'"),
        ("gce", GCE | {"zone": "../x"}, "zone", "expected the name of a zone"),
        ("gce", GCE | {"instance": "Node-1"}, "instance", "expected the name of an instance, got 'Node-1'"),
        ("gce", GCE | {"instance": "node-1\n"}, "instance", "expected the name of an instance"),
        ("gce", GCE | {"plug": "node-2"}, "plug", "instance is 'node-1', plug is 'node-2'"),
        ("gce", GCE | {"discard-local-ssd": "yes"}, "discard-local-ssd", "expected true or false, got 'yes'"),
        ("gce", GCE | {"api-endpoint": "http://compute.example.org"}, "api-endpoint", "beyond the loopback"),
        ("gce", GCE | {"api-endpoint": "http://127.0.0.1.example.org"}, "api-endpoint", "beyond the loopback"),
        ("gce", GCE | {"api-endpoint": "https://user@example.org"}, "api-endpoint", "expected https:// and a host"),
        ("gce", GCE | {"api-endpoint": "https://example.org/path"}, "api-endpoint", "expected https:// and a host"),
        ("gce", GCE | {"api-endpoint": "ftp://example.org"}, "api-endpoint", "expected https:// and a host"),
        ("gce", GCE | {"api-endpoint": "https://example.org:0"}, "api-endpoint", "expected https:// and a host"),
        ("gce", GCE | {"api-endpoint": ""}, "api-endpoint", "expected https:// and a host"),
        ("gce", GCE | {"region": "us-central1"}, "region", "is not known: expected project, zone, instance"),
    ],
)
def test_parameters_that_cannot_be_used_are_named(driver: str, parameters: dict[str, str], parameter: str, says: str) -> None:
    with pytest.raises(ParameterError) as caught:
        DRIVER_PARAMETERS[driver].endpoint(parameters)
    assert caught.value.parameter == parameter
    assert says in caught.value.problem
    with pytest.raises(PowerError, match=f"{driver}: parameter '{parameter}'") as refused:
        endpoint_of(driver, parameters)
    assert refused.value.type is ErrorType.INVALID_CONFIG
    assert says in str(refused.value)
