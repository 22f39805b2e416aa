"""The small questions at the branches of a fencing."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.episode.messages import Acknowledgement, OffProof, Reading, RestartProof
from policy.episode.proofs import (
    freeing_choice,
    may_restore_path,
    may_switch_on,
    off_proven,
    power_due,
    proof_stands,
    restart_proven,
    was_open,
    writes_only_behind_cut,
)
from policy.fence.plan import FencingPlan, Freeing, PowerDevice
from policy.fence.power import PowerState
from tests.policy.builders import NOW, ago, pinned, seen

A, B = "ipmi://a:623", "ipmi://b:623"
DEVICES = (PowerDevice(driver="ipmi", endpoint=A), PowerDevice(driver="ipmi", endpoint=B))
OFF, ON, UNKNOWN = PowerState.OFF, PowerState.ON, PowerState.UNKNOWN


def at(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def read(endpoint: str, state: PowerState, seconds: float) -> Reading:
    return Reading(endpoint=endpoint, state=state, at=NOW + at(seconds))


def a_plan(**fields: object) -> FencingPlan:
    return FencingPlan(source="t", levels=(DEVICES,), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("volumes", "sources", "behind"),
    [
        (("pv-gold",), ("persistentVolumeClaim",), True),
        (("pv-gold", "pv-silver"), ("persistentVolumeClaim", "ephemeral", "configMap", "emptyDir"), True),
        (("pv-gold", "pv-local"), ("persistentVolumeClaim",), False),
        (("pv-gold", ""), ("persistentVolumeClaim",), False),
        (("pv-gold", None), ("persistentVolumeClaim",), False),
        (("pv-gold",), ("persistentVolumeClaim", "nfs"), False),
        (("pv-gold",), ("persistentVolumeClaim", "hostPath"), False),
        (("pv-gold",), ("persistentVolumeClaim", "a-kind-of-next-year"), False),
        ((), ("configMap",), False),
        ((), (), False),
    ],
)
def test_only_a_pod_that_writes_nowhere_else_is_behind_the_cut(
    volumes: tuple[str | None, ...], sources: tuple[str, ...], behind: bool
) -> None:
    """S1: any doubt is a path that is not cut."""
    assert writes_only_behind_cut(volumes, sources, {"pv-gold", "pv-silver"}) is behind


@pytest.mark.parametrize(
    ("not_ready", "started", "due"),
    [
        (ago(0), None, 300),
        (ago(60), None, 240),
        (ago(300), None, 0),
        (ago(999), None, 0),
        (None, None, 0),
        (None, ago(20), 280),
        (ago(60), ago(20), 240),
        (ago(-3600), ago(20), 280),
    ],
)
def test_the_wait_before_power_counts_from_not_ready(not_ready: object, started: object, due: float) -> None:
    """The node's clock may be ahead of ours: a wait never counts from after the episode's own beginning."""
    plan = a_plan(wait_before_power=at(300))
    assert power_due(not_ready, plan, NOW, started=started) == at(due)  # type: ignore[arg-type]


ENDED = {A: NOW, B: NOW + at(1)}
BOTH_OFF = (read(A, OFF, 2), read(B, OFF, 2))


def test_off_read_from_every_device_after_the_commands_ended_is_a_proof() -> None:
    assert off_proven(DEVICES, ENDED, BOTH_OFF, None) == OffProof(commanded_at=NOW + at(1), readings=BOTH_OFF)


@pytest.mark.parametrize(
    ("readings", "why"),
    [
        ((), "nothing was read"),
        ((read(A, OFF, 2),), "S4: one of two devices"),
        ((read(A, OFF, 2), read(B, UNKNOWN, 2)), "S3: unknown is never off"),
        ((read(A, OFF, 2), read(B, ON, 2)), "S4: one still feeds the node"),
        ((read(A, OFF, 2), read(B, OFF, 1)), "S2: read at the moment the command ended, not after it"),
        ((read(A, OFF, 0.5), read(B, OFF, 2)), "S2: read before the last command ended"),
        ((read(A, OFF, 2), read(B, OFF, 2), read(B, UNKNOWN, 3)), "S3: the latest word counts"),
        ((read(A, OFF, 2), read(B, OFF, 2), read(A, ON, 2)), "of two words at one moment the worse counts"),
        ((read(A, ON, 2), read(A, OFF, 2), read(B, OFF, 2)), "in whatever order"),
        ((read(A, OFF, 2), read("ipmi://c:623", OFF, 2)), "another device's word"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_anything_less_proves_nothing(readings: tuple[Reading, ...], why: str) -> None:
    assert off_proven(DEVICES, ENDED, readings, None) is None, why


def test_a_device_that_was_never_commanded_proves_nothing() -> None:
    """S2: off is what follows a command of this episode."""
    assert off_proven(DEVICES, {A: NOW}, BOTH_OFF, None) is None


def test_no_device_is_no_proof() -> None:
    """S7: nothing executed is never success."""
    assert off_proven((), {}, BOTH_OFF, None) is None


@pytest.mark.parametrize(("power_on", "proven"), [(-5, True), (0, False), (0.5, False), (3, False)])
def test_a_power_on_since_the_first_off_command_ends_the_proof(power_on: float, proven: bool) -> None:
    """S4, S6: all offs come before any on."""
    assert (off_proven(DEVICES, ENDED, BOTH_OFF, NOW + at(power_on)) is not None) is proven


seconds = st.integers(-2, 4)
some_readings = st.lists(st.builds(read, st.sampled_from([A, B]), st.sampled_from(list(PowerState)), seconds), max_size=8)


@given(some_readings, st.dictionaries(st.sampled_from([A, B]), seconds), st.none() | seconds)
def test_a_proof_never_contains_a_doubt(readings: list[Reading], ended: dict[str, int], power_on: int | None) -> None:
    """S1-S6 over any readings: every pinned device, off, after every command, with no power-on since, and it stands."""
    moments = {endpoint: NOW + at(second) for endpoint, second in ended.items()}
    on_at = None if power_on is None else NOW + at(power_on)
    proof = off_proven(DEVICES, moments, readings, on_at)
    if proof is None:
        return
    assert {reading.endpoint for reading in proof.readings} == {A, B} == set(moments)
    for endpoint in (A, B):
        last = max((reading for reading in readings if reading.endpoint == endpoint), key=lambda reading: reading.at)
        assert all(r.state is OFF for r in readings if r.endpoint == endpoint and r.at == last.at)
        assert last.at > max(moments.values())
    assert on_at is None or on_at < min(moments.values())
    assert proof_stands(proof, [[A, B]])


PROOF = OffProof(commanded_at=NOW, readings=(read(A, OFF, 2), read(B, OFF, 2)))
SEEN_OFF = OffProof(commanded_at=None, acknowledgement=Acknowledgement(who="ann", why="pulled the cord", at=NOW))


@pytest.mark.parametrize(
    ("proof", "endpoints", "stands"),
    [
        (PROOF, [A, B], True),
        (None, [A, B], False),
        (PROOF, [], False),
        (PROOF, [A], False),
        (PROOF, [A, B, "c"], False),
        (OffProof(commanded_at=None, readings=PROOF.readings), [A, B], False),
        (OffProof(commanded_at=NOW + at(2), readings=PROOF.readings), [A, B], False),
        (OffProof(commanded_at=NOW, readings=(read(A, OFF, 2), read(B, ON, 2))), [A, B], False),
        (OffProof(commanded_at=NOW, readings=(read(A, OFF, 2), read(B, UNKNOWN, 2))), [A, B], False),
        (SEEN_OFF, [A, B], True),
        (OffProof(commanded_at=None, acknowledgement=Acknowledgement(who=" ", why="x", at=NOW)), [A, B], False),
        (OffProof(commanded_at=None, acknowledgement=Acknowledgement(who="ann", why="", at=NOW)), [A, B], False),
    ],
)
def test_a_proof_stands_for_all_endpoints_of_a_level(proof: OffProof | None, endpoints: list[str], stands: bool) -> None:
    """S1, S4, S8."""
    assert proof_stands(proof, [endpoints]) is stands


@pytest.mark.parametrize(
    ("freeing", "honoured", "choice"),
    [
        (Freeing.AUTOMATIC, True, Freeing.OUT_OF_SERVICE_TAINT),
        (Freeing.AUTOMATIC, False, Freeing.DELETION),
        (Freeing.DELETION, True, Freeing.DELETION),
        (Freeing.OUT_OF_SERVICE_TAINT, True, Freeing.OUT_OF_SERVICE_TAINT),
        (Freeing.NONE, True, Freeing.NONE),
    ],
)
def test_automatic_freeing_takes_the_taint_where_it_is_acted_on(freeing: Freeing, honoured: bool, choice: Freeing) -> None:
    assert freeing_choice(a_plan(freeing=freeing, taint_honoured=honoured)) is choice


@pytest.mark.parametrize(
    ("ours", "now", "powered_on", "before", "proven"),
    [
        ({}, {"boot_id": "boot-2"}, True, (), True),
        ({}, {"boot_id": "boot-2"}, True, ("boot-1",), True),
        ({}, {"boot_id": "boot-1"}, True, (), False),
        ({}, {"boot_id": ""}, True, (), False),
        ({}, {"boot_id": "boot-2"}, False, (), False),
        ({}, {"boot_id": "boot-2", "present": False}, True, (), False),
        ({"boot_id": ""}, {"boot_id": "boot-2"}, True, (), False),
        ({}, {"boot_id": "boot-2"}, True, ("boot-1", "boot-2"), False),
        ({}, {"boot_id": "boot-2", "ready": True, "ready_since": ago(60)}, True, (), False),
        ({}, {"boot_id": "boot-2", "ready": True, "ready_since": ago(5)}, True, (), False),
        ({}, {"boot_id": "boot-2", "ready": True, "ready_since": ago(4)}, True, (), True),
        ({}, {"boot_id": "boot-2", "ready": True, "ready_since": None}, True, (), True),
        ({}, {"boot_id": "boot-2", "ready": False, "ready_since": ago(60)}, True, (), True),
    ],
)
def test_a_restart_is_proven_by_a_boot_id_first_seen_after_power_on(
    ours: dict[str, object], now: dict[str, object], powered_on: bool, before: tuple[str, ...], proven: bool
) -> None:
    """S2: a machine that booted once more by itself before our power-on, and was Ready by then, restarted without us."""
    found = restart_proven(pinned(**ours), seen(**now), NOW if powered_on else None, boot_ids_before=before)
    assert (found is not None) is proven
    if found is not None:
        assert (found.boot_id, found.previous_boot_id, found.seen_at) == ("boot-2", "boot-1", NOW)


def test_the_proof_of_a_restart_says_when_it_was_seen() -> None:
    late = restart_proven(pinned(), seen(boot_id="boot-2", ready_since=ago(-40)), NOW)
    assert late is not None
    assert late.seen_at == ago(-40)


PLUG = "fence_apc_snmp://pdu-a/7"


@pytest.mark.parametrize(
    ("configured", "switched_off", "insisted", "may"),
    [
        ((PLUG, "switch"), True, False, True),
        ((PLUG,), False, False, True),
        (("another",), True, False, False),
        (("another",), True, True, True),
        (("another",), False, True, False),
        ((), True, False, True),
        ((), False, True, False),
        (None, True, False, True),
        (None, False, True, None),
    ],
)
def test_a_device_that_may_feed_another_machine_is_not_switched_on(
    configured: tuple[str, ...] | None, switched_off: bool, insisted: bool, may: bool | None
) -> None:
    """S9, S17: what we switched off is owed to the machine; of anything else it must be known that it is the node's."""
    assert may_switch_on(PLUG, switched_off=switched_off, configured=configured, insisted=insisted) is may


@pytest.mark.parametrize(("before", "known"), [(ON, True), (OFF, False), (UNKNOWN, False), (None, False)])
def test_a_path_was_open_before_us_only_where_its_device_said_so(before: PowerState | None, *, known: bool) -> None:
    """S3, S35: an answer that was lost tells of nothing."""
    assert was_open(before) is known


RESTART = RestartProof(boot_id="boot-2", previous_boot_id="boot-1", seen_at=NOW)


@pytest.mark.parametrize(
    ("consequences", "found_cut", "restart", "may"),
    [
        (False, False, None, True),
        (True, False, None, False),
        (False, True, None, False),
        (True, True, None, False),
        (True, False, RESTART, True),
        (False, True, RESTART, True),
        (True, True, RESTART, True),
    ],
)
def test_a_path_is_given_back_by_itself_where_no_pod_can_write_behind_it(
    restart: RestartProof | None, *, consequences: bool, found_cut: bool, may: bool
) -> None:
    """S35: pods that were freed, by us or by whoever had cut it before us, run elsewhere: a restart or a word goes first."""
    assert may_restore_path(consequences=consequences, found_cut=found_cut, restart=restart) is may
