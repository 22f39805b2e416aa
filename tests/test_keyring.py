"""Codes of a deployment's keys: for whoever has one of them, for one purpose, over exactly these facts."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

import pytest

from activities.keyring import Keyring
from policy.fence.plan import CredentialRef, PowerDevice

OLD, NEW = b"o" * 32, b"n" * 32
DEVICE = PowerDevice(
    driver="ipmi",
    endpoint="ipmi://10.0.0.7:623",
    parameters={"port": "623", "ip": "10.0.0.7"},
    credentials=(CredentialRef(name="bmc", namespace="nodewarden"),),
    delay=timedelta(seconds=5),
)
FACTS = ("prod", DEVICE, datetime(2026, 11, 24, tzinfo=UTC), None)


def test_a_code_is_for_its_purpose_and_its_facts() -> None:
    keys = Keyring([NEW])
    code = keys.sign("device", *FACTS)
    assert keys.accepts(code, "device", *FACTS)
    assert not keys.accepts(code, "act", *FACTS)
    assert not keys.accepts(code, "device", *FACTS[:-1], "")
    assert not keys.accepts(code, "device", *FACTS, None)
    assert not keys.accepts(code[:-1], "device", *FACTS)
    assert not keys.accepts("", "device", *FACTS)
    assert not keys.accepts("ü" * 64, "device", *FACTS)


@pytest.mark.parametrize(
    "changed",
    [
        {"endpoint": "ipmi://10.0.0.8:623"},
        {"driver": "redfish"},
        {"parameters": {"port": "623", "ip": "10.0.0.8"}},
        {"credentials": (CredentialRef(name="bmc", namespace="tenant"),)},
        {"credentials": ()},
        {"site": "elsewhere"},
        {"delay": timedelta(seconds=6)},
    ],
)
def test_each_field_of_a_device_is_signed(changed: dict[str, object]) -> None:
    keys = Keyring([NEW])
    assert not keys.accepts(keys.sign("device", DEVICE), "device", replace(DEVICE, **changed))  # type: ignore[arg-type]


def test_the_same_facts_in_another_shape_are_the_same() -> None:
    """What has travelled comes back as another mapping, in another order, with another zone of the same moment."""
    keys = Keyring([NEW])
    code = keys.sign("device", DEVICE)
    assert keys.accepts(code, "device", replace(DEVICE, parameters=MappingProxyType({"ip": "10.0.0.7", "port": "623"})))


def test_keys_are_changed_one_after_the_other() -> None:
    before, meanwhile, after = Keyring([OLD]), Keyring([NEW, OLD]), Keyring([NEW])
    old, new = before.sign("device", DEVICE), meanwhile.sign("device", DEVICE)
    assert meanwhile.accepts(old, "device", DEVICE)
    assert after.accepts(new, "device", DEVICE)
    assert not after.accepts(old, "device", DEVICE)


@pytest.mark.parametrize("keys", [[], [b"short"], [NEW, b""]])
def test_no_key_and_a_short_one_are_refused(keys: list[bytes]) -> None:
    with pytest.raises(ValueError, match="at least 32 bytes"):
        Keyring(keys)


def test_what_cannot_be_signed_is_said() -> None:
    with pytest.raises(TypeError):
        Keyring([NEW]).sign("device", object())
