"""From a device of a plan to its driver: what is refused, and that the refusal says what was expected."""

from __future__ import annotations

import pytest

from activities.errors import ErrorType
from activities.power.driver import DeviceCredentials, PowerError
from activities.power.registry import DRIVER_FACTORIES, driver_for
from policy.fence import drivers as power_drivers
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
    assert frozenset(DRIVER_FACTORIES) == frozenset(power_drivers.DRIVER_PARAMETERS)
