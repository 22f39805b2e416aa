"""What a deployment with keys tells Temporal is read by nobody without them, and by everybody with them (S12)."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from temporalio import activity, workflow
from temporalio.api.common.v1 import Payload
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest
from temporalio.client import Client, WorkflowFailureError
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.worker import Worker

from activities.cluster.api.connection import ClusterConnection
from starter.handles.calls import task_failure
from tests.workers.test_signing_keys import Api
from workers import deployment_keys
from workers.configuration.clusters import ClusterSettings
from workers.configuration.process_settings import TemporalSettings
from workers.connect import connect
from workers.deployment_keys import encryption_of, new_keys
from workers.errors import SettingsError
from workers.payloads.converter import DATA_CONVERTER
from workers.payloads.encryption import ENCODING, Encryption

CANARY = "canary-in-a-payload"
SOON = timedelta(seconds=10)
OLD, NEW = (each.strip().encode() for each in (new_keys(), new_keys()))


def plain(text: str = CANARY) -> Payload:
    return DATA_CONVERTER.payload_converter.to_payload(text)


async def test_what_is_encrypted_is_read_with_the_key_and_shows_nothing_without() -> None:
    (sealed,) = await Encryption([OLD]).encode([plain()])
    assert CANARY.encode() not in sealed.SerializeToString()
    assert OLD not in sealed.SerializeToString()
    assert await Encryption([OLD]).decode([sealed]) == [plain()]
    assert await Encryption([OLD]).encode([plain()]) != [sealed]


async def test_the_newest_key_encrypts_and_all_decrypt() -> None:
    old, both, new = Encryption([OLD]), Encryption([NEW, OLD]), Encryption([NEW])
    before, after = await old.encode([plain()]), await both.encode([plain()])
    assert await both.decode([*before, *after]) == [plain(), plain()]
    assert await new.decode(after) == [plain()]


async def test_a_key_that_is_lost_is_told_by_its_setting() -> None:
    sealed = await Encryption([OLD]).encode([plain()])
    with pytest.raises(SettingsError, match=r"temporal\.payload_keys_file or .*payload_keys_secret: expected the key \w{16},"):
        await Encryption([NEW]).decode(sealed)
    with pytest.raises(SettingsError, match="none is known here"):
        await DATA_CONVERTER.decode(sealed)


@pytest.mark.parametrize("where", ["key", "nonce", "text", "short"])
async def test_a_payload_that_was_changed_is_refused(where: str) -> None:
    (sealed,) = await Encryption([OLD]).encode([plain()])
    (other,) = await Encryption([NEW]).encode([plain()])
    both = Encryption([OLD, NEW])
    if where == "key":
        sealed.metadata["encryption-key-id"] = other.metadata["encryption-key-id"]
    elif where == "short":
        sealed.data = sealed.data[:5]
    else:
        at = 0 if where == "nonce" else len(sealed.data) - 1
        sealed.data = sealed.data[:at] + bytes([sealed.data[at] ^ 1]) + sealed.data[at + 1 :]
    with pytest.raises(SettingsError, match="the payload was changed since"):
        await both.decode([sealed])


async def test_a_secret_is_read_in_the_cluster_we_run_in(monkeypatch: pytest.MonkeyPatch) -> None:
    api, asked = Api(), []

    class Connection:
        async def __aenter__(self) -> ClusterConnection:
            return cast("ClusterConnection", api)

        async def __aexit__(self, *_: object) -> None: ...

    async def opened(name: str, cluster: ClusterSettings) -> Connection:
        asked.append(name)
        return Connection()

    monkeypatch.setattr(deployment_keys, "open_connection", opened)
    settings = TemporalSettings(payload_keys_secret="nodewarden/nodewarden-payload-keys")
    clusters = {"edge": ClusterSettings(context="edge"), "prod": ClusterSettings(in_cluster=True)}
    first = await encryption_of(settings, lambda: clusters)
    again = await encryption_of(settings, lambda: clusters)
    assert first is not None
    assert again is not None
    assert await again.decode(await first.encode([plain()])) == [plain()]
    assert set(asked) == {"prod"}
    api.away = 1000
    with pytest.raises(SettingsError, match=r"temporal\.payload_keys_secret: Secret/nodewarden/.*connection refused"):
        await encryption_of(settings, lambda: clusters, patience=timedelta(seconds=1))
    with pytest.raises(SettingsError, match=r"set temporal\.payload_keys_file"):
        await encryption_of(settings)


@activity.defn
async def fail(told: str) -> None:
    activity.heartbeat(f"{told} heartbeat")
    raise ApplicationError(f"{told} message", f"{told} detail", type="InvalidConfig", non_retryable=True)


@workflow.defn(name="Teller", sandboxed=False)
class Teller:
    """Every way in which something is told to Temporal."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    @workflow.run
    async def run(self, told: str) -> str:
        await workflow.wait_condition(lambda: len(self.heard) == 2)
        memo = workflow.memo()["note"]
        try:
            await workflow.execute_activity(
                fail, told, start_to_close_timeout=timedelta(seconds=5), retry_policy=RetryPolicy(maximum_attempts=1)
            )
        except ActivityError as error:
            cause = error.cause
            assert isinstance(cause, ApplicationError)
            raise ApplicationError(f"{cause.message}, {cause.details[0]}, {memo}", *self.heard) from error
        return told

    @workflow.signal
    def hear(self, what: str) -> None:
        self.heard.append(what)

    @workflow.update
    async def answer(self, what: str) -> str:
        self.heard.append(what)
        return f"{what} answered"

    @workflow.query
    def hears(self, what: str) -> str:
        return f"{what} {len(self.heard)}"


def keys(folder: Path, *each: bytes) -> TemporalSettings:
    file = folder / f"keys-{uuid.uuid4().hex[:6]}"
    file.write_bytes(b"\n".join(each))
    return TemporalSettings(payload_keys_file=file)


async def client_with(server: str, settings: TemporalSettings) -> Client:
    return await connect(settings.model_copy(update={"address": server}), patience=SOON)


async def test_nothing_that_goes_through_a_client_with_keys_is_readable(server: str, tmp_path: Path) -> None:
    """Input, memo, signal, update, query, heartbeat, failures with their details: not in the history, nor beside it."""
    client = await client_with(server, keys(tmp_path, NEW, OLD))
    told = f"teller-{uuid.uuid4().hex[:6]}"
    async with Worker(client, task_queue=told, workflows=[Teller], activities=[fail]):
        handle = await client.start_workflow(Teller.run, CANARY, id=told, task_queue=told, memo={"note": f"{CANARY} memo"})
        assert await handle.query(Teller.hears, CANARY) == f"{CANARY} 0"
        await handle.signal(Teller.hear, f"{CANARY} signal")
        assert await handle.execute_update(Teller.answer, f"{CANARY} update") == f"{CANARY} update answered"
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()
    assert isinstance(failed.value.cause, ApplicationError)
    assert failed.value.cause.message == f"{CANARY} message, {CANARY} detail, {CANARY} memo"
    assert failed.value.cause.details == (f"{CANARY} signal", f"{CANARY} update")
    assert await (await handle.describe()).memo() == {"note": f"{CANARY} memo"}
    described = await client.workflow_service.describe_workflow_execution(
        DescribeWorkflowExecutionRequest(namespace="default", execution={"workflow_id": told})  # type: ignore[arg-type]
    )
    history = (await handle.fetch_history()).to_json() + str(described)
    assert "Encoded failure" in history
    for shape in _shapes(CANARY):
        assert shape not in history


def _shapes(text: str) -> set[str]:
    import base64

    inside = {base64.b64encode(b" " * before + text.encode())[4 if before else 0 :].decode() for before in range(3)}
    return {text, *(each.rstrip("=")[:-2] for each in inside)}


@pytest.mark.parametrize(
    ("of_the_worker", "expected"), [((), "none is known here"), ((NEW,), "known here: ")], ids=["no key", "another key"]
)
async def test_an_episode_whose_key_is_lost_waits_and_says_for_what(
    server: str, tmp_path: Path, of_the_worker: tuple[bytes, ...], expected: str
) -> None:
    """It does not fail, and goes on once the key is back."""
    client = await client_with(server, keys(tmp_path, OLD))
    told, soon = f"lost-{uuid.uuid4().hex[:6]}", timedelta(seconds=1)  # else an attempt that ends with its worker is waited for
    handle = await client.start_workflow(Teller.run, CANARY, id=told, task_queue=told, task_timeout=soon)
    settings = keys(tmp_path, *of_the_worker) if of_the_worker else TemporalSettings()
    async with Worker(await client_with(server, settings), task_queue=told, workflows=[Teller], activities=[fail]):
        reader = await client_with(server, keys(tmp_path, OLD, NEW))
        async with asyncio.timeout(20):
            while (stuck := await task_failure(reader, told)) is None:
                await asyncio.sleep(0.05)
    assert "temporal.payload_keys_file or temporal.payload_keys_secret: expected the key" in stuck.message
    assert expected in stuck.message
    both = await client_with(server, keys(tmp_path, NEW, OLD))
    async with Worker(both, task_queue=told, workflows=[Teller], activities=[fail]):
        assert await both.get_workflow_handle(told).query(Teller.hears, "") == " 0"
    await handle.terminate("it was only to go on")


async def test_a_history_from_before_goes_on_once_there_are_keys(server: str, tmp_path: Path) -> None:
    before = await client_with(server, TemporalSettings())
    told = f"mixed-{uuid.uuid4().hex[:6]}"
    async with Worker(before, task_queue=told, workflows=[Teller], activities=[fail]):
        handle = await before.start_workflow(Teller.run, CANARY, id=told, task_queue=told, memo={"note": "before"})
        await handle.signal(Teller.hear, "before")
        assert await handle.query(Teller.hears, "") == " 1"
    after = await client_with(server, keys(tmp_path, NEW))
    async with Worker(after, task_queue=told, workflows=[Teller], activities=[fail]):
        now = after.get_workflow_handle(told)
        assert await now.execute_update("answer", "after") == "after answered"
        with pytest.raises(WorkflowFailureError) as failed:
            await now.result()
    assert isinstance(failed.value.cause, ApplicationError)
    assert failed.value.cause.details == ("before", "after")
    encodings: Callable[[Any], set[bytes]] = lambda payloads: {each.metadata["encoding"] for each in payloads}  # noqa: E731
    events = (await now.fetch_history()).events
    assert encodings(events[0].workflow_execution_started_event_attributes.input.payloads) == {b"json/plain"}
    accepted = [each.workflow_execution_update_accepted_event_attributes for each in events]
    sent = [payload for each in accepted for payload in each.accepted_request.input.args.payloads]
    assert encodings(sent) == {ENCODING.encode()}
