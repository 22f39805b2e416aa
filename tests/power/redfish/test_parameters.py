"""The parameters of a Redfish device: one spelling of its endpoint, safe unless asked otherwise, and named where they are bad."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.fence.drivers.bmc import redfish_address
from policy.fence.drivers.contract import ParameterError


def test_a_fingerprint_is_the_sha_256_of_a_certificate_and_stands_alone() -> None:
    """S41."""
    first, second = "0A" * 32, ":".join(["b1"] * 32)
    pinned = redfish_address({"ip": "10.0.0.7", "tls-fingerprint": f"{first}, {second}"})
    assert pinned.fingerprints == ("0a" * 32, "b1" * 32)
    for bad in ("", "0a" * 20, "0a" * 32 + ",", "0g" * 32, "0a:" + "0a" * 31, ",".join(["0a" * 32] * 5)):
        with pytest.raises(ParameterError, match="SHA-256"):
            redfish_address({"ip": "10.0.0.7", "tls-fingerprint": bad})
    for beside in ({"scheme": "http"}, {"ssl-insecure": "true"}, {"ca-file": "/ca.pem"}):
        with pytest.raises(ParameterError, match="alone"):
            redfish_address({"ip": "10.0.0.7", "tls-fingerprint": first} | beside)


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
