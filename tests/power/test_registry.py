"""From a device of a plan to its driver: what is refused, and that the refusal says what was expected."""

from __future__ import annotations

import inspect
import re

import pytest

from activities.errors import ErrorType
from activities.power.driver import DeviceCredentials, PowerError
from activities.power.registry import driver_for, factory_of
from policy.fence import drivers as power_drivers
from policy.fence.drivers import DRIVER_PARAMETERS
from policy.fence.drivers.contract import ParameterError
from policy.fence.plan import PowerDevice
from tests.power.targets import endpoint_of

CREDENTIALS = DeviceCredentials(values={"username": "fencer", "password": "k3p-my-s3cret"})


def test_an_unknown_driver_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(PowerError, match=r"'ipmy' is not known: expected one of .*ipmi") as caught:
        driver_for(PowerDevice(driver="ipmy", endpoint="ipmy://x"), CREDENTIALS)
    assert caught.value.type is ErrorType.INVALID_CONFIG


def test_parameters_that_lead_to_another_device_than_the_pinned_one_are_refused() -> None:
    """S9."""
    device = PowerDevice(driver="ipmi", endpoint="ipmi://10.0.0.7:623", parameters={"ip": "10.0.0.8"})
    with pytest.raises(PowerError, match=r"ipmi://10.0.0.7:623: .* lead to ipmi://10.0.0.8:623") as caught:
        driver_for(device, CREDENTIALS)
    assert caught.value.type is ErrorType.TARGET_CHANGED


@pytest.mark.parametrize(
    ("driver", "username", "password"),
    [
        ("ipmi", "", "secret"),
        ("ipmi", "fencer", ""),
        ("ipmi", "a-name-of-17-byte", "secret"),
        ("ipmi", "fencer", "s" * 21),
        ("redfish", "", "secret"),
        ("redfish", "fencer", ""),
        ("redfish", "fen:cer", "secret"),
    ],
)
def test_credentials_that_the_protocol_cannot_carry_are_refused_without_showing_them(
    driver: str, username: str, password: str
) -> None:
    """S12: a BMC would only say 'wrong password'."""
    parameters = {"ip": "10.0.0.7"}
    device = PowerDevice(driver=driver, endpoint=endpoint_of(driver, parameters), parameters=parameters)
    with pytest.raises(PowerError, match=r"expected 1 to (16|20)|redfish: the (username|password)") as caught:
        driver_for(device, DeviceCredentials(values={"username": username, "password": password}))
    assert caught.value.type is ErrorType.INVALID_CONFIG
    for secret in (username, password):
        assert not secret or secret not in str(caught.value)


@pytest.mark.parametrize(
    ("driver", "name", "value"),
    [
        ("ipmi", "password", "k3p\n"),
        ("redfish", "username", "k3p\r\nX: y"),
        ("ec2", "session-token", "k3p\nX: y"),
        ("fence_virsh", "username", "-oProxyCommand=k3p"),
        ("fence_virsh", "password", "k3p\nssh_options=-oX"),
    ],
)
def test_a_credential_that_is_more_than_a_value_is_refused_by_its_key(driver: str, name: str, value: str) -> None:
    """S12, S41: Secrets are read by the worker alone, so it alone can refuse what they say."""
    parameters = {"region": "us-east-1", "instance": "i-0abc"} if driver == "ec2" else {"ip": "10.0.0.7"}
    parameters |= {"plug": "vm"} if driver == "fence_virsh" else {}
    device = PowerDevice(driver=driver, endpoint=endpoint_of(driver, parameters), parameters=parameters)
    with pytest.raises(PowerError, match=f"credential '{name}': expected ") as caught:
        driver_for(device, DeviceCredentials(values={name: value}))
    assert caught.value.type is ErrorType.INVALID_CONFIG
    assert "k3p" not in str(caught.value)


def test_credentials_do_not_show_themselves() -> None:
    """S12."""
    assert repr(CREDENTIALS) == str(CREDENTIALS) == "DeviceCredentials()"


def test_a_plan_may_name_every_driver_that_there_is_and_no_other() -> None:
    written = re.findall(r'case "(\w+)"', inspect.getsource(factory_of))
    assert frozenset(written) == frozenset(power_drivers.DRIVER_PARAMETERS)
    assert len({type(factory_of(name)) for name in written}) == len(written)


# The parameters of devices: one spelling of each endpoint, the same for plan and driver, and named where they are bad.

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
