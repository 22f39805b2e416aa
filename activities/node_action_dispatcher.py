"""Passes the request of a NodeAction on to a workflow, or starts the episode that it asks for: for people who have only kubectl.

The request names the object, as the command line's does, and the workflow has it verified
(`activities/cluster/acts/attestation.py`). It counts once however often this is tried: an update bears the object's uid as its
id, and only one use is made of an object.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from temporalio.client import Client, WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from activities.contracts.episode_start import start_options
from activities.errors import ErrorType, failure
from policy.episode.messages import (
    EpisodeInput,
    FencingInput,
    Kind,
    Need,
    NeedKind,
    PreservationInput,
    RemediationInput,
    episode_id,
    scanner_id,
)
from policy.episode.operator_commands import ANSWERS, ActionName, NodeActionSpec, Verb
from policy.fence.templates import GROUP, KIND, VERSION
from policy.values.object_refs import ObjectRef

PATIENCE = timedelta(seconds=12)

UPDATES = {
    Verb.ABORT: "abort",
    Verb.ACK_OFF: "acknowledge_off",
    Verb.HOLD: "hold",
    Verb.RESUME: "resume",
    Verb.RETURN_PATH: "return_path",
    Verb.RELEASE: "release",
    Verb.EXTEND: "extend",
    Verb.ISOLATE: "isolate",
}
OF_THE_SCANNER = {Verb.STOP_SCAN: "stop", Verb.PAUSE: "pause", Verb.UNPAUSE: "unpause", Verb.SET_MODE: "set_mode"}


class NodeActionDispatcher:
    """Of the clusters that this process serves. task_queue: where episodes run."""

    def __init__(self, client: Client, *, task_queue: str, page: str = "") -> None:
        """page: the address of our page, to be linked to."""
        self._client = client
        self._task_queue = task_queue
        self._page = page

    async def dispatch(self, cluster: str, spoken: NodeActionSpec, action: ActionName, who: str) -> str:
        """What was answered. Raises NotLicensed with the reason where it is refused, Unreachable where no answer came."""
        try:
            answers = spoken.action is not Verb.ACK_OFF or spoken.question  # else it is the first command about that node
            if (spoken.action in UPDATES and answers) or spoken.action in OF_THE_SCANNER:
                return await self._update(cluster, spoken, action, who)
            return await self._start(cluster, spoken, action, who)
        except WorkflowUpdateFailedError as error:
            raise _refused(str(getattr(error.cause, "message", "") or error.cause)) from error
        except (RPCError, WorkflowUpdateRPCTimeoutOrCancelledError) as error:
            if isinstance(error, RPCError) and error.status is RPCStatusCode.NOT_FOUND:
                what = "scanner" if spoken.action in OF_THE_SCANNER else f"open episode of {spoken.node}"
                raise _refused(f"there is no {what}") from error
            raise failure(ErrorType.UNREACHABLE, f"Temporal or the workflow has not answered yet: {error}") from error

    async def _update(self, cluster: str, spoken: NodeActionSpec, action: ActionName, who: str) -> str:
        update = UPDATES.get(spoken.action) or OF_THE_SCANNER[spoken.action]
        workflow_id = episode_id(cluster, spoken.node) if spoken.action in UPDATES else scanner_id(cluster)
        given: dict[str, Any] = {"who": who, "reason": spoken.reason, "action": action}
        if spoken.action is Verb.ABORT:
            given["power_on"] = spoken.power_on
        if spoken.action in ANSWERS:
            given["question"] = spoken.question
        if spoken.action is Verb.ACK_OFF:
            given["override"] = spoken.override
        if spoken.action is Verb.EXTEND:
            given |= {"until": spoken.until, "hold": spoken.hold, "shorten": spoken.shorten}
        if spoken.action in {Verb.RESUME, Verb.UNPAUSE}:
            given["of"] = spoken.of
        if spoken.action in {Verb.PAUSE, Verb.HOLD}:
            given["until"] = spoken.until
        if spoken.action is Verb.SET_MODE:
            given |= {"mode": spoken.mode, "nodes": spoken.nodes, "selector": spoken.selector}
        workflow = self._client.get_workflow_handle(workflow_id)
        answer: str = await workflow.execute_update(update, given, id=action.uid, result_type=str, rpc_timeout=PATIENCE)
        return answer

    async def _start(self, cluster: str, spoken: NodeActionSpec, action: ActionName, who: str) -> str:
        kind, made = EPISODES[spoken.action]
        incident = action.uid.replace("-", "")[:12]
        common = {"cluster": cluster, "node": spoken.node, "reason": spoken.reason, "requester": who, "incident": incident}
        wanted = made(spoken, common | {"action": action})
        try:
            await self._client.start_workflow(
                kind.value,
                wanted,
                task_queue=self._task_queue,
                memo={"incident": incident},
                rpc_timeout=PATIENCE,
                **start_options(kind, wanted, page=self._page),
            )
        except WorkflowAlreadyStartedError as error:
            open_one = await self._client.get_workflow_handle(episode_id(cluster, spoken.node)).describe(rpc_timeout=PATIENCE)
            holder = (await open_one.memo()).get("incident", "")
            if holder != incident:
                raise _refused(f"{spoken.node} is held by {open_one.workflow_type} {holder}") from error
        return f"{kind.value} of {spoken.node} has begun, incident {incident}"


def _fencing(spoken: NodeActionSpec, given: dict[str, Any]) -> EpisodeInput:
    namespace, _, name = spoken.template.partition("/")
    named = ObjectRef(api_version=f"{GROUP}/{VERSION}", kind=KIND, name=name, namespace=namespace)
    given |= {"override": spoken.override, "seen_off": spoken.action is Verb.ACK_OFF}
    return FencingInput(**given, need=_wish(given), template=named if spoken.template else None)


def _remediation(spoken: NodeActionSpec, given: dict[str, Any]) -> EpisodeInput:
    steps = {"strategies": spoken.strategies, "skip_impossible": spoken.skip_impossible}
    return RemediationInput(**given, need=_wish(given), override=spoken.override, **steps)


def _preservation(spoken: NodeActionSpec, given: dict[str, Any]) -> EpisodeInput:
    return PreservationInput(**given, hold=spoken.hold, isolate=spoken.isolate)


def _wish(given: dict[str, Any]) -> Need:
    return Need(kind=NeedKind.PERSON, reason=given["reason"], requester=given["requester"])


EPISODES: dict[Verb, tuple[Kind, Callable[[NodeActionSpec, dict[str, Any]], EpisodeInput]]] = {
    Verb.FENCE: (Kind.FENCING, _fencing),
    Verb.ACK_OFF: (Kind.FENCING, _fencing),
    Verb.REMEDIATE: (Kind.REMEDIATION, _remediation),
    Verb.PRESERVE: (Kind.PRESERVATION, _preservation),
}


def _refused(why: str) -> Exception:
    return failure(ErrorType.NOT_LICENSED, why)
