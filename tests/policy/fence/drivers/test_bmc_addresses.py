"""How a BMC is reached by IPMI and Redfish: what their parameters may say, and what it means."""

from __future__ import annotations

import pytest

from policy.fence.drivers import parameters_of
from policy.fence.drivers.bmc import ipmi_address, redfish_address
from policy.fence.drivers.contract import ParameterError


@pytest.mark.parametrize(("written", "cipher"), [({}, None), ({"cipher": "3"}, 3), ({"cipher": "17"}, 17)])
def test_a_cipher_suite_is_the_one_that_is_written(written: dict[str, str], cipher: int | None) -> None:
    assert ipmi_address({"ip": "10.0.0.7", **written}).cipher == cipher


@pytest.mark.parametrize(
    "written",
    [
        {"colour": "red"},
        {"scheme": "ftp"},
        {"ca-file": "/a/../b"},
        {"ca-file": "a"},
        {"ca-file": "/a", "scheme": "http"},
        {"ca-file": "/a", "ssl-insecure": "true"},
    ],
    ids=str,
)
def test_what_a_redfish_service_is_not_told_is_refused_by_name(written: dict[str, str]) -> None:
    with pytest.raises(ParameterError) as refused:
        redfish_address({"ip": "10.0.0.7", **written})
    assert refused.value.parameter == next(iter(written))


def test_a_redfish_service_is_verified_unless_that_is_taken_back() -> None:
    plain = redfish_address({"ip": "10.0.0.7"})
    assert (plain.port, plain.scheme, plain.verify, plain.check_system) == (443, "https", True, True)
    assert redfish_address({"ip": "10.0.0.7", "ca-file": "/a"}).ca_file == "/a"
    assert redfish_address({"ip": "10.0.0.7", "ssl-insecure": "true", "scheme": "http"}).verify is False


@pytest.mark.parametrize("ip", ["10.0.0.010", "10.7", "167772167", "0x0a000007", "10.0.0.0x7", "7"])
@pytest.mark.parametrize("driver", ["ipmi", "redfish", "fence_ipmilan"])
def test_a_number_that_a_resolver_takes_for_another_address_is_none(driver: str, ip: str) -> None:
    """S9, S39: who pads octets with zeros means 10.0.0.10, and the C library connects to 10.0.0.8, another machine's BMC."""
    takes = parameters_of(driver)
    assert takes is not None
    with pytest.raises(ParameterError, match=r"ip: expected an IP address or a host name"):
        takes.endpoint({"ip": ip})
    assert takes.endpoint({"ip": "bmc-7.rack3x"})


@pytest.mark.parametrize("driver", ["ipmi", "redfish", "fence_ipmilan"])
def test_an_address_has_one_spelling_also_as_ipv6(driver: str) -> None:
    """S39: two nodes may name one BMC in two spellings, and neither is the other's victim."""
    takes = parameters_of(driver)
    assert takes is not None
    assert takes.endpoint({"ip": "::ffff:10.0.0.7"}) == takes.endpoint({"ip": "10.0.0.7"})
