"""What is recorded of nodes that were not repaired: after one look at who has laid a hand on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.cluster.acts.scan import GIVEN_UP, MOST_TRACES, ClusterObservations, hands_on
from activities.cluster.api.served_cluster import ServedCluster
from activities.cluster.objects.live_node import LiveNode, find_node
from activities.cluster.objects.object_reader import ApiReader
from activities.contracts.scan import RecordRequest, RecordResult
from activities.errors import ErrorType, failure
from policy.episode.decisions import Decision, DecisionKind
from policy.history.spells import Ending, ObservationRecord, Spell
from tests.cluster.acts.world import CLUSTER, NODE, World

SINCE = datetime(2026, 11, 21, 11, 50, tzinfo=UTC)
BACK = Spell(
    node=NODE,
    check="NodeHealthCheck//workers",
    cause="ReadyUnknown",
    since=SINCE,
    due=SINCE + timedelta(minutes=5),
    ended=SINCE + timedelta(minutes=9),
    ending=Ending.CAME_BACK,
)


def written_by(manager: str, field: str, minutes: float = 3, **entry: object) -> dict[str, Any]:
    at = (SINCE + timedelta(minutes=minutes)).isoformat().replace("+00:00", "Z")
    return {"manager": manager, "time": at, "fieldsV1": {"f:spec": {field: {}}}, **entry}


@pytest.mark.parametrize(
    ("entries", "found"),
    [
        ([written_by("kubectl-cordon", "f:unschedulable")], ["cordoned by kubectl-cordon"]),
        ([written_by("draino", "f:taints")], ["tainted by draino"]),
        ([written_by("kubectl-cordon", "f:unschedulable", -1)], []),
        ([written_by("kube-controller-manager", "f:taints"), written_by("nodewarden", "f:unschedulable")], []),
        ([written_by("kubelet", "f:unschedulable", subresource="status")], []),
        ([{"manager": "kubectl", "time": "soon", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}, {}], []),
        ([written_by("a\x1b[31m\nb", "f:unschedulable")], ["cordoned by a�[31m b"]),
    ],
)
def test_who_has_laid_a_hand_on_it_is_what_managed_fields_say(entries: list[dict[str, Any]], found: list[str]) -> None:
    """S50: a manager names itself as it likes."""
    assert list(hands_on({"metadata": {"managedFields": entries}}, SINCE)) == found


def with_managed_fields(monkeypatch: pytest.MonkeyPatch, entries: list[dict[str, Any]]) -> None:
    """The simulator keeps none."""

    async def find(connection: ApiReader, name: str) -> LiveNode | None:
        node = await find_node(connection, name)
        return replace(node, document={"metadata": {"managedFields": entries}}) if node is not None else None

    monkeypatch.setattr("activities.cluster.acts.scan.find_node", find)


async def recorded(world: World, request: RecordRequest) -> list[ObservationRecord]:
    made: list[ObservationRecord] = []

    async def start(record: ObservationRecord) -> None:
        made.append(record)

    streamed: list[Decision] = []

    async def stream(decisions: Sequence[Decision]) -> None:
        assert made, "what is not recorded yet is not written"
        streamed.extend(decisions)

    acts = ClusterObservations(ServedCluster(CLUSTER, world.connection, clock=world.clock, record=stream), start=start)
    result = await ActivityEnvironment().run(acts.record, request)
    spells = {record.workflow_id: spell for record in made for spell in record.spells}
    assert {each.id: (each.kind, each.node, each.outcome) for each in streamed} == {
        name: (DecisionKind.OBSERVED, spell.node, spell.ending) for name, spell in spells.items()
    }
    assert [each.storm for each in result.of_storms] == ["s" for each in request.ended if each.storm]
    return made


async def test_each_is_recorded_after_a_look_but_for_those_of_a_storm(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [written_by(f"hand-{number}", "f:unschedulable") for number in range(9)]
    with_managed_fields(monkeypatch, entries)
    ended = (BACK, replace(BACK, node="gone"), replace(BACK, storm="s"), replace(BACK, node="machine/a/b"))
    made = await recorded(world, RecordRequest(cluster=CLUSTER, ended=ended))
    found = {record.spells[0].node: record.spells[0] for record in made}
    assert [*found] == [NODE, "gone", "machine/a/b"]
    assert (found[NODE].ending, len(found[NODE].traces)) == (Ending.OTHERS, MOST_TRACES)
    assert (found["gone"].ending, found["machine/a/b"].ending) == (Ending.CAME_BACK, Ending.CAME_BACK)


async def test_a_node_of_another_uid_says_nothing_of_the_one_that_was_sick(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """S9."""
    entries = [written_by("kubectl-cordon", "f:unschedulable")]
    with_managed_fields(monkeypatch, entries)
    (record,) = await recorded(world, RecordRequest(cluster=CLUSTER, ended=(replace(BACK, uid="another"),)))
    assert record.spells[0].ending is Ending.CAME_BACK


async def attempted(world: World, request: RecordRequest, refused: dict[str, ErrorType]) -> tuple[RecordResult, list[str]]:
    """refused: by node, what Temporal has against its record. The result, and the nodes in the decision stream."""

    async def start(record: ObservationRecord) -> None:
        node = record.spells[0].node
        if node in refused:
            raise failure(refused[node], f"Temporal can't record {node}")

    streamed: list[str] = []

    async def stream(decisions: Sequence[Decision]) -> None:
        streamed.extend(each.node for each in decisions)

    acts = ClusterObservations(ServedCluster(CLUSTER, world.connection, clock=world.clock, record=stream), start=start)
    return await ActivityEnvironment().run(acts.record, request), streamed


def ended(world: World, *nodes: str, ago: timedelta = timedelta(minutes=1)) -> RecordRequest:
    at = world.clock() - ago
    spells = (replace(BACK, node=node, since=at - timedelta(hours=1), due=at, ended=at) for node in nodes)
    return RecordRequest(cluster=CLUSTER, ended=tuple(spells))


async def test_one_that_temporal_refuses_holds_back_no_other(world: World) -> None:
    request = ended(world, "a", "b", "c")
    result, streamed = await attempted(world, request, {"b": ErrorType.INVALID_CONFIG})
    assert (result.left, result.problem, streamed) == (
        (request.ended[1].record_id(CLUSTER),),
        "Temporal can't record b",
        ["a", "c"],
    )


async def test_a_look_that_fails_holds_back_no_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def find(connection: ApiReader, name: str) -> LiveNode | None:
        if name == "b":
            raise failure(ErrorType.FORBIDDEN, "no right to get nodes")
        return None

    monkeypatch.setattr("activities.cluster.acts.scan.find_node", find)
    request = ended(world, "a", "b")
    result, streamed = await attempted(world, request, {})
    assert (result.left, streamed) == ((request.ended[1].record_id(CLUSTER),), ["a"])


async def test_what_is_refused_for_seven_days_is_dropped_and_what_is_not_answered_never(world: World) -> None:
    """The decision stream has it then. Temporal may be away for longer than that."""
    for ago, kind in ((GIVEN_UP - timedelta(seconds=1), ErrorType.INVALID_CONFIG), (2 * GIVEN_UP, ErrorType.UNREACHABLE)):
        with pytest.raises(ApplicationError, match="can't record a"):
            await attempted(world, ended(world, "a", ago=ago), {"a": kind})
    result, streamed = await attempted(world, ended(world, "a", ago=GIVEN_UP), {"a": ErrorType.INVALID_CONFIG})
    assert (result.left, streamed) == ((), ["a"])
