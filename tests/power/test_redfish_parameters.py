"""The parameters of a Redfish device: one spelling of its endpoint, safe unless asked otherwise, and named where they are bad."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.errors import ErrorType
from activities.power.driver import DeviceCredentials
from activities.power.errors import PowerError
from activities.power.registry import driver_for
from policy.fence.drivers import parameters_of
from policy.fence.drivers.contract import ParameterError
from policy.fence.drivers.redfish import NAMES, REDFISH, redfish_address
from policy.fence.plan import PowerDevice
from policy.values.errors import PolicyError
from tests.policy.builders import a_node
from tests.policy.fencing_builders import plan_of_template
from tests.power.targets import endpoint_of

ONE = "/redfish/v1/Systems/1"


@pytest.mark.parametrize(
    ("parameters", "endpoint"),
    [
        ({"ip": "10.0.0.7"}, "redfish://10.0.0.7:443"),
        ({"ip": "10.0.0.7", "system": "1"}, f"redfish://10.0.0.7:443{ONE}"),
        ({"ip": "10.0.0.7", "system": ONE}, f"redfish://10.0.0.7:443{ONE}"),
        ({"ip": "10.0.0.7", "system": f"{ONE}/"}, f"redfish://10.0.0.7:443{ONE}"),
        (
            {"ip": "BMC-7.Example.org", "system": "System.Embedded.1"},
            "redfish://bmc-7.example.org:443/redfish/v1/Systems/System.Embedded.1",
        ),
        ({"ip": "FE80:0::1", "ipport": "8443"}, "redfish://[fe80::1]:8443"),
        ({"ip": "10.0.0.7", "scheme": "http"}, "redfish://10.0.0.7:80"),
        ({"ip": "10.0.0.7", "scheme": "http", "ipport": "8000"}, "redfish://10.0.0.7:8000"),
        ({"ip": "10.0.0.7", "ssl-insecure": "1"}, "redfish://10.0.0.7:443"),
        ({"ip": "10.0.0.7", "ca-file": "/etc/bmc/ca.pem"}, "redfish://10.0.0.7:443"),
    ],
)
def test_an_endpoint_has_one_spelling(parameters: dict[str, str], endpoint: str) -> None:
    """S9: what is pinned can be compared, and policy and driver say the same."""
    assert REDFISH.endpoint(parameters) == endpoint == endpoint_of("redfish", parameters)


@pytest.mark.parametrize(
    ("parameters", "parameter", "says"),
    [
        ({}, "ip", "expected the address or name of the Redfish service, got nothing"),
        ({"ip": "10.0.0.7/redfish"}, "ip", "expected an IP address or a host name"),
        ({"ip": "10.0.0.7", "ipport": "0"}, "ipport", "from 1 to 65535"),
        ({"ip": "10.0.0.7", "scheme": "HTTPS"}, "scheme", "expected https or http, got 'HTTPS'"),
        ({"ip": "10.0.0.7", "ssl-insecure": "please"}, "ssl-insecure", "expected true or false, got 'please'"),
        ({"ip": "10.0.0.7", "ca-file": "ca.pem"}, "ca-file", "expected the absolute path of a file on the power worker"),
        ({"ip": "10.0.0.7", "ca-file": "/ca.pem", "ssl-insecure": "true"}, "ca-file", "one or the other"),
        ({"ip": "10.0.0.7", "ca-file": "/ca.pem", "scheme": "http"}, "ca-file", "one or the other"),
        ({"ip": "10.0.0.7", "ssl": "1"}, "ssl", "is not known: expected one of ip, ipport, system"),
        *(
            ({"ip": "10.0.0.7", "system": value}, "system", "expected the id of a system or its path below /redfish/v1")
            for value in ("", "/", "..", ".", "/redfish/v1", "/redfish/v1/Systems/..", "/redfish/v1/Systems//1", "/Systems/1")
        ),
        *(
            ({"ip": "10.0.0.7", "system": value}, "system", "expected the id")
            for value in ("a/b", "1?x=y", "1#x", "1\r\nX: y", "http://other/redfish/v1/Systems/1", "%31", "é")
        ),
    ],
)
def test_parameters_that_cannot_be_used_are_named(parameters: dict[str, str], parameter: str, says: str) -> None:
    with pytest.raises(ParameterError) as caught:
        REDFISH.endpoint(parameters)
    assert caught.value.parameter == parameter
    assert says in caught.value.problem
    with pytest.raises(PowerError, match="redfish: parameter") as refused:
        endpoint_of("redfish", parameters)
    assert refused.value.type is ErrorType.INVALID_CONFIG


def test_certificates_are_verified_and_tls_is_spoken_unless_asked_otherwise() -> None:
    """S12."""
    address = redfish_address({"ip": "10.0.0.7"})
    assert (address.scheme, address.verify, address.ca_file) == ("https", True, None)
    assert not redfish_address({"ip": "10.0.0.7", "ssl-insecure": "true"}).verify
    assert redfish_address({"ip": "10.0.0.7", "ssl-insecure": "0"}).verify


@given(system=st.text(alphabet="aZ1./:_-~@%? \n", min_size=1, max_size=12))
def test_a_system_leads_to_one_path_below_the_service_or_to_none(system: str) -> None:
    """S9: nothing that a server could read as another path."""
    try:
        path = redfish_address({"ip": "10.0.0.7", "system": system}).system
    except ParameterError:
        return
    assert path is not None
    segments = path.split("/")
    assert segments[:3] == ["", "redfish", "v1"]
    assert all(segment and not segment.startswith(".") for segment in segments[1:])
    assert not set(path) & set("%? \n")
    assert redfish_address({"ip": "10.0.0.7", "system": path}).system == path


@pytest.mark.parametrize(("username", "password"), [("", "k3p-my-s3cret"), ("fencer", ""), ("fen:cer", "k3p-my-s3cret")])
def test_credentials_that_cannot_be_used_are_refused_without_showing_them(username: str, password: str) -> None:
    """S12."""
    device = PowerDevice(driver="redfish", endpoint="redfish://10.0.0.7:443", parameters={"ip": "10.0.0.7"})
    with pytest.raises(PowerError, match=r"redfish: the (username|password)") as caught:
        driver_for(device, DeviceCredentials(values={"username": username, "password": password}))
    assert caught.value.type is ErrorType.INVALID_CONFIG
    for secret in (username, password):
        assert not secret or secret not in str(caught.value)


def template(**device: object) -> dict[str, object]:
    power: list[dict[str, Any]] = [{"driver": "redfish", "secretRef": {"name": "bmc"}} | device]
    return {
        "apiVersion": "nodewarden.io/v1alpha1",
        "kind": "FencingTemplate",
        "metadata": {"name": "rack", "namespace": "nodewarden"},
        "spec": {"template": {"spec": {"power": power}}},
    }


def test_one_service_may_have_all_machines_where_the_node_says_which() -> None:
    """S10: the system identifies, however many share the address."""
    shared = template(parameters={"ip": "10.0.0.7", "system": "{{ .NodeName }}"})
    (device,) = plan_of_template(shared, a_node("node-1")).devices
    assert device.endpoint == "redfish://10.0.0.7:443/redfish/v1/Systems/node-1"


def test_a_shared_address_alone_identifies_nobody() -> None:
    """S10: also not together with the same system for all."""
    with pytest.raises(PolicyError, match="nothing identifies the device of node node-1: expected one of ip, ipport, system"):
        plan_of_template(template(parameters={"ip": "10.0.0.7", "system": "1"}), a_node("node-1"))


def test_two_spellings_of_one_system_are_one_device() -> None:
    """S9: a copying mistake would switch off the wrong one."""
    by_node = {"node-1": {"system": "1"}, "node-2": {"system": f"{ONE}/"}}
    with pytest.raises(PolicyError, match="is the device of node node-1 too"):
        plan_of_template(template(parameters={"ip": "10.0.0.7"}, nodeParameters=by_node), a_node("node-1"))


def test_a_password_has_no_place_in_a_template() -> None:
    """S12."""
    with pytest.raises(PolicyError, match="is a credential") as caught:
        plan_of_template(template(parameters={"ip": "10.0.0.7", "password": "k3p-my-s3cret"}), a_node("node-1"))
    assert "k3p-my-s3cret" not in str(caught.value)
    takes = parameters_of("redfish")
    assert takes is not None
    assert takes.names == NAMES
    assert takes.needed <= takes.secret
