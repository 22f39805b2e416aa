"""Names of evidence that are safe whatever they are made of, objects without what may be a secret, and their story in order."""

from __future__ import annotations

from pathlib import PurePosixPath

from hypothesis import given, settings
from hypothesis import strategies as st

from policy.episode.evidence import HIDDEN, LAST_APPLIED, safe_name, timeline, without_private_keys, without_secrets

TEXTS = st.one_of(st.text(), st.text(alphabet="./\\%~\0 a", max_size=8), st.text(alphabet="a/", min_size=90, max_size=300))


@settings(max_examples=50)
@given(TEXTS)
def test_any_text_becomes_one_visible_part_of_a_path(text: str) -> None:
    name = safe_name(text)
    assert PurePosixPath(name).parts == (name,)
    assert not name.startswith(".")
    assert len(name) <= 100
    assert name.isascii()
    assert name.isprintable()


@given(TEXTS, TEXTS)
def test_two_texts_never_share_a_name(one: str, other: str) -> None:
    assert (safe_name(one) == safe_name(other)) is (one == other)


def test_an_ordinary_name_is_kept() -> None:
    assert safe_name("ip-10-0-0-7.eu-west-1.compute.internal") == "ip-10-0-0-7.eu-west-1.compute.internal"


def test_what_is_named_like_a_credential_is_not_kept() -> None:
    """S12: in a spec, in a list of variables, in first boot data and in the copy that kubectl leaves; references stay."""
    found = without_secrets(
        {
            "metadata": {
                "name": "w-7",
                "managedFields": [{"manager": "kubectl"}],
                "annotations": {LAST_APPLIED: '{"password":"hunter2"}', "node.example/zone": "a"},
            },
            "spec": {
                "bootstrap": {"data": "hunter2", "configRef": {"name": "w-7-boot"}},
                "userData": "hunter2",
                "providerSpec": {"value": {"env": [{"name": "API_TOKEN", "value": "hunter2"}], "bmc": {"password": "hunter2"}}},
                "ports": [1, 2],
            },
        }
    )
    assert "hunter2" not in str(found)
    assert found["metadata"] == {"name": "w-7", "annotations": {"node.example/zone": "a"}}
    assert found["spec"]["bootstrap"] == {"data": HIDDEN, "configRef": {"name": "w-7-boot"}}
    assert found["spec"]["ports"] == [1, 2]


def test_private_keys_are_cut_out_of_a_console_even_where_their_end_is_missing() -> None:
    key = "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----"
    assert without_private_keys(f"before\n{key}\nafter") == f"before\n-----{HIDDEN}-----\nafter"
    assert "abc" not in without_private_keys("x -----BEGIN PRIVATE KEY-----\nabc")


def test_the_timeline_tells_conditions_operations_and_events_in_their_order() -> None:
    node = {"status": {"conditions": [{"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-11-21T12:00:00Z"}]}}
    machine = {"status": {"currentStatus": {"phase": "Failed", "lastUpdateTime": "2026-11-21T12:10:00Z"}}}
    events = [
        {"involvedObject": {"kind": "Node"}, "reason": "Rebooted", "count": 3, "lastTimestamp": "2026-11-21T12:05:00Z"},
        {"involvedObject": {"kind": "Node"}, "reason": "Undated"},
    ]
    found = timeline(node, machine, events)
    assert [each["of"] for each in found] == ["Node", "Event on Node", "Machine"]
    assert "Rebooted" in found[1]["what"]
    assert "3 times" in found[1]["what"]
    assert timeline(None, None, ()) == []
