"""Asked before an activity begins: which workflow asks for it, on which task queue that runs, whether our clock is right, whether
the cluster is its scanner's.

A guard refuses, or leaves the activity to another worker: then it has not begun, so that another try harms nothing, and comes
soon, because Temporal gives it to the next worker that polls. The scan is an exception: where no other worker takes it, its
answer is the only way in which people learn why nothing is done (S44).
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio import activity
from temporalio.client import Client, WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.common import MetricMeter, QueryRejectCondition
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from activities.contracts import metrics
from activities.contracts.attestation import VerifyRequest
from activities.contracts.device_check import PublishDeviceNoticesRequest
from activities.contracts.evidence import CollectRequest, DeviceEvidenceRequest, SealRequest
from activities.contracts.preservation import GiveUpRequest, HoldRequest
from activities.contracts.scan import RecordRequest, RepetitionRequest, ScanRequest
from activities.contracts.target import PinRequest, Target
from activities.errors import ErrorType, failure
from activities.licences import FIRST_RUN
from activities.worker_clock import ATTEMPT_ENDS, left_to_others, problem_of, worker, wrong_clock
from policy.episode.messages import Kind, device_check_id, episode_id, scanner_id
from policy.scan.obstacles import another_cluster
from workflows.kit.options import WORKFLOW_QUEUE

SCANNER, DEVICE_CHECK = "HealthScanner", "DeviceCheck"
SCAN = "scan.observe-cluster"
SCANS_DECLINED = 4
"""So often in a row a scan is left to others; then there seems to be no other worker."""

ASK_AGAIN_SECONDS = 5.0
"""Between two questions, as long as it is not known that the cluster is ours."""
PATIENCE = timedelta(seconds=1)

DESCRIBED_WITHIN = timedelta(seconds=3)
MOST_RUNS = 10_000

_log = logging.getLogger(__name__)


class ActivityGuard(Interceptor, ABC):
    """Asked before every activity of a queue."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        """Wrap the activities of a worker."""
        return _Guarded(next, self)

    @abstractmethod
    async def require(self, arguments: Collection[Any]) -> None:
        """Raises where the activity that runs, with these arguments, is not to begin here."""


class _Guarded(ActivityInboundInterceptor):
    def __init__(self, inner: ActivityInboundInterceptor, guard: ActivityGuard) -> None:
        super().__init__(inner)
        self._guard = guard

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        await self._guard.require(input.args)
        return await self.next.execute_activity(input)


class CallerGuard(ActivityGuard):
    """The workflow that asks is the one that Temporal names, and never the one that the request names (S49).

    A caller that reaches Temporal may schedule activities with any arguments. A mark in the name of a workflow that does not
    exist would keep a node from every later episode, people would be notified in the name of an episode that never was, and the
    manifest of evidence would be written anew.
    """

    async def require(self, arguments: Collection[Any]) -> None:
        """Refuses what is asked for in another workflow's name. Raises NotLicensed."""
        for argument in arguments:
            looks = getattr(argument, "look", None), getattr(getattr(argument, "before", None), "look", None)
            for target in (getattr(each, "target", None) for each in (argument, *looks)):
                if isinstance(target, Target):
                    _require_caller(episode_id(target.cluster, target.pinned.node), target.workflow_id, (target.kind,))
            if isinstance(argument, HoldRequest | GiveUpRequest):
                _require_caller(episode_id(argument.cluster, argument.looked_at))
            elif isinstance(argument, PinRequest):
                _require_caller(episode_id(argument.wanted.cluster, argument.wanted.node))
            elif isinstance(argument, VerifyRequest):
                # A NodeAction is used once: in another workflow the word of its maker would be lost, or sealed for that one.
                node = argument.spec.node
                addressed = episode_id(argument.cluster, node) if node else scanner_id(argument.cluster)
                _require_caller(addressed, kinds=tuple(Kind) if node else (SCANNER,))
            elif isinstance(argument, CollectRequest | SealRequest | DeviceEvidenceRequest):
                _require_caller(episode_id(argument.bundle.cluster, argument.bundle.node), kinds=(Kind.PRESERVATION,))
            elif isinstance(argument, PublishDeviceNoticesRequest):
                _require_caller(device_check_id(argument.cluster), kinds=(DEVICE_CHECK,))
            elif isinstance(argument, ScanRequest | RecordRequest | RepetitionRequest):
                # A scan takes and gives back the cluster Lease in the name that it says (S38).
                _require_caller(scanner_id(argument.cluster), kinds=(SCANNER,))


def _require_caller(expected: str, says: str = "", kinds: Collection[str] = tuple(Kind)) -> None:
    """says: by which id the request calls the workflow that asks, "" for none. kinds: of which type that may be."""
    info = activity.info()
    if not (info.workflow_id == (says or expected) == expected and info.workflow_type in kinds):
        caller = f"asked for by {info.workflow_type} {info.workflow_id!r} as {says!r}"
        problem = f"{info.activity_type}: expected workflow {expected!r}, {caller}; nothing was done"
        raise failure(ErrorType.NOT_LICENSED, problem)


@dataclass(frozen=True, slots=True)
class _Run:
    """Of a workflow, as Temporal names it. first: the run that its chain of continue-as-new began with."""

    queue: str
    first: str


class RunGuard(ActivityGuard):
    """The workflow that asks is carried out by our own workers: its run is on our task queue, as Temporal says (S49).

    A caller that reaches Temporal may begin a workflow of our type, under the id of a node without an episode, on a queue that a
    worker of its own serves: that one would mark the node, have it drained and fenced, use up people's NodeActions and have them
    sealed for itself. On our queue it is our code that asks. queue: that of our workflows.

    Found out at the same time is the chain of runs that a person's word is sealed and read for. A word counts in the chain that
    it was said to: a caller of Temporal may begin a workflow of the same id and type once that has ended, and knows the word from
    its history.
    """

    def __init__(self, client: Client, queue: str = WORKFLOW_QUEUE) -> None:
        self._client = client
        self._queue = queue
        self._known: OrderedDict[str, _Run] = OrderedDict()
        """By run; it never changes."""

    async def require(self, arguments: Collection[Any]) -> None:  # noqa: ARG002 - whatever is asked for
        """Refuses what another worker's workflow asks for. Raises NotLicensed; WrongClock, by which another worker gets it, where
        Temporal does not say."""
        info = activity.info()
        run = await self._run(info) if info.workflow_id else _Run("", "")  # none: a client may ask for an activity alone
        if run.queue != self._queue:
            caller = f"{info.workflow_type} {info.workflow_id!r} runs on {run.queue!r}" if run.queue else "no workflow asks"
            problem = f"{info.activity_type}: expected a workflow on task queue {self._queue!r}, {caller}; nothing was done"
            raise failure(ErrorType.NOT_LICENSED, problem)
        FIRST_RUN.set(run.first)

    async def _run(self, info: activity.Info) -> _Run:
        run = info.workflow_run_id or ""
        if run not in self._known:
            try:
                caller = self._client.get_workflow_handle(info.workflow_id or "", run_id=run)
                described = await caller.describe(rpc_timeout=DESCRIBED_WITHIN)
            except RPCError as error:
                raise left_to_others(f"Temporal can't describe which workflow asks ({error.message})") from error
            first = described.raw_description.workflow_execution_info.first_run_id
            self._known[run] = _Run(described.task_queue, first)
            while len(self._known) > MOST_RUNS:
                self._known.popitem(last=False)
        return self._known[run]


class ClockGuard(ActivityGuard):
    """A worker with a wrong clock leaves everything to others, and says so (S18, S44). For queues where acts have moments of
    their own. How far a clock may be off is in `activities/worker_clock.py`; the view of a scan that it does answer is closed."""

    def __init__(self, meter: MetricMeter = MetricMeter.noop) -> None:
        """meter: the process's own; it has one clock, whatever it is given."""
        self._ahead = metrics.CLOCK_AHEAD.on(meter)
        self._wrong = False

    async def require(self, arguments: Collection[Any]) -> None:  # noqa: ARG002 - whatever is asked for
        """Raises WrongClock."""
        info = activity.info()
        problem = self.problem(info)
        if problem and not _no_other_takes(info):
            raise left_to_others(problem)
        wrong_clock.set(problem)

    def problem(self, info: activity.Info) -> str:
        """What is wrong with our clock at this moment, "" for nothing; logged when that changes."""
        now = datetime.now(UTC)
        self._ahead.set((now - info.started_time).total_seconds())
        wrong = problem_of(info.started_time, now)
        problem = f"the clock of worker {worker()} is {wrong}" if wrong else ""
        if bool(problem) != self._wrong:
            self._wrong = bool(problem)
            if problem:
                _log.warning("%s: it leaves %s to others; set it right (NTP)", problem, info.task_queue)
            else:
                _log.info("%s: our clock agrees with Temporal's again", info.task_queue)
        return problem


_ABOUT = ("target", "wanted", "bundle", "look", "before", "under")
"""Parts of requests that name a cluster."""


def _clusters(request: Any) -> set[str]:
    """All that it names, itself or in what it is about."""
    own = {request.cluster} if hasattr(request, "cluster") else set[str]()
    return own.union(*(_clusters(part) for name in _ABOUT if (part := getattr(request, name, None)) is not None))


class ClusterGuard(ActivityGuard):
    """A worker refuses what is not about its own cluster alone: names of nodes repeat from cluster to cluster (S9). One that
    reaches another cluster than its scanner has seen under that name leaves everything to others, and says so.

    Two clusters may be given one name, such as the chart's own, on one Temporal. Their workers then share a task queue, Nodes
    have the same names in both, and what one worker has begun another one would continue where no such Node, or another
    machine, is: it would call a taint gone that stands, and a person's command would reach the wrong machine (S9, S38). The
    same holds where an address leads to another cluster by now. The first activities ask the scanner; later ones do not until
    our own cluster is another one. own: the uid of our kube-system; seen: see `seen_by_scanner`.
    """

    def __init__(self, cluster: str, *, own: Callable[[], Awaitable[str]], seen: Callable[[], Awaitable[str | None]]) -> None:
        self._cluster = cluster
        self._own = own
        self._seen = seen
        self._agreed = ""
        """The uid by which the scanner and we know the same cluster, "" while that is not known."""
        self._problem = ""
        self._asked_at = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    async def require(self, arguments: Collection[Any]) -> None:
        """Raises InvalidConfig for what is about another cluster, and for a scan that no other worker takes; WrongClock, by which
        another worker gets it."""
        named = set[str]().union(*map(_clusters, arguments))
        if named != {self._cluster}:
            asked = " and ".join(sorted(map(repr, named))) or "which names none"
            problem = f"a request for cluster {asked} reached the worker of cluster {self._cluster!r}: check the task queues"
            raise failure(ErrorType.INVALID_CONFIG, problem)
        if problem := await self.problem():
            if _no_other_takes(activity.info()):
                raise failure(ErrorType.INVALID_CONFIG, problem)
            raise left_to_others(problem)

    async def require_ours(self) -> None:
        """Leaves what is to be done in another cluster to others, outside of that cluster's queue."""
        if problem := await self.problem():
            raise left_to_others(problem)

    async def problem(self) -> str:
        """Why nothing is done here, "" for nothing, and where that is not known."""
        try:
            own = await self._own()  # known but for the first time; the view's probe looks whether it is another one by now
        except ApplicationError as error:
            _log.debug("which cluster %s is can't be read: %s", self._cluster, error.message)  # the activity meets it, too
            return self._problem
        if own == self._agreed:
            return ""
        now = asyncio.get_running_loop().time()
        if self._asking is None and now - self._asked_at >= ASK_AGAIN_SECONDS:
            self._asked_at, self._asking = now, asyncio.create_task(self._ask(own), name="cluster guard")
        if self._asking is not None:
            await asyncio.shield(self._asking)
        return self._problem

    async def _ask(self, own: str) -> None:
        try:
            seen = await self._seen()
            if seen is None:
                return
            problem = another_cluster(self._cluster, own, seen) if seen not in {"", own} else ""
            if problem and problem != self._problem:
                _log.error("%s", problem)
            self._agreed, self._problem = seen if seen == own else "", problem
        finally:
            self._asking = None


async def seen_by_scanner(client: Client, cluster: str) -> str | None:
    """The uid of kube-system that the cluster's scanner has seen, "" where it has seen none yet. None: it can't be asked now."""
    try:
        seen: str = await client.get_workflow_handle(scanner_id(cluster)).query(
            "cluster_uid", result_type=str, reject_condition=QueryRejectCondition.NOT_OPEN, rpc_timeout=PATIENCE
        )
    except (RPCError, WorkflowQueryFailedError, WorkflowQueryRejectedError):
        return None
    return seen


def _no_other_takes(info: activity.Info) -> bool:
    """Whether this is a scan that others have declined often enough."""
    return info.activity_type == SCAN and info.attempt > SCANS_DECLINED


# A worker's sign of life for whatever it does for longer than a moment: so that its loss is noticed in seconds.
#
# Without it Temporal can only wait until an attempt's whole time is over. Which activities say when they are missed is
# `workflows/kit/options.py` (`heartbeat_timeout`); how often is ours. A power command and a consequence say nothing: their
# workflow waits out their full deadline in any case (S34).
#
# A worker that is lost may be there again: an attempt knows until when it is waited for, and writes nothing after that (S45).

BEATS_PER_TIMEOUT = 4
"""At most: each is a write of Temporal's, and costs it some 10 to 20 ms."""
ROOM = timedelta(seconds=3)
"""By how much a busy worker's beat may be late before the worker is taken for lost. Where the time-out leaves more than that,
beats are rarer: the long poll beats for ever, and was most of what an idle cluster cost."""


class Liveness(Interceptor):
    """Heartbeats beside every activity that has a heartbeat time-out. They carry nothing."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        """Wrap the activities of a worker."""
        return _Beside(next)


class _Beside(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        info = activity.info()
        if info.start_to_close_timeout is not None:
            # Counted by Temporal from its own beginning of the attempt: a worker may stand still before it has read its task.
            ATTEMPT_ENDS.set(info.started_time + info.start_to_close_timeout)
        timeout = info.heartbeat_timeout
        if timeout is None:
            return await self.next.execute_activity(input)
        beating = asyncio.create_task(_beat(pause_between_beats(timeout).total_seconds()))
        try:
            return await self.next.execute_activity(input)
        finally:
            beating.cancel()


def pause_between_beats(timeout: timedelta) -> timedelta:
    """How often an activity with that heartbeat time-out shows a sign of life."""
    return max(timeout - ROOM, timeout / BEATS_PER_TIMEOUT)


async def _beat(pause: float) -> None:
    while True:
        await asyncio.sleep(pause)
        activity.heartbeat()
