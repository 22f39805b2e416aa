"""NodeActions that people have made with kubectl are carried out, and answered in their status: Done, or Refused with the reason.

The scan sees them (`watch/watches.py`) and calls `begin_due_work`; the work is done beside it, and it waits for none of that. A
process that dies in the middle is followed by another one that passes the same command on again: it counts once
(`activities/temporal_clients.py`). None with a name that may be another person's is carried out, also where commands that
are not verified are accepted: people who may make objects could not command at all without them. Those that a command line has
made are passed on by it; one of which no workflow has made use soon, as it was refused, is answered with that. What is a day
old is deleted. The second section is what a workflow asks about such an object.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.api.paths import ADMISSION_BINDINGS, ADMISSION_POLICIES, NODE_ACTIONS
from activities.cluster.api.refusals import ObjectNotFound, edit, unless_gone
from activities.cluster.api.served_cluster import ClusterActivities, ServedCluster
from activities.cluster.objects.live_node import find_node
from activities.cluster.report.background_writer import BackgroundWriter
from activities.contracts.attestation import AttestationActivities, Verification, VerifyRequest
from activities.errors import ErrorType, error_type, failure
from activities.licences import Licences
from policy.checks.verdict import MACHINE
from policy.episode.node_action import (
    NAMESPACE,
    NODE_ACTION_VALID_FOR,
    POLICY,
    SENT_LABEL,
    ActionName,
    NodeActionSpec,
    SealedCommand,
    Verb,
    difference,
    doubt,
    read_spec,
)
from policy.episode.proofs import ran_since
from policy.objects.nodes import NodeView
from policy.values.display_text import in_a_line
from policy.values.times import EARLIEST, moment_of, written

log = logging.getLogger(__name__)

ACCEPTED, DONE, REFUSED = "Accepted", "Done", "Refused"
"""Phases of an object: a workflow has made use of it; how it was answered."""
BEGINNINGS = {Verb.FENCE, Verb.PRESERVE, Verb.REMEDIATE}
"""Passed on again after their episode has ended, they would begin another one, if only to be refused."""
AT_ONCE = 8
TRY_AGAIN_SECONDS = 5.0
UNUSED_AFTER = timedelta(seconds=30)
"""By then the command line that made it has its answer. A workflow that makes use of it later, as no worker ran, says so."""
KEPT_FOR = timedelta(days=1)
LOOK_AGAIN_SECONDS = 3600.0
"""Whether something is a day old by now."""

Dispatch = Callable[[str, NodeActionSpec, ActionName, str], Awaitable[str]]
"""Passes a command on, of a cluster, in a person's name. The answer; raises NotLicensed where it is refused."""


class NodeActionHandler(BackgroundWriter):
    """Of one cluster. found: the objects as last seen, by namespace and name. One per view; `close` ends what is under way."""

    def __init__(
        self,
        cluster: str,
        connection: ClusterConnection,
        found: Mapping[str, JsonObject],
        dispatch: Dispatch,
        *,
        kept_for: timedelta = KEPT_FOR,
        on_change: Callable[[], None],
    ) -> None:
        super().__init__("NodeActions", on_change=on_change)
        self._cluster = cluster
        self._connection = connection
        self._found = found
        self._dispatch = dispatch
        self._kept_for = kept_for
        self._not_before: dict[str, float] = {}
        """Until when each object is left alone: our answer to it may still be on its way to us."""

    def begin_due_work(self) -> float:
        """See to what is there, beside the caller. In how many seconds to call again; `on_change` says when work has ended."""
        if self.busy or not self._found:
            return float("inf")
        now = asyncio.get_running_loop().time()
        self._not_before = {uid: until for uid, until in self._not_before.items() if until > now}
        wait = {_uid(each): self._due_in(each).total_seconds() for each in self._found.values()}
        due = [each for each in self._found.values() if wait[_uid(each)] <= 0]
        if now_due := [each for each in due if _uid(each) not in self._not_before]:
            self._not_before |= dict.fromkeys(map(_uid, now_due), now + TRY_AGAIN_SECONDS)
            self.begin(self._work(now_due))
            return float("inf")
        left = (self._not_before[uid] - now if seconds <= 0 else seconds for uid, seconds in wait.items())
        return min(LOOK_AGAIN_SECONDS, *left)

    async def _work(self, due: list[JsonObject]) -> None:
        for first in range(0, len(due), AT_ONCE):
            await asyncio.gather(*(self._see_to(each) for each in due[first : first + AT_ONCE]))

    def _due_in(self, found: JsonObject) -> timedelta:
        """Until it is seen to, 0 and less: now."""
        phase, sent = _status(found).get("phase"), _is_passed_on(found)
        if phase in {DONE, REFUSED} or (sent and phase):
            return self._kept_for - self._age(found)
        return UNUSED_AFTER - self._age(found) if sent else timedelta(0)

    def _age(self, found: JsonObject) -> timedelta:
        made = moment_of(found["metadata"].get("creationTimestamp"))
        return self._connection.now() - made if made is not None else timedelta.max

    async def _see_to(self, found: JsonObject) -> None:
        name = found["metadata"]["name"]
        try:
            if self._age(found) > self._kept_for:
                await self._connection.delete(node_action_path(name), uid=found["metadata"]["uid"])
            else:
                await self._answer(found, *await self._carried_out(found))
        except ObjectNotFound:
            return
        except ApplicationError as error:
            log.warning("NodeAction/%s is not answered yet: %s", name, error.message)

    async def _carried_out(self, found: JsonObject) -> tuple[str, str]:
        """The phase, and what was answered. What a workflow has made use of was accepted, however long ago; where its answer was
        lost it is passed on again for that, and is obeyed once."""
        spec: dict[str, Any] = found.get("spec") or {}
        status = found.get("status") or {}
        used = bool(status.get("usedBy"))
        if used and (spec.get("action") in BEGINNINGS or (spec.get("action") == Verb.ACK_OFF and not spec.get("question"))):
            return DONE, f"{status.get('workflow')} has begun"
        if not used and _is_passed_on(found):
            return REFUSED, "not carried out: the command line that made it was refused, and said why, or did not send it"
        if not used and self._age(found) > NODE_ACTION_VALID_FOR:
            seconds = NODE_ACTION_VALID_FOR.total_seconds()
            return REFUSED, f"it is older than {seconds:.0f} s, and it was not carried out: create a new one"
        if not used and (problem := await doubt_of(self._connection, found)):
            return REFUSED, problem
        action = ActionName(name=found["metadata"]["name"], uid=found["metadata"]["uid"])
        try:
            return DONE, await self._dispatch(self._cluster, read_spec(spec), action, str(spec.get("requestedBy", "")))
        except ValueError as error:
            return REFUSED, str(error)
        except ApplicationError as error:
            if error_type(error) is not ErrorType.NOT_LICENSED:
                raise
            if used:
                return DONE, f"{status.get('workflow')} has accepted it; asked again for its answer: {error.message}"
            return REFUSED, error.message

    async def _answer(self, found: JsonObject, phase: str, message: str) -> None:
        name = found["metadata"]["name"]

        async def once() -> None:
            live = await self._connection.get(node_action_path(name))
            status = live.get("status") or {}
            is_answered = status.get("phase") in {DONE, REFUSED} or (phase == REFUSED and status.get("usedBy"))
            if live["metadata"]["uid"] != found["metadata"]["uid"] or is_answered:
                return
            answered = status | {"phase": phase, "message": in_a_line(message, 1024), "at": written(self._connection.now())}
            operations = [
                {"op": "test", "path": "/metadata/resourceVersion", "value": live["metadata"]["resourceVersion"]},
                {"op": "add", "path": "/status", "value": answered},
            ]
            await self._connection.patch_json(node_action_path(name, status=True), operations)

        await edit(f"NodeAction/{name}", once, look_again=True)


async def doubt_of(connection: ClusterConnection, action: JsonObject) -> str:
    """Why the name in it may be another person's, "" where the API server sees to it that it is its maker's. Read live."""
    kinds = (ADMISSION_POLICIES, ADMISSION_BINDINGS)
    try:
        policy, binding = await asyncio.gather(*(unless_gone(connection.get(kind.path(POLICY))) for kind in kinds))
    except ApplicationError as error:
        if error.type != ErrorType.FORBIDDEN:
            raise
        return f"whether the API server checks names can't be seen: {error.message}"
    return doubt(policy, binding, moment_of(action["metadata"].get("creationTimestamp")) or EARLIEST)


def _is_passed_on(found: JsonObject) -> bool:
    """By the command line that made it."""
    return SENT_LABEL in (found["metadata"].get("labels") or {})


def _uid(found: JsonObject) -> str:
    return str(found["metadata"]["uid"])


def node_action_path(name: str, *, status: bool = False) -> str:
    return NODE_ACTIONS.path(name, namespace=NAMESPACE, subresource="status" if status else "")


# Which person has commanded, as the cluster's API server attests it (S42, S33) ---------------------------------------------
#
# By a NodeAction that they made, read live and used once. The server has compared the name in it with the caller's, and has asked
# its own authorizer, where the policy of deploy/people.yaml is in force (`policy/episode/node_action.py`). It says what the
# workflow was asked; it is young; nothing else has made use of it.


class ClusterAttestation(ClusterActivities, AttestationActivities):
    """Served by the workers of one cluster's queue. required: whether a command that is not verified is refused."""

    def __init__(self, served: ServedCluster, licences: Licences, *, required: bool = False) -> None:
        super().__init__(served)
        self._licences = licences
        self._required = required
        self._clock = served.judged_at

    async def verify(self, request: VerifyRequest) -> Verification:
        """The object's use is noted before the workflow learns of it, in the version that was read: no two make use of it. The
        Node is read after the word was given: one that has started since then is not the one that was seen off (S8)."""

        async def once() -> Verification:
            try:
                found = await self._connection.get(node_action_path(request.action.name))
            except ObjectNotFound:
                raise _refused(request.action, "there is none") from None
            self._expect(request, found)
            view = await self._node(request.spec.node)
            made = moment_of(found["metadata"].get("creationTimestamp")) or EARLIEST
            if request.spec.action is Verb.ACK_OFF and (ran := ran_since(view, made)):
                raise _refused(request.action, ran)
            problem = await doubt_of(self._connection, found)
            if problem and self._required:
                raise _refused(request.action, problem)
            await self._note_use(request, found)
            if problem:
                return Verification(problem=problem)
            speaker = str(found["spec"]["requestedBy"])
            command = SealedCommand(
                spec=request.spec,
                action=request.action.uid,
                speaker=speaker,
                node_uid=view.uid if view is not None else "",
                boot_id=view.boot_id if view is not None else "",
                ready_since=view.ready_since if view is not None else None,
                kind=activity.info().workflow_type or "",
            )
            return Verification(speaker=speaker, sealed=self._licences.seal_command(self._cluster, request.incident, command))

        return await edit(f"NodeAction/{request.action.name}", once, look_again=True)

    async def _node(self, name: str) -> NodeView | None:
        """As it is now; None where there is none of that name, or what is commanded is about none."""
        found = await find_node(self._connection, name) if name and not name.startswith(MACHINE) else None
        return found.view if found is not None else None

    def _expect(self, request: VerifyRequest, found: JsonObject) -> None:
        metadata, used = found["metadata"], _status(found).get("usedBy", "")
        made = moment_of(metadata.get("creationTimestamp"))
        if metadata.get("uid") != request.action.uid:
            raise _refused(request.action, "it is another object of that name")
        try:
            differs = difference(request.spec, read_spec(found.get("spec") or {}))
        except ValueError as error:
            raise _refused(request.action, str(error)) from error
        if differs:
            raise _refused(request.action, f"its {differs} is another than what was said")
        if used not in {"", _use(request)}:
            raise _refused(request.action, "it has been used already")
        if made is None or not (abs(self._clock() - made) <= NODE_ACTION_VALID_FOR):
            raise _refused(request.action, f"it is from {metadata.get('creationTimestamp')}, and too old: say it once more")

    async def _note_use(self, request: VerifyRequest, found: JsonObject) -> None:
        if _status(found).get("usedBy") == _use(request):
            return
        workflow_id = activity.info().workflow_id or ""
        used = {"workflow": workflow_id, "usedBy": _use(request), "at": written(self._clock())}
        status = {"phase": ACCEPTED} | _status(found) | used  # an answer may stand there: that an episode has begun
        if _is_passed_on(found) and status["phase"] == REFUSED:  # that none had made use of it yet
            status |= {"phase": ACCEPTED, "message": ""}
        operations = [
            {"op": "test", "path": "/metadata/uid", "value": found["metadata"]["uid"]},
            {"op": "test", "path": "/metadata/resourceVersion", "value": found["metadata"]["resourceVersion"]},
            {"op": "add", "path": "/status", "value": status},
        ]
        await self._connection.patch_json(node_action_path(request.action.name, status=True), operations)


def _use(request: VerifyRequest) -> str:
    """What makes use of the object: a command to that incident, in the run that Temporal names (S49)."""
    info = activity.info()
    return " ".join(filter(None, (info.workflow_id, info.workflow_run_id, request.use, request.incident)))


def _status(found: JsonObject) -> JsonObject:
    return found.get("status") or {}


def _refused(action: ActionName, why: str) -> ApplicationError:
    return failure(ErrorType.NOT_LICENSED, f"NodeAction/{action.name}: {why}")
