"""Two clusters that are served under one name on one Temporal (S9, S38, S44)."""

from __future__ import annotations

import asyncio
import importlib
import logging
import pkgutil
from dataclasses import fields, is_dataclass, replace
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from activities.cluster import acts
from activities.contracts.device_check import NodeNamesRequest
from activities.contracts.target import LookRequest, Target, UntaintRequest, WorkloadRequest
from activities.errors import ErrorType, error_type, failure
from policy.episode.messages import Need, NeedKind, Pinned
from workers.interceptors import activity_guards
from workers.interceptors.activity_guards import SCAN, SCANS_DECLINED, ClusterGuard

OURS = Target(
    cluster="this-cluster", pinned=Pinned(node="node-1", uid="u"), incident="i", kind="Fencing", workflow_id="w", run_id="r"
)
THEIRS = replace(OURS, cluster="that-cluster")
NEED = Need(kind=NeedKind.PERSON, reason="a test")
UNTAINT = "power-management.untaint-out-of-service"


class Act(ActivityInboundInterceptor):
    def __init__(self) -> None:
        self.done = 0

    async def execute_activity(self, input: ExecuteActivityInput) -> None:  # noqa: A002 - the SDK's name
        self.done += 1


class Place:
    """A worker in cluster B, and what the scanner of the name that it serves has seen."""

    def __init__(self, seen: str | None) -> None:
        self.seen, self.own, self.questions = seen, "uid-b", 0
        self.act = Act()
        self.guard = ClusterGuard("this-cluster", own=self.our_uid, seen=self.scanner)

    async def our_uid(self) -> str:
        if not self.own:
            raise failure(ErrorType.UNREACHABLE, "no answer")
        return self.own

    async def scanner(self) -> str | None:
        self.questions += 1
        await asyncio.sleep(0)
        return self.seen

    async def perform(self, name: str = UNTAINT, *given: Any, attempt: int = 1) -> None:
        environment = ActivityEnvironment()
        environment.info = replace(environment.info, activity_type=name, attempt=attempt)

        async def run() -> None:
            asked = ExecuteActivityInput(fn=run, args=given or (OURS,), executor=None, headers={})
            await self.guard.intercept_activity(self.act).execute_activity(asked)

        await environment.run(run)

    async def declines(self, kind: ErrorType = ErrorType.WRONG_CLOCK, name: str = UNTAINT, *, attempt: int = 1) -> None:
        with pytest.raises(ApplicationError, match="two clusters need two names") as declined:
            await self.perform(name, attempt=attempt)
        assert error_type(declined.value) is kind
        assert declined.value.non_retryable is (kind is ErrorType.INVALID_CONFIG)


@pytest.fixture(autouse=True)
def asked_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity_guards, "ASK_AGAIN_SECONDS", 0.0)


async def test_a_worker_of_another_cluster_does_nothing_and_leaves_it_to_those_of_the_right_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """S9, S32: it would have called the taint gone, whose Node is in the other cluster. S44: and says so, once."""
    place = Place("uid-a")
    with caplog.at_level(logging.ERROR):
        await place.declines()
        await place.declines()
    assert place.act.done == 0
    assert len(caplog.records) == 1


async def test_a_scan_that_no_other_worker_takes_fails_with_the_reason() -> None:
    """S44: which the scanner then tells people."""
    place = Place("uid-a")
    await place.declines(name=SCAN, attempt=SCANS_DECLINED)
    await place.declines(ErrorType.INVALID_CONFIG, SCAN, attempt=SCANS_DECLINED + 1)


async def test_a_worker_at_the_right_cluster_asks_once_for_all_callers() -> None:
    place = Place("uid-b")
    await asyncio.gather(place.perform(), place.perform())
    place.seen = "uid-a"
    await place.perform()
    assert (place.act.done, place.questions) == (3, 1)


async def test_an_address_that_leads_to_another_cluster_by_now_ends_what_is_done_there() -> None:
    """S9: the view's probe finds out, and until now only the scan heard of it."""
    place = Place("uid-b")
    await place.perform()
    place.own = "uid-c"
    await place.declines()
    place.own = "uid-b"
    await place.perform()
    assert (place.act.done, place.questions) == (2, 3)


@pytest.mark.parametrize("seen", [None, ""], ids=["nobody can say", "it has seen none"])
async def test_an_unpublished_state_holds_up_nothing_and_is_asked_again(seen: str | None) -> None:
    place = Place(seen)
    await place.perform()
    place.seen = "uid-a"
    await place.declines()
    assert place.act.done == 1


async def test_a_word_stands_until_the_scanner_says_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that nobody answers for a while takes nothing back; one that is started anew has seen no cluster yet."""
    place = Place("uid-a")
    await place.declines()
    place.seen = None
    await place.declines()
    place.seen = ""
    await place.perform()
    monkeypatch.setattr(activity_guards, "ASK_AGAIN_SECONDS", 60.0)
    place.seen = "uid-a"
    await place.perform()
    assert place.questions == 3


async def test_a_cluster_that_does_not_answer_is_met_by_the_activity_itself() -> None:
    place = Place("uid-a")
    place.own = ""
    await place.perform()
    assert place.act.done == 1


@pytest.mark.parametrize(
    "given",
    [
        (NodeNamesRequest(cluster="that-cluster"),),
        (WorkloadRequest(target=THEIRS),),
        (WorkloadRequest(target=OURS), WorkloadRequest(target=THEIRS)),
        (UntaintRequest(target=OURS, look=LookRequest(target=THEIRS, need=NEED, holder="us")),),
        (SimpleNamespace(node="node-1"),),
        (None,),
    ],
    ids=["its own field", "its target", "another argument", "a part of it", "it names none", "nothing"],
)
async def test_s9_what_is_not_about_this_cluster_alone_does_not_begin(given: tuple[Any, ...]) -> None:
    """Names of nodes repeat from cluster to cluster. An activity that names its cluster in a way that is not known here is
    refused, so that none can forget it."""
    place = Place("uid-b")
    with pytest.raises(ApplicationError, match="reached the worker of cluster 'this-cluster': check the task queues") as refused:
        await place.perform(UNTAINT, *given)
    assert (error_type(refused.value), refused.value.non_retryable) == (ErrorType.INVALID_CONFIG, True)
    assert (place.act.done, place.questions) == (0, 0)


def requests_of_a_cluster() -> dict[str, type]:
    """By activity, of all that workers of a cluster's queue implement."""
    found = {}
    for module in pkgutil.iter_modules(acts.__path__, "activities.cluster.acts."):
        for each in vars(importlib.import_module(module.name)).values():
            for contract in (
                base for base in getattr(each, "__mro__", ()) if base.__module__.startswith("activities.contracts.")
            ):
                for name, method in vars(contract).items():
                    if hasattr(method, "__temporal_activity_definition"):
                        found[f"{contract.__name__}.{name}"] = get_type_hints(method)["request"]
    return found


@pytest.mark.parametrize(("name", "request_type"), requests_of_a_cluster().items())
def test_s9_what_each_activity_of_a_cluster_is_asked_names_its_cluster(name: str, request_type: type) -> None:
    """Where the guard looks for it."""

    def names(kind: Any) -> bool:
        kinds = [each for each in (kind, *get_args(kind)) if is_dataclass(each)]
        parts = {part.name: get_type_hints(each)[part.name] for each in kinds for part in fields(each)}
        return "cluster" in parts or any(names(parts[about]) for about in activity_guards._ABOUT if about in parts)

    assert names(request_type), name
