"""`PreservationPolicy` and its other spellings: what each means, what is refused and how, and that the schema says the same."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from policy.preservation.requests import (
    BLOCK,
    BLOCK_FIELDS,
    DEFAULT_SETTLE_TIME,
    DEFAULT_TIMEOUT,
    LARGEST_CAP,
    SPEC_FIELDS,
    Pool,
    read_block,
    read_policy,
    read_shoot,
)
from policy.values.errors import PolicyError
from policy.values.selectors import Selector
from tests.documents import document

HOURS_24 = timedelta(hours=24)
WORDS = {"autoPreserveFailedMax": 2, "machinePreserveTimeout": "24h"}


def an_object(**spec: object) -> dict[str, object]:
    wanted = {"selector": {"matchLabels": {"pool": "a"}}} | spec
    return {
        "apiVersion": "nodewarden.io/v1alpha1",
        "kind": "PreservationPolicy",
        "metadata": {"name": "workers"},
        "spec": {key: value for key, value in wanted.items() if value is not None},
    }


def the_pool(**spec: object) -> Pool:
    return read_policy(an_object(**spec))


def a_shoot(*workers: object) -> dict[str, object]:
    return {
        "apiVersion": "core.gardener.cloud/v1beta1",
        "kind": "Shoot",
        "metadata": {"name": "prod", "namespace": "garden"},
        "spec": {"provider": {"type": "any", "workers": list(workers)}},
    }


def test_without_anything_said_nothing_is_kept_automatically() -> None:
    """The proposal's defaults: 0, and 72 h."""
    pool = the_pool()
    assert (pool.name, pool.cap, pool.timeout, pool.settle) == ("workers", 0, timedelta(hours=72), DEFAULT_SETTLE_TIME)
    assert (pool.zones, pool.isolate, pool.warnings) == ((), False, ())
    assert pool.matches({"pool": "a", "other": "x"})
    assert not pool.matches({"pool": "b"})


@pytest.mark.parametrize(
    "spec",
    [
        WORDS,
        {"machinePreserveMax": 2, "machinePreserveTimeout": "24h"},
        {BLOCK: WORDS},
        {BLOCK: {"machinePreserveMax": 2, "machinePreserveTimeout": "1440m"}},
        {"autoPreserveFailedMax": None, "machinePreserveMax": None, BLOCK: WORDS},
    ],
)
def test_every_spelling_of_a_policy_means_the_same(spec: dict[str, object]) -> None:
    assert (the_pool(**spec).cap, the_pool(**spec).timeout) == (2, HOURS_24)


def test_the_block_alone_is_about_all_machines() -> None:
    pool = read_block({"autoPreserveFailedMax": 3}, subject=BLOCK)
    assert (pool.name, pool.selector, pool.cap, pool.timeout) == (BLOCK, Selector(), 3, DEFAULT_TIMEOUT)
    assert pool.matches({})


def test_a_shoot_has_a_pool_for_each_of_its_worker_pools_that_say_so() -> None:
    first = {"name": "a", "zones": ["z1", "z2"], BLOCK: WORDS}
    found = read_shoot(a_shoot(first, {"name": "b"}, {"name": "c", BLOCK: {"machinePreserveMax": 0}}))
    assert [(pool.name, pool.cap, pool.timeout, pool.zones) for pool in found] == [
        ("a", 2, HOURS_24, ("z1", "z2")),
        ("c", 0, DEFAULT_TIMEOUT, ()),
    ]
    assert found[0].matches({"worker.gardener.cloud/pool": "a"})
    assert not found[0].matches({"worker.gardener.cloud/pool": "c"})


@pytest.mark.parametrize(("cap", "zones", "warned"), [(0, 3, False), (1, 3, True), (2, 3, True), (3, 3, False), (1, 0, False)])
def test_a_cap_below_the_number_of_zones_warns(cap: int, zones: int, warned: bool) -> None:
    pool = the_pool(machinePreserveMax=cap, zones=[f"z{number}" for number in range(zones)])
    expected = f"workers: spec.machinePreserveMax {cap} is less than its {zones} zones: some zones keep no machine"
    assert pool.warnings == ((expected,) if warned else ())


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"selector": None}, "spec.selector: expected a selector of Machines' or Nodes' labels; an empty one, {}, selects all"),
        ({"selector": {"matchLabel": {"a": "b"}}}, "spec.selector.matchLabel: is not a known field"),
        ({"autoPreserveFailedMax": -1}, "spec.autoPreserveFailedMax: expected a whole number of at least 0"),
        ({"autoPreserveFailedMax": LARGEST_CAP + 1}, f"expected a whole number of at least 0 and at most {LARGEST_CAP}"),
        (
            {"autoPreserveFailedMax": 1, "machinePreserveMax": 1},
            "spec.machinePreserveMax: is another name of autoPreserveFailedMax: expected only one of them",
        ),
        (
            {"machinePreserveTimeout": "24h", BLOCK: WORDS},
            f"spec.machinePreserveTimeout: expected it only once, but {BLOCK} is there as well",
        ),
        ({BLOCK: {"autoPreserveMax": 1}}, f"spec.{BLOCK}.autoPreserveMax: is not a known field; expected one of autoPres"),
        ({BLOCK: 2}, f"spec.{BLOCK}: expected an object, got 2"),
        ({BLOCK: {"machinePreserveTimeout": "0s"}}, f"spec.{BLOCK}.machinePreserveTimeout: expected a duration of at least 1s"),
        ({"machinePreserveTimeout": "3 days"}, "spec.machinePreserveTimeout: expected a duration with units"),
        ({"machinePreserveTimeout": 72}, 'spec.machinePreserveTimeout: expected a duration such as "300s"'),
        (
            {"machinePreserveTimeout": "8761h"},
            "spec.machinePreserveTimeout: expected a duration of at least 1s and at most 8760h",
        ),
        ({"zones": ["a", "a"]}, "spec.zones: expected each zone once"),
        ({"zones": "a"}, "spec.zones: expected a list"),
        ({"colour": "red"}, "spec.colour: is not a known field"),
    ],
)
def test_nonsense_is_refused_with_object_field_and_expectation(spec: dict[str, object], problem: str) -> None:
    with pytest.raises(PolicyError) as refusal:
        the_pool(**spec)
    assert str(refusal.value).startswith("PreservationPolicy/workers: spec.")
    assert problem in str(refusal.value)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"apiVersion": "nodewarden.io/v1"}, "apiVersion"),
        ({"kind": "PreservePolicy"}, "kind"),
        ({"metadata": {}}, "metadata.name"),
        ({"spec": None}, "spec"),
    ],
)
def test_another_object_is_no_policy(change: dict[str, object], problem: str) -> None:
    with pytest.raises(PolicyError, match=problem):
        read_policy(an_object() | change)


@pytest.mark.parametrize(
    ("worker", "problem"),
    [
        ({"name": "a", BLOCK: {"autoPreserveFailedMax": -1}}, "machineControllerManager.auto"),
        ({BLOCK: WORDS}, "name: expected a non-empty string"),
        ({"name": "a", BLOCK: WORDS, "zones": [1]}, "zones: expected a list of strings"),
    ],
)
def test_a_mistake_in_a_shoot_names_its_worker_pool(worker: dict[str, object], problem: str) -> None:
    with pytest.raises(PolicyError) as refusal:
        read_shoot(a_shoot(worker))
    assert str(refusal.value).startswith(f"Shoot/prod: spec.provider.workers[0].{problem}")


def schema() -> dict[str, Any]:
    (version,) = document("deploy/crds/preservationpolicies.nodewarden.io.yaml")["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


def test_the_schema_and_the_reader_know_the_same_fields_and_bounds() -> None:
    fields = schema()["properties"]
    assert set(fields) == set(SPEC_FIELDS)
    assert set(fields[BLOCK]["properties"]) == set(BLOCK_FIELDS)
    assert schema()["required"] == ["selector"]
    for name in BLOCK_FIELDS:
        assert fields[BLOCK]["properties"][name] == fields[name], "the same in both places"
    assert (fields["autoPreserveFailedMax"]["minimum"], fields["autoPreserveFailedMax"]["maximum"]) == (0, LARGEST_CAP)


def test_what_the_schema_fills_in_is_what_the_reader_takes_for_granted() -> None:
    """And nothing where two spellings would then be written at once."""
    filled = {name: field["default"] for name, field in schema()["properties"].items() if "default" in field}
    assert set(filled) == {"settleTime", "isolate"}
    assert the_pool(**filled) == the_pool()
    assert the_pool(**filled, **{BLOCK: WORDS}).cap == 2
