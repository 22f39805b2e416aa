"""What the activities of a cluster ask of Temporal: permits and modes of the scanner, devices of their check, repairs of a
machine, records of spells, and what NodeActions command.

`ScannerPermits` asks whether a permit is held at the moment of use: the last look's question (S20). Where the scanner can't be
asked, also while Temporal is away (S37), that is not known, and what can't be proven held licenses nothing. Looks of one moment
ask together (`QueryLine`), and no answer is older than the look that asked for it (S14, S20, S38).
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType, ResetReapplyExcludeType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import SearchAttributeKey, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from activities.contracts import search_attributes
from activities.contracts.episode_start import start_options
from activities.errors import ErrorType, failure
from activities.our_workflows import NotOurs, OurWorkflows, QueryLine, is_silent
from policy.episode.messages import (
    EpisodeInput,
    FencingInput,
    Kind,
    Need,
    NeedKind,
    PreservationInput,
    RemediationInput,
    device_check_id,
    episode_id,
    scanner_id,
)
from policy.episode.modes import ClusterModes
from policy.episode.node_action import ANSWERS, ActionName, NodeActionSpec, Verb
from policy.episode.permits import PermitQuestion, PermitQuestions, silent_scanner
from policy.fence.credential_hosts import CredentialHosts
from policy.fence.template_reader import GROUP, KIND, VERSION
from policy.history.offenders import FoundRepairs, OffenderAnswer, OffenderRules, hardware_of, offence
from policy.history.spells import OBSERVATION, ObservationRecord
from policy.values.display_text import counted, in_a_line
from policy.values.object_refs import ObjectRef

QUERY_TIMEOUT = timedelta(seconds=5)
"""So long a look waits for its answer, its turn included."""


class ScannerPermits:
    """Asks the running scanners of the clusters that this process serves."""

    def __init__(self, workflows: OurWorkflows) -> None:
        self._workflows = workflows
        self._lines: dict[str, QueryLine[PermitQuestion, _Answers]] = {}

    async def holds(self, cluster: str, node: str, incident: str, override: str = "") -> tuple[bool, str]:
        """Whether that incident may disrupt that node, and why not. Raises Unreachable where the scanner gives no answer. That is
        no yes (S20), and it says nothing of the permit: hundreds of episodes that then asked for the one they have would keep a
        busy scanner from answering at all."""
        answer = await self._answer(cluster, PermitQuestion(node=node, incident=incident, override=override))
        return answer.held, answer.reason

    async def paused(self, cluster: str) -> str:
        """Why nothing may be disrupted now, "" where a permit decides. Raises as `holds` does."""
        return (await self._answer(cluster, PermitQuestion(node="", incident=""))).paused

    async def modes(self, cluster: str) -> ClusterModes:
        """What modes are set for its nodes. Raises where the scanner can't be asked (S20, S52)."""
        answers = await self._answers(cluster, PermitQuestion(node="", incident=""))
        if answers.modes is None:
            raise failure(ErrorType.UNREACHABLE, answers.unset or answers.problem)
        return answers.modes

    async def _answer(self, cluster: str, question: PermitQuestion) -> PermitQuestion:
        return (await self._answers(cluster, question)).of(question)

    async def _answers(self, cluster: str, question: PermitQuestion) -> _Answers:
        line = self._lines.setdefault(cluster, QueryLine(partial(self._ask, cluster)))
        try:
            async with asyncio.timeout(QUERY_TIMEOUT.total_seconds()):
                return await line.answer(question)
        except TimeoutError as error:
            raise failure(ErrorType.UNREACHABLE, silent_scanner(cluster)) from error

    async def _ask(self, cluster: str, questions: tuple[PermitQuestion, ...]) -> _Answers:
        asked = PermitQuestions(questions=questions)
        try:
            answered: PermitQuestions = await self._workflows.query(
                scanner_id(cluster), "holds_permits", asked, answer=PermitQuestions, within=QUERY_TIMEOUT
            )
        except WorkflowQueryRejectedError:
            return _Answers(problem=f"the scanner of {cluster} has been stopped")
        except (RPCError, WorkflowQueryFailedError, NotOurs) as error:
            silent = isinstance(error, RPCError) and is_silent(error)
            why = silent_scanner(cluster) if silent else f"the scanner of {cluster} can't be asked: {error}"
            raise failure(ErrorType.UNREACHABLE, why) from error
        found = {(each.node, each.incident, each.override): each for each in answered.questions}
        return _Answers(
            problem=f"the scanner of {cluster} has not said who holds the permit",
            unset=f"the scanner of {cluster} has not found out yet which modes are set",
            modes=answered.modes,
            found=found,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answers:
    """To what was asked together. problem: why what is not found here is a no. unset: why there are no modes, "" where that is
    the problem, too."""

    problem: str
    unset: str = ""
    modes: ClusterModes | None = None
    found: Mapping[tuple[str, str, str], PermitQuestion] = field(default_factory=dict)

    def of(self, asked: PermitQuestion) -> PermitQuestion:
        """The answer to one question."""
        no = replace(asked, reason=self.problem, paused=self.problem)
        return self.found.get((asked.node, asked.incident, asked.override), no)


async def report_lost_scan(client: Client, cluster: str) -> None:
    """Have the cluster's scanner, where one runs, scan anew if its poll rests. Raises Unreachable."""
    try:
        await client.get_workflow_handle(scanner_id(cluster)).signal("scan_is_lost", rpc_timeout=SIGNAL_TIMEOUT)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise failure(ErrorType.UNREACHABLE, f"Temporal has not answered yet: {error}") from error


FAILS_FROM = 3
"""From this attempt on a workflow task fails: a worker that was killed costs one, and takes it up again with the next."""


async def task_attempts(client: Client, workflow_id: str) -> int:
    """Which attempt at its pending workflow task a workflow is at, 0 where none is pending. A history has the failure of a first
    attempt alone: where that one timed out, it has none. Raises Unreachable."""
    try:
        described = await client.get_workflow_handle(workflow_id).describe(rpc_timeout=CHECK_TIMEOUT)
    except RPCError as error:
        return _none(error)
    return described.raw_description.pending_workflow_task.attempt


def _none(error: RPCError) -> int:
    if error.status is RPCStatusCode.NOT_FOUND:
        return 0
    raise failure(ErrorType.UNREACHABLE, f"Temporal has not answered yet: {error}") from error


PROBLEMS = SearchAttributeKey.for_keyword_list("TemporalReportedProblems")
REFUSES = tuple(f"cause=WorkflowTaskFailedCause{each}" for each in ("Bad", "PayloadsTooLarge"))
"""How Temporal says of a workflow, once five tasks in a row have failed, that it refuses what they answer, or the SDK what is too
long for it."""


async def look_after_scanner(client: Client, workflows: OurWorkflows, cluster: str) -> int:
    """Have a scanner that runs and does not scan begin anew, if Temporal refuses each answer of its workflow task. Answers as
    `task_attempts`, 0 of one that is not ours (S49). Raises Unreachable.

    A fault of the SDK may write a history of which each replay is refused (temporalio/sdk-rust#888), and a server of which the
    disk was full may refuse an answer that fits its history (docs/reliability.md). Neither passes by itself, and the workflow
    sees neither. Nor does an answer become shorter that is too long: what made it so may be gone (S41). A failure of our code, or
    of a replay, is no refusal.
    """
    try:
        described = await workflows.described(scanner_id(cluster), within=CHECK_TIMEOUT)
        problems = described.typed_search_attributes.get(PROBLEMS) or ()
        if described.status is WorkflowExecutionStatus.RUNNING and any(each.startswith(REFUSES) for each in problems):
            await _begin_anew(client, workflows, described, "; ".join(problems))
    except NotOurs as error:
        log.warning("the scanner of %s is not looked after: %s", cluster, error)
        return 0
    except RPCError as error:
        return _none(error)
    return described.raw_description.pending_workflow_task.attempt


async def _begin_anew(client: Client, workflows: OurWorkflows, described: WorkflowExecutionDescription, problems: str) -> None:
    """Reset it to its first task, without what was said since: it takes over what people had set (S44, S52), and episodes that it
    has not answered ask again."""
    handle = client.get_workflow_handle(described.id, run_id=described.run_id)
    completed = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
    events = handle.fetch_history_events(page_size=FIRST_EVENTS, rpc_timeout=CHECK_TIMEOUT)
    first = await anext((each.event_id async for each in events if each.event_type == completed), None)
    if first is None:
        return  # its input is refused: the next one would be refused as well
    # Another worker may have reset it meanwhile, and Temporal resets a run as often as it is asked: since 1.31 it compares the id
    # of a request with those of starts alone. Two that ask within milliseconds each reset it; the last one counts.
    if (await workflows.described(described.id, within=CHECK_TIMEOUT)).run_id != described.run_id:
        return
    log.warning("%s: Temporal refuses what its workflow tasks answer (%s): it begins anew", described.id, problems)
    await client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=described.id, run_id=described.run_id),
            reason=f"nodewarden: Temporal refuses what its workflow tasks answer ({problems})",
            workflow_task_finish_event_id=first,
            request_id=described.run_id,
            reset_reapply_exclude_types=SAID_SINCE,
        ),
        timeout=SIGNAL_TIMEOUT,
    )


FIRST_EVENTS = 20
SAID_SINCE = (
    ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_SIGNAL,
    ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_UPDATE,
)

# A worker's side of the check of fence devices: which devices it has found to be configured for several nodes, asked of it by
# looks (S39), where it has met each credential (S40), and which policies it is to look at.
#
# It resolves all nodes, every hour; a look could not. What it says is where to look, not what is so: a look resolves those nodes
# itself. It is asked once a minute and process, however many nodes are looked at, and where it can't be asked, what it said
# last is all that is known: it can only say no.

ASKED_AGAIN_SECONDS = 60.0
CHECK_TIMEOUT = timedelta(seconds=2)
SIGNAL_TIMEOUT = timedelta(seconds=12)

log = logging.getLogger(__name__)


class DeviceCheckClient:
    """Of the clusters that this process serves."""

    def __init__(self, client: Client, workflows: OurWorkflows) -> None:
        self._client = client
        self._workflows = workflows
        self._known: defaultdict[str, _Known] = defaultdict(_Known)
        self._lines: dict[str, QueryLine[None, CredentialHosts]] = {}

    async def shared(self, cluster: str) -> Mapping[str, Collection[str]]:
        """The nodes that have it, by the device."""
        known, now = self._known[cluster], asyncio.get_running_loop().time()
        async with known.asking:
            if now >= known.asked_again:
                known.asked_again = now + ASKED_AGAIN_SECONDS
                known.nodes = await self._ask(cluster) or known.nodes
        return known.nodes

    async def hosts(self, cluster: str) -> CredentialHosts:
        """Where each credential may go, by its name, as it is now: a person may just have admitted one."""
        return await self._lines.setdefault(cluster, QueryLine(partial(self._hosts, cluster))).answer(None)

    async def _hosts(self, cluster: str, askers: tuple[None, ...]) -> CredentialHosts:  # noqa: ARG002 - all ask the same
        known = self._known[cluster]
        found: dict[str, tuple[str, ...]] | None = await self._query(cluster, "hosts", dict[str, tuple[str, ...]])
        known.hosts = known.hosts if found is None else found
        return known.hosts

    async def notify_of_policies(self, cluster: str, policies: str) -> None:
        """Have the check look at the policies that name devices now, where one runs. policies: their digest. Raises
        Unreachable."""
        check = self._client.get_workflow_handle(device_check_id(cluster))
        try:
            await check.signal("note_policies", policies, rpc_timeout=SIGNAL_TIMEOUT)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise failure(ErrorType.UNREACHABLE, f"Temporal has not answered yet: {error}") from error

    async def _query(self, cluster: str, name: str, answer: Any) -> Any:
        """None where it can't be asked."""
        try:
            return await self._workflows.query(device_check_id(cluster), name, answer=answer, within=CHECK_TIMEOUT, ended=True)
        except (RPCError, WorkflowQueryFailedError, WorkflowQueryRejectedError, NotOurs) as error:
            log.debug("the check of the fence devices of %s can't be asked (%s): %s", cluster, name, error)
            return None

    async def _ask(self, cluster: str) -> dict[str, set[str]] | None:
        pairs = await self._query(cluster, "shared", tuple[tuple[str, str], ...])
        if pairs is None:
            return None
        found: defaultdict[str, set[str]] = defaultdict(set)
        for node, endpoint in pairs:
            found[endpoint].add(node)
        return found


@dataclass(slots=True)
class _Known:
    """Of one cluster. asked_again: from then on, by the loop's clock."""

    nodes: Mapping[str, Collection[str]] = field(default_factory=dict)
    hosts: CredentialHosts = field(default_factory=dict)
    asked_again: float = 0.0
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)


# How often a machine was repaired, asked of Temporal's visibility while an episode pins its target.
#
# Nothing waits for that where it is only said: an answer that does not come within a moment is "not known", which the record
# says (S37). Where the machine is not to come back by itself, one that is not known is one that may be an offender (S53).

WITHIN, WITHIN_WHERE_ASKED = timedelta(seconds=1), timedelta(seconds=5)
MOST_READ = 100
"""So many of one machine are counted; the limit is lower."""


class MachineRepairs:
    """Those of one cluster. cluster: as the settings name it."""

    def __init__(self, client: Client, cluster: str, rules: OffenderRules) -> None:
        self._client = client
        self._cluster = cluster
        self._rules = rules

    async def found(self, node: str, system_uuid: str) -> FoundRepairs:
        """Whether the machine of that Node is an offender, by one query. An episode that goes on in a new history is one repair;
        the one that asks is counted by itself, whether or not visibility knows it already."""
        if not (hardware := hardware_of(system_uuid)):
            return FoundRepairs()
        answer = self._rules.answer
        asks, keeps = answer is not OffenderAnswer.NOTIFY, answer is OffenderAnswer.KEEP
        within = WITHIN_WHERE_ASKED if asks else WITHIN
        own = activity.info().workflow_id
        query = search_attributes.repairs(self._cluster, datetime.now(UTC) - self._rules.window, hardware=hardware)
        try:
            async with asyncio.timeout(within.total_seconds()):
                runs = [run async for run in self._client.list_workflows(query, limit=MOST_READ, rpc_timeout=within)]
        except (RPCError, TimeoutError) as error:
            why = error.message if isinstance(error, RPCError) else "no answer in time"
            return FoundRepairs(problem=f"Temporal can't list the repairs of the machine: {why}", asks=asks, keeps=keeps)
        others = [run for run in runs if run.id != own or run.status is not WorkflowExecutionStatus.RUNNING]
        before = [search_attributes.repair(run.typed_search_attributes, run.start_time, is_open=False) for run in others]
        found = offence(hardware, node, before, self._rules)
        return FoundRepairs(offence=found, asks=asks, keeps=keeps) if found else FoundRepairs()


# Starts the workflows that record what was seen and not repaired. An id is used once for as long as Temporal remembers.

PATIENCE = timedelta(seconds=10)


class ObservationStarter:
    """task_queue: where workflows run."""

    def __init__(self, client: Client, *, task_queue: str) -> None:
        self._client = client
        self._task_queue = task_queue

    async def start(self, record: ObservationRecord) -> None:
        """Nothing is done where it exists already. Raises Unreachable, and InvalidConfig where Temporal refuses it as it is: it
        is too large, or the namespace lacks a search attribute."""
        first = record.spells[0] if record.spells else None
        about = "node-days" if first is None else f"storm of {counted(len(record.spells), 'node')}" if first.storm else first.node
        ending = f": {first.ending.value}" if first is not None and first.ending is not None and not first.storm else ""
        try:
            await self._client.start_workflow(
                OBSERVATION,
                record,
                id=record.workflow_id,
                task_queue=self._task_queue,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                search_attributes=search_attributes.of_observation(record),
                static_summary=in_a_line(f"{about}{ending}", 200),
                rpc_timeout=PATIENCE,
            )
        except WorkflowAlreadyStartedError:
            return
        except RPCError as error:
            refused = error.status is RPCStatusCode.INVALID_ARGUMENT
            kind = ErrorType.INVALID_CONFIG if refused else ErrorType.UNREACHABLE
            raise failure(kind, f"Temporal can't record {record.workflow_id}: {error.message}") from error


# Passes the request of a NodeAction on to a workflow, or starts the episode that it asks for: for people who have only kubectl.
#
# The request names the object, as the command line's does, and the workflow has it verified
# (`activities/cluster/acts/node_actions.py`). It counts once however often this is tried: an update bears the object's uid as its
# id, and only one use is made of an object.

DISPATCH_PATIENCE = timedelta(seconds=12)

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

    async def dispatch(self, cluster: str, command: NodeActionSpec, action: ActionName, who: str) -> str:
        """What was answered. Raises NotLicensed with the reason where it is refused, Unreachable where no answer came."""
        try:
            answers = command.action is not Verb.ACK_OFF or command.question  # else it is the first command about that node
            if (command.action in UPDATES and answers) or command.action in OF_THE_SCANNER:
                return await self._update(cluster, command, action, who)
            return await self._start(cluster, command, action, who)
        except WorkflowUpdateFailedError as error:
            raise _refused(str(getattr(error.cause, "message", "") or error.cause)) from error
        except (RPCError, WorkflowUpdateRPCTimeoutOrCancelledError) as error:
            if isinstance(error, RPCError) and error.status is RPCStatusCode.NOT_FOUND:
                what = "scanner" if command.action in OF_THE_SCANNER else f"open episode of {command.node}"
                raise _refused(f"there is no {what}") from error
            raise failure(ErrorType.UNREACHABLE, f"Temporal or the workflow has not answered yet: {error}") from error

    async def _update(self, cluster: str, command: NodeActionSpec, action: ActionName, who: str) -> str:
        update = UPDATES.get(command.action) or OF_THE_SCANNER[command.action]
        workflow_id = episode_id(cluster, command.node) if command.action in UPDATES else scanner_id(cluster)
        given: dict[str, Any] = {"who": who, "reason": command.reason, "action": action}
        if command.action is Verb.ABORT:
            given["power_on"] = command.power_on
        if command.action in ANSWERS:
            given["question"] = command.question
        if command.action is Verb.ACK_OFF:
            given["override"] = command.override
        if command.action is Verb.EXTEND:
            given |= {"until": command.until, "hold": command.hold, "shorten": command.shorten}
        if command.action in {Verb.RESUME, Verb.UNPAUSE}:
            given["of"] = command.of
        if command.action in {Verb.PAUSE, Verb.HOLD}:
            given["until"] = command.until
        if command.action is Verb.SET_MODE:
            given |= {"mode": command.mode, "nodes": command.nodes, "selector": command.selector}
        workflow = self._client.get_workflow_handle(workflow_id)
        answer: str = await workflow.execute_update(update, given, id=action.uid, result_type=str, rpc_timeout=DISPATCH_PATIENCE)
        return answer

    async def _start(self, cluster: str, command: NodeActionSpec, action: ActionName, who: str) -> str:
        kind, made = EPISODES[command.action]
        incident = action.uid.replace("-", "")[:12]
        common = {"cluster": cluster, "node": command.node, "reason": command.reason, "requester": who, "incident": incident}
        wanted = made(command, common | {"action": action})
        try:
            await self._client.start_workflow(
                kind.value,
                wanted,
                task_queue=self._task_queue,
                memo={"incident": incident},
                rpc_timeout=DISPATCH_PATIENCE,
                **start_options(kind, wanted, page=self._page),
            )
        except WorkflowAlreadyStartedError as error:
            open_one = await self._client.get_workflow_handle(episode_id(cluster, command.node)).describe(
                rpc_timeout=DISPATCH_PATIENCE
            )
            holder = (await open_one.memo()).get("incident", "")
            if holder != incident:
                raise _refused(f"{command.node} is held by {open_one.workflow_type} {holder}") from error
        return f"{kind.value} of {command.node} has begun, incident {incident}"


def _fencing(command: NodeActionSpec, given: dict[str, Any]) -> EpisodeInput:
    namespace, _, name = command.template.partition("/")
    named = ObjectRef(api_version=f"{GROUP}/{VERSION}", kind=KIND, name=name, namespace=namespace)
    given |= {"override": command.override, "seen_off": command.action is Verb.ACK_OFF}
    return FencingInput(**given, need=_wish(given), template=named if command.template else None)


def _remediation(command: NodeActionSpec, given: dict[str, Any]) -> EpisodeInput:
    steps = {"strategies": command.strategies, "skip_impossible": command.skip_impossible}
    return RemediationInput(**given, need=_wish(given), override=command.override, **steps)


def _preservation(command: NodeActionSpec, given: dict[str, Any]) -> EpisodeInput:
    return PreservationInput(**given, hold=command.hold, isolate=command.isolate)


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
