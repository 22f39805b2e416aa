"""How a BMC is reached by IPMI and Redfish: what their parameters may say, and what it means."""

from __future__ import annotations

import pytest

from policy.fence.drivers.contract import ParameterError
from policy.fence.drivers.ipmi import ipmi_address
from policy.fence.drivers.redfish import redfish_address


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
