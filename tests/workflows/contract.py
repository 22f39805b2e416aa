"""Everything that workflows ask of the world, in one place for the tests that play the world.

A player is any object with methods named as in the contracts; `served_by` makes the activities of a worker out of them. All
contracts are re-exported so that a player imports one module (`from tests.workflows import contract`).
"""

# ruff: noqa: F403, F405

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from temporalio import activity

from activities.contracts.attestation import *
from activities.contracts.episodes import *
from activities.contracts.evidence import *
from activities.contracts.power import *
from activities.contracts.preservation import *
from activities.contracts.remediation import *
from activities.contracts.scan import *
from activities.contracts.target import *
from workflows.kit.options import WORKFLOW_QUEUE, cluster_queue, power_queue

CONTRACTS = (
    TargetActivities,
    IsolationActivities,
    FreeingActivities,
    PowerActivities,
    EvidenceActivities,
    EpisodeActivities,
    RepetitionActivities,
    ScanActivities,
    PreservationActivities,
    RemediationActivities,
    ExternalActivities,
    VolumeActivities,
    PreservationStarts,
    EvidenceCollection,
    DeviceEvidenceActivities,
    AttestationActivities,
    ObservationActivities,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One activity: its name for Temporal, the method of its contract, what it takes and gives."""

    name: str
    method: str
    takes: type
    gives: type | None


def calls_of(*contracts: type) -> tuple[Call, ...]:
    """The activities of contracts, by their names."""
    calls = []
    for contract in contracts:
        for method in sorted(contract.__abstractmethods__):  # type: ignore[attr-defined]
            known = activity._Definition.must_from_callable(getattr(contract, method))
            assert known.name is not None, "no activity of ours is dynamic"
            assert known.arg_types is not None, "and each takes one request"
            calls.append(Call(name=known.name, method=method, takes=known.arg_types[0], gives=known.ret_type))
    return tuple(calls)


def act_of(call: Call) -> str:
    """The method by which a player carries a call out: contracts of one kind name theirs as those of another do."""
    part, _, name = call.name.partition(".")
    return name.replace("-", "_") if part in {"remediation", "preservation"} else call.method


CALLS = {call.name: call for call in calls_of(*CONTRACTS)}

Carry = Callable[[Call, Any], Awaitable[Any]]


def activities_of(carry: Carry, *contracts: type) -> list[Callable[[Any], Awaitable[Any]]]:
    """The activities of contracts for a worker, all carried out by one function."""
    return [_activity(carry, call) for call in calls_of(*contracts)]


def queues_of(cluster: str) -> tuple[tuple[str, tuple[type, ...]], ...]:
    """Which contracts are served where, for the episodes of one cluster with devices at the default site."""
    return (
        (WORKFLOW_QUEUE, (EpisodeActivities,)),
        (power_queue("default"), (PowerActivities, EvidenceActivities)),
        (
            cluster_queue(cluster),
            (TargetActivities, IsolationActivities, FreeingActivities, RepetitionActivities, AttestationActivities),
        ),
    )


def served_by(player: object, *contracts: type) -> list[Callable[[Any], Awaitable[Any]]]:
    """The activities of contracts for a worker, each carried out by the player's method of that name."""

    async def carry(call: Call, request: Any) -> Any:
        return await getattr(player, call.method)(request)

    return activities_of(carry, *contracts)


def _activity(carry: Carry, call: Call) -> Callable[[Any], Awaitable[Any]]:
    async def act(request: Any) -> Any:
        return await carry(call, request)

    act.__annotations__ = {"request": call.takes, "return": call.gives}
    return activity.defn(name=call.name)(act)
