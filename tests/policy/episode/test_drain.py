"""Whom a drain evicts: kubectl's filters over every kind of pod (S29, K05)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.episode.drain import (
    DrainClaim,
    DrainOptions,
    DrainPod,
    Fate,
    drain_options,
    grace_seconds,
    is_single_writer,
    plan_drain,
    rule,
)
from tests.vectors.objects import VECTORS

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
DEFAULT = DrainOptions()
ALL = DrainOptions(force=True, ignore_daemon_sets=True, delete_empty_dir=True)


def pod(name: str = "default/web", **fields: object) -> DrainPod:
    return DrainPod(name=name, uid=name, **fields)  # type: ignore[arg-type]


ZOO = {
    "rs": pod(),
    "ds": pod(daemon_set="logs"),
    "ds orphaned": pod(daemon_set="logs", orphaned=True),
    "ds Succeeded": pod(daemon_set="logs", finished=True),
    "mirror": pod(mirror=True, managed=False),
    "rs with emptyDir": pod(empty_dir=True),
    "rs with emptyDir Failed": pod(empty_dir=True, finished=True),
    "bare": pod(managed=False),
    "bare Succeeded": pod(managed=False, finished=True),
}
K05 = VECTORS["K05"]


@pytest.mark.parametrize(("options", "fates"), [(DEFAULT, K05["default_flags"]), (ALL, K05["all_flags"])], ids=["none", "all"])
def test_k05_what_becomes_of_every_kind_of_pod(options: DrainOptions, fates: list[str]) -> None:
    """And the warnings that kubectl loses are told, too."""
    assert list(ZOO) == K05["pods"]
    rulings = {kind: rule(each, options, NOW) for kind, each in ZOO.items()}
    assert [ruling.fate.value for ruling in rulings.values()] == fates
    if options is ALL:
        assert [kind for kind, ruling in rulings.items() if ruling.warnings] == K05["warned_under_all_flags"]


def test_one_refusal_and_nothing_at_all_is_evicted() -> None:
    """S29."""
    plan = plan_drain([*ZOO.values()], DrainOptions(force=True, ignore_daemon_sets=True), NOW)
    assert plan.evict == ()
    assert plan.errors == ("default/web: has data in an emptyDir (delete-emptydir-data gives it up)",)
    assert plan_drain([*ZOO.values()], ALL, NOW).evict


@pytest.mark.parametrize(
    ("ago", "skip", "fate"), [(31, 30, Fate.SKIP), (30, 30, Fate.EVICT), (31, None, Fate.EVICT), (-5, 30, Fate.EVICT)]
)
def test_what_has_been_terminating_for_long_is_not_waited_for(ago: int, skip: int | None, fate: Fate) -> None:
    """S31: and said to be no evidence."""
    options = DrainOptions(skip_deleting=None if skip is None else timedelta(seconds=skip))
    ruling = rule(pod(deleting=NOW - timedelta(seconds=ago)), options, NOW)
    assert ruling.fate is fate
    assert bool(ruling.warnings) is (fate is Fate.SKIP)


PODS = st.builds(
    DrainPod,
    name=st.sampled_from(["a", "b"]),
    uid=st.just("uid"),
    finished=st.booleans(),
    daemon_set=st.sampled_from(["", "logs"]),
    orphaned=st.booleans(),
    mirror=st.booleans(),
    empty_dir=st.booleans(),
    managed=st.booleans(),
)
OPTIONS = st.builds(DrainOptions, force=st.booleans(), ignore_daemon_sets=st.booleans(), delete_empty_dir=st.booleans())


@given(pods=st.lists(PODS, max_size=6), options=OPTIONS)
def test_mirror_pods_are_never_touched_and_daemon_set_pods_are_left(pods: list[DrainPod], options: DrainOptions) -> None:
    """S29, under any flags."""
    plan = plan_drain(pods, options, NOW)
    assert not any(each.mirror for each in plan.evict)
    assert not any(each.daemon_set and not each.orphaned and not each.finished for each in plan.evict)
    assert not (plan.errors and plan.evict)


class TestOptions:
    def test_parameters_are_kubectl_s_flags(self) -> None:
        written = {
            "force": "true",
            "ignore-daemonsets": "1",
            "delete-emptydir-data": "no",
            "grace-period": "10",
            "skip-wait-for-delete-timeout": "30",
        }
        assert drain_options(written) == DrainOptions(
            force=True, ignore_daemon_sets=True, grace=timedelta(seconds=10), skip_deleting=timedelta(seconds=30)
        )
        assert drain_options({"grace-period": "-1", "skip-wait-for-delete-timeout": "0"}) == DEFAULT

    @pytest.mark.parametrize(
        ("written", "told"),
        [
            ({"force": "maybe"}, "force"),
            ({"grace-period": "10s"}, "grace-period"),
            ({"disable-eviction": "true"}, "disable-eviction"),
        ],
    )
    def test_what_cannot_be_used_is_named(self, written: dict[str, str], told: str) -> None:
        """S30: a drain has no flag that deletes."""
        with pytest.raises(ValueError, match=f"^{told}: "):
            drain_options(written)


@pytest.mark.parametrize(
    ("ours", "own", "asked"), [(None, None, None), (None, 30, None), (None, 0, 1), (0, 30, 1), (7, 0, 7), (7, 30, 7)]
)
def test_an_eviction_leaves_a_pod_to_its_kubelet(ours: int | None, own: int | None, asked: int | None) -> None:
    """S1, S30: never a grace period of 0."""
    options = DrainOptions(grace=timedelta(seconds=ours) if ours is not None else None)
    assert grace_seconds(options, own) == asked


ALONE, SHARED, UNBOUND = (
    DrainClaim(volume=volume, modes=frozenset({mode}))
    for volume, mode in (("pv", "ReadWriteOnce"), ("pv", "ReadWriteMany"), ("", "ReadWriteOnce"))
)
UNKNOWN_MODES = DrainClaim(volume="pv", modes=frozenset())


@pytest.mark.parametrize(
    ("claim", "attached", "running", "held"),
    [
        (ALONE, {"pv"}, False, True),
        (ALONE, set(), True, True),
        (ALONE, {"another"}, False, False),
        (SHARED, {"pv"}, True, False),
        (UNKNOWN_MODES, {"pv"}, False, True),
        (UNBOUND, {"pv"}, True, False),
        (None, {"another"}, False, True),
        (None, set(), True, True),
        (None, set(), False, False),
    ],
)
def test_a_volume_that_one_machine_writes_holds_its_pod(
    claim: DrainClaim | None, attached: set[str], running: bool, held: bool
) -> None:
    """S36."""
    assert is_single_writer((claim,), attached, running=running, inline_disk=False) is held
    assert is_single_writer((SHARED, claim), attached, running=running, inline_disk=False) is held


@pytest.mark.parametrize(("inline_disk", "attached", "held"), [(True, {""}, True), (True, {"pv"}, False), (False, {""}, False)])
def test_a_disk_in_the_pods_own_spec_has_an_attachment_without_a_name(inline_disk: bool, attached: set[str], held: bool) -> None:
    """S36."""
    assert is_single_writer((), attached, running=True, inline_disk=inline_disk) is held
