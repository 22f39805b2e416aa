"""What another SDK may start workflows with and say to them, by the real converter: refused or taken, and no task ever fails.

A workflow task that fails is tried again for ever: the episode would stand still, and whoever spoke would never hear why.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
import temporalio.workflow
from hypothesis import example, given
from hypothesis import strategies as st
from temporalio.api.common.v1 import Payload
from temporalio.client import WorkflowFailureError, WorkflowHandle, WorkflowQueryFailedError, WorkflowUpdateFailedError
from temporalio.common import RawValue
from temporalio.service import RPCError

from activities.contracts.device_check import DeviceReadingActivities, FenceDeviceActivities
from activities.errors import ErrorType, error_type
from policy.episode.messages import FencingInput, Need, Outcome, PreservationInput, RemediationInput
from policy.episode.permits import PermitQuestion, PermitQuestions, PermitRequest, PortionRequest, Release, ScannerQuestion
from policy.values.object_refs import ObjectRef
from tests.fuzz.strange import PATIENCE, as_bytes, changed, examples
from tests.workflows.contract import calls_of
from tests.workflows.fencing_run import fencing
from tests.workflows.scanner_run import ScriptedCluster, scanning
from tests.workflows.surroundings import ClockworkEnvironment, worker
from tests.workflows.world import World
from workers.payloads.converter import DATA_CONVERTER
from workflows.definitions.device_check import DeviceCheck
from workflows.definitions.episodes import Fencing, Preservation, Remediation
from workflows.definitions.scanner import HealthScanner
from workflows.kit.messages import AbortRequest, DeviceCheckInput, ModeRequest, PauseRequest, PersonRequest
from workflows.scanner.state import ScannerInput

pytestmark = PATIENCE

WORKFLOWS = (Fencing, Remediation, Preservation, HealthScanner, DeviceCheck)
REF = ObjectRef(api_version="v1", kind="K", name="n", namespace="s")
NOW = World().seen_node()


def written(value: Any) -> Any:
    """As it is on the wire."""
    return json.loads(DATA_CONVERTER.payload_converter.to_payload(value).data or b"null")


def raw(data: bytes, encoding: str = "json/plain") -> RawValue:
    return RawValue(Payload(metadata={"encoding": encoding.encode()}, data=data))


def said(value: Any) -> st.SearchStrategy[list[RawValue]]:
    """The arguments of one word: something strange, too few or too many, or in another encoding."""
    one = changed({"it": written(value)}).map(lambda found: as_bytes(found.get("it")))
    odd = st.sampled_from(
        ([], [raw(b"", "binary/null")], [raw(b"\xff", "binary/plain")], [raw(b"{}", "x/y")], [raw(b"{")], [raw(b"{}"), raw(b"7")])
    )
    return st.one_of(one.map(lambda data: [raw(data)]), one.map(lambda data: [raw(data)]), odd)


PERSON = PersonRequest(who="ada", reason="drill")
ORIGIN = FencingInput(cluster="c", node="n1", need=Need(check=REF, reason="r"), template=REF, reason="r", incident="i")
STARTS: dict[str, tuple[str, Any]] = {
    "Fencing": ("episode/c/n1", ORIGIN),
    "Remediation": ("episode/c/n1", RemediationInput(cluster="c", node="n1", need=Need(check=REF), strategies=("reboot=10m",))),
    "Preservation": ("episode/c/n1", PreservationInput(cluster="c", node="n1", machine=REF, hold=timedelta(hours=1))),
    "HealthScanner": ("scanner/c", ScannerInput(cluster="c", holder="us")),
    "DeviceCheck": ("device-check/c", DeviceCheckInput(cluster="c")),
}
"""Under which id, and with what."""


async def at_peace(env: ClockworkEnvironment) -> None:
    """Until nothing comes by itself, or much has."""
    for _ in range(30):
        if env.clockwork.due() is None:
            break
        await env.clockwork.moment()


async def played(play: Callable[[ClockworkEnvironment], Awaitable[None]]) -> None:
    """In surroundings of its own, where an exception of another type fails a task, as it does with a worker of ours. A task that
    failed fails the test once they are shut down."""
    env = ClockworkEnvironment()
    env.clockwork.failing = []
    env.clockwork._calls |= {call.name: call for call in calls_of(FenceDeviceActivities, DeviceReadingActivities)}
    try:
        await play(env)
    finally:
        await env.shutdown()


async def begun(env: ClockworkEnvironment, name: str, arguments: list[RawValue]) -> WorkflowHandle[Any, Any]:
    async with worker(env.client, task_queue="q", workflows=WORKFLOWS):
        handle = await env.client.start_workflow(name, args=arguments, id=STARTS[name][0], task_queue="q")
        await at_peace(env)
    return handle


@examples(80)
@given(st.sampled_from(sorted(STARTS)).flatmap(lambda name: st.tuples(st.just(name), said(STARTS[name][1]))))
@example(("Fencing", [raw(b'{"cluster": "c", "node": 7}')]))
@example(("Remediation", []))
@example(("DeviceCheck", [raw(b'{"cluster": "c", "every": "-PT1H"}')]))
@example(("DeviceCheck", [raw(b'{"cluster": "c", "due": "9999-12-31T23:59:59Z"}')]))
def test_an_input_that_can_t_be_used_ends_the_workflow_with_an_error_of_ours(start: tuple[str, list[RawValue]]) -> None:
    name, arguments = start

    async def play(env: ClockworkEnvironment) -> None:
        handle = await begun(env, name, arguments)
        found = env.clockwork.executions[STARTS[name][0]]
        if found.failure:
            with pytest.raises(WorkflowFailureError) as refused:
                await handle.result()
            assert error_type(refused.value) is ErrorType.INVALID_CONFIG, refused.value.cause

    asyncio.run(played(play))


SIGNALS: dict[str, Any] = {"node_changed": NOW, "permit_granted": None, "look_again": None}
UPDATES = {
    "abort": AbortRequest(who="ada", reason="r"),
    "hold": PERSON,
    "resume": PERSON,
    "return_path": PERSON,
    "acknowledge_off": PERSON,
}
QUERIES = {"status": None, "record": None}
WORDS = {("signal", name): value for name, value in SIGNALS.items()}
WORDS |= {("update", name): value for name, value in UPDATES.items()}
WORDS |= {("query", name): value for name, value in QUERIES.items()}
Word = tuple[tuple[str, str], list[RawValue]]


async def speak(handle: WorkflowHandle[Any, Any], word: Word) -> bool:
    """Whether it was taken."""
    (how, name), arguments = word
    try:
        await getattr(handle, "execute_update" if how == "update" else how)(name, args=arguments)
    except (WorkflowUpdateFailedError, WorkflowQueryFailedError, RPCError):
        return False
    return True


def words(said_of: dict[tuple[str, str], Any]) -> st.SearchStrategy[Word]:
    return st.sampled_from(sorted(said_of)).flatmap(lambda key: st.tuples(st.just(key), said(said_of[key])))


@examples(40)
@given(st.lists(words(WORDS), min_size=1, max_size=4))
@example([(("signal", "node_changed"), [])])
@example([(("signal", "permit_granted"), [raw(b"7")])])
@example([(("signal", "node_changed"), [raw(b"", "binary/null")])])
@example([(("update", "hold"), [raw(as_bytes(written(PERSON) | {"who": who}))]) for who in ("7", "8")])
def test_whatever_is_said_to_an_episode_that_waits_it_goes_on(spoken: list[Word]) -> None:
    """S44: and what is refused changes nothing."""

    async def play(env: ClockworkEnvironment) -> None:
        async with fencing(env, World(), at="off") as run:
            for word in spoken:
                before = await run.record()
                if not await speak(run.handle, word):
                    assert await run.record() == before
            if not env.clockwork.executions[run.handle.id].closed:
                await speak(run.handle, (("update", "hold"), [raw(as_bytes(written(PERSON)))]))
                for owner in (held := await run.status()).held_by:
                    answer = written(PERSON) | {"question": held.question, "of": owner}
                    await speak(run.handle, (("update", "resume"), [raw(as_bytes(answer))]))
            assert (await run.result()).outcome in Outcome

    asyncio.run(played(play))


MODE = ModeRequest(who="ada", reason="r", mode="drain", nodes=("n1",))
TO_SCANNER: dict[tuple[str, str], Any] = {
    ("signal", "release"): Release(node="n1", incident="i"),
    ("signal", "scan_is_lost"): None,
    ("query", "holds_permits"): PermitQuestions(questions=(PermitQuestion(node="n1", incident="i"),)),
    ("query", "status"): None,
    ("query", "spells"): None,
    ("query", "cluster_uid"): None,
    ("signal", "ask"): ScannerQuestion(id="q", permit=PermitRequest(node="n1", incident="i", workflow_id="episode/c/n1")),
    ("query", "answer"): ScannerQuestion(id="q", portion=PortionRequest(node="n1", incident="i", number=1, pods=3, per_minute=6)),
    ("update", "pause"): PauseRequest(who="ada", reason="r", until=NOW.ready_since),
    ("update", "unpause"): PERSON,
    ("update", "set_mode"): MODE,
    ("update", "stop"): PERSON,
}


def names_of(definition: type, how: str) -> set[str]:
    """What clients may send to a workflow, in one of the three ways."""
    return {
        name
        for name in getattr(
            temporalio.workflow._Definition.must_from_class(definition), "queries" if how == "query" else f"{how}s"
        )
        if name
    }


def test_all_that_a_scanner_takes_is_sent_to_it() -> None:
    assert {(how, name) for how in ("signal", "query", "update") for name in names_of(HealthScanner, how)} == set(TO_SCANNER)


@examples(30)
@given(st.lists(words(TO_SCANNER), min_size=1, max_size=4))
@example([(("update", "set_mode"), [raw(as_bytes(written(MODE) | {"selector": "a in ("}))])])
@example([(("update", "set_mode"), [raw(as_bytes(written(MODE) | {"nodes": "n1"}))])])
@example([(("update", "set_mode"), [raw(as_bytes(written(MODE) | {"mode": ["drain"]}))])])
@example([(("update", "set_mode"), [raw(as_bytes(written(MODE)))]), (("query", "spells"), [raw(b"7")])])
def test_whatever_is_said_to_a_scanner_it_scans_on(spoken: list[Word]) -> None:
    async def play(env: ClockworkEnvironment) -> None:
        async with scanning(env, ScriptedCluster()) as scan:
            for word in spoken:
                await speak(scan.client_handle(), word)

    asyncio.run(played(play))
