"""Protobuf bodies of simple kinds, as kubectl sends them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.api.protobuf import UnreadableError, read
from tests.simulator.api.client import CONFIG_MAPS, Client


def _field(number: int, value: bytes) -> bytes:
    assert len(value) < 128
    return bytes([number << 3 | 2, len(value)]) + value


def _object(kind: str, raw: bytes) -> bytes:
    return b"k8s\x00" + _field(1, _field(1, b"v1") + _field(2, kind.encode())) + _field(2, raw)


def _entry(key: bytes, value: bytes) -> bytes:
    return _field(1, key) + _field(2, value)


CONFIG = _object("ConfigMap", _field(1, _field(1, b"c")) + _field(2, _entry(b"key", b"value")) + bytes([4 << 3, 1]))


def test_a_config_map_and_a_secret() -> None:
    expected = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"key": "value"}}
    assert read(CONFIG) == {**expected, "immutable": True}
    secret = read(_object("Secret", _field(1, _field(1, b"s")) + _field(2, _entry(b"p", b"x")) + _field(3, b"Opaque")))
    assert (secret["data"], secret["type"]) == ({"p": "eA=="}, "Opaque")


async def test_over_http(client: Client) -> None:
    kind = "application/vnd.kubernetes.protobuf"
    assert (await client.ask("POST", CONFIG_MAPS, raw=CONFIG, kind=kind)).status == 201
    assert (await client.get(f"{CONFIG_MAPS}/c")).document["data"] == {"key": "value"}
    for unreadable in (_object("Deployment", b""), CONFIG[:-3], b"{}"):
        assert (await client.ask("POST", CONFIG_MAPS, raw=unreadable, kind=kind)).status == 415


@given(st.binary(max_size=60))
def test_nonsense_is_refused_and_never_breaks(nonsense: bytes) -> None:
    for body in (nonsense, _object("ConfigMap", nonsense), b"k8s\x00" + nonsense):
        try:
            read(body)
        except (UnreadableError, UnicodeDecodeError):
            continue


def test_a_body_that_ends_early_is_refused() -> None:
    with pytest.raises(UnreadableError):
        read(CONFIG[:-3])
