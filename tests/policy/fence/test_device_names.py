"""Which nodes fence configuration names beside a device (S39)."""

from __future__ import annotations

from typing import Any

import pytest

from policy.fence.device_check import named_beside

OURS = ("ipmi://10.0.0.7:623",)
PLAIN = {"driver": "ipmi", "parameters": {"ip": "10.0.0.7"}}


def by_node(name: str, **values: Any) -> dict[str, Any]:
    return {"driver": "ipmi", "nodeParameters": {name: values}}


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"template": {"spec": {"power": by_node("b", ip="10.0.0.7")}}}, {"b"}),
        ({"template": {"spec": {"powerLevels": [[by_node("b", ip="10.0.0.8")], [by_node("c", ip="10.0.0.7")]]}}}, {"c"}),
        ({"power": [{**PLAIN, "nodeParameters": {"b": {"ipport": 623}, "c": {"ipport": 624}}}]}, {"b"}),
        ({"nodeName": "b", "power": [PLAIN]}, {"b"}),
        ({"power": by_node("b", ip="10.0.0.7") | {"driver": "fence_ipmilan"}}, {"b"}),
        ({"power": by_node("b", ip="10.0.0.7") | {"driver": "fence-idrac"}}, {"b"}),
        ({"power": by_node("b", ip="10.0.0.7", target="0x24") | {"driver": "fence_ipmilan"}}, set()),
        ({"nodeName": "a", "power": [PLAIN]}, set()),
        ({"power": [PLAIN]}, set()),
        ({"power": by_node("a", ip="10.0.0.7")}, set()),
        ({"power": by_node("b", ip="no address!")}, set()),
        ({"power": by_node("b", ip="10.0.0.7") | {"driver": "unknown"}}, set()),
        ({"power": {"driver": "ipmi", "parameters": "text", "nodeParameters": ["b"]}}, set()),
        ("text", set()),
    ],
)
def test_whom_an_object_names_for_the_device(spec: Any, found: set[str]) -> None:
    assert set(named_beside([{"spec": spec}], OURS, "a")) == found
