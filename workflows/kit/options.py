"""The one place for task queues, and for activity time-outs and retries, by what the activity does to the world.

Whether an error is final is decided at the client boundary and said by the error (`activities/errors.py`), so no policy lists
those that are. Whether to try a *command* again is the workflow's decision after it has read the state, so everything that
commands is tried exactly once here. The code's word is "try"; Temporal calls it an attempt (`maximum_attempts`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import Priority, RetryPolicy
from temporalio.workflow import ActivityCancellationType, ActivityConfig

from policy.fence.config import LONGEST_ACT
from policy.fence.plan import FencingPlan

Request = TypeVar("Request")
Result = TypeVar("Result")

WORKFLOW_QUEUE = "nodewarden"
"""Workflows, and the activities that hold a Temporal client."""


def cluster_queue(cluster: str) -> str:
    """Activities that call the API of that cluster."""
    return f"cluster.{cluster}"


def power_queue(site: str) -> str:
    """Activities that call devices which only that site reaches; a hung BMC there delays no other site."""
    return f"power.{site}"


async def execute(
    activity: Callable[[Any, Request], Awaitable[Result]], request: Request, config: ActivityConfig, summary: str
) -> Result:
    """Have an activity carried out, with the options of what it does (below). summary: for people, on the workflow's page. Raises
    ActivityError."""
    result: Result = await workflow.execute_activity_method(activity, request, **(config | {"summary": summary}))
    return result


def longest(config: ActivityConfig) -> timedelta:
    """After which an activity has ended in one way or another, Temporal's time-outs included."""
    begun_by = config.get("schedule_to_start_timeout") or timedelta(0)
    return config.get("schedule_to_close_timeout") or begun_by + (config.get("start_to_close_timeout") or timedelta(0))


def is_repeated(config: ActivityConfig) -> bool:
    """Whether it is tried until its time is over, however often that is."""
    policy = config.get("retry_policy")
    return config.get("schedule_to_close_timeout") is not None and not (policy is not None and policy.maximum_attempts)


URGENT = Priority(priority_key=1)
"""Of an act after its look, which lapses: it goes before the looks at other nodes. Also of a scanner among workflows: in a storm
all episodes wait for what it says, and none of them goes before it."""
_SOON = Priority(priority_key=2)
_AFTER_ACTS = Priority(priority_key=3)
_PATIENT = Priority(priority_key=5)

IN_FLIGHT_MARGIN = timedelta(seconds=2)
"""Waited on top of an act's deadline before its outcome is read: clock skew and the last packet (S34)."""

ACT_WINDOW = timedelta(seconds=15)
"""A destructive act that has not begun this long after its last look is not done at all (S20)."""

LONGEST_IN_FLIGHT = LONGEST_ACT + ACT_WINDOW + IN_FLIGHT_MARGIN
"""So long after an act was decided nothing of it can be under way, also where no history tells of it (S34)."""

WRITE_WINDOW = timedelta(seconds=90)
"""A write that has not been carried out this long after it was decided is not carried out at all, by any worker."""

CLUSTER_TRY = timedelta(seconds=10)
"""One try of a read or a repeatable write. No longer than the client waits for the answer to a write (`Timeouts` of the cluster's
connection): one that hangs ends as a try, which is repeated and reads first. The client's end is Ambiguous, which is final."""

CONSEQUENCE_DEADLINE = timedelta(seconds=30)
"""Of an act that is tried once. Longer than that wait: an Ambiguous says that the worker has ended it, a lost try does not."""

LONGEST_RETRY_PAUSE = timedelta(seconds=10)
"""Between two tries of what the server repeats: a pause that would not end in time is not begun."""

PUBLISHED_WITHIN = timedelta(seconds=20)
"""What people are told by then, or not at all."""

ANSWERED_WITHIN = timedelta(seconds=8)
"""So long a person's word may take to be verified; `starter` waits a little longer for the answer."""

LOST_WORKER = timedelta(seconds=4)
"""A worker that has shown no sign of life for this long is taken for lost, and what may be repeated is given to another."""

LOST_SCAN = timedelta(seconds=6)
"""The same for the long poll, which may be busy reading a large cluster."""

LOST_REST = timedelta(seconds=45)
"""The same for a long poll while nothing happens, which shows it all day long, and each sign is a write of Temporal's. Other
workers miss it sooner, by the cluster Lease (`activities/cluster/acts/scan.py`)."""

EVIDENCE_PATIENCE, EVIDENCE_BEGUN = timedelta(seconds=60), timedelta(seconds=30)
"""The longest for one part of the evidence, and by when a worker must have taken it up. A worker's own patience is shorter."""

READ_BACK = timedelta(seconds=1)
"""So long a power command, once it has ended, may wait for its effect: longer, and it would hold up other nodes' commands."""

CHECK_PATIENCE = timedelta(seconds=30)
"""What no worker has begun to read for a check by then is not read in this one."""

SCAN_GRACE = timedelta(seconds=30)
"""What a long poll may take beyond its own wait."""

SCAN_TAKEN = timedelta(seconds=15)
"""Where no worker has taken a scan by then, the cluster has none."""

OLDEST_REPORT = timedelta(seconds=15)
"""How old a report may be by which a node is disrupted while no other scan is under way (S18, S45)."""


def scan(cluster: str, wait: timedelta, *, rests: bool = False) -> ActivityConfig:
    """The long poll: retries as long as there is a worker that takes them, a dead one noticed by the missing heartbeat. Where
    none is left, what was so before is not acted upon for as long as a poll takes (S18)."""
    return ActivityConfig(
        task_queue=cluster_queue(cluster),
        schedule_to_start_timeout=SCAN_TAKEN,
        start_to_close_timeout=wait + SCAN_GRACE,
        heartbeat_timeout=LOST_REST if rests else LOST_SCAN,
        retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=15)),
        cancellation_type=ActivityCancellationType.TRY_CANCEL,
        priority=URGENT,
    )


def report(cluster: str) -> ActivityConfig:
    """A write that nothing depends on, such as telling people of what is no episode's: bounded, so that a failing API never holds
    up the scanner."""
    return ActivityConfig(
        task_queue=cluster_queue(cluster),
        start_to_close_timeout=CLUSTER_TRY,
        heartbeat_timeout=LOST_WORKER,
        schedule_to_close_timeout=PUBLISHED_WITHIN,
        retry_policy=RetryPolicy(maximum_attempts=2),
    )


def observations(cluster: str) -> ActivityConfig:
    """Recording what was not repaired: after all others, and begun again by the scanner until it is done."""
    return ActivityConfig(
        task_queue=cluster_queue(cluster),
        start_to_close_timeout=timedelta(seconds=30),
        heartbeat_timeout=LOST_WORKER,
        schedule_to_close_timeout=timedelta(seconds=60),
        retry_policy=RetryPolicy(maximum_interval=LONGEST_RETRY_PAUSE),
        priority=_PATIENT,
    )


def temporal_call() -> ActivityConfig:
    """A call to Temporal itself from the workflow queue; idempotent by workflow id."""
    return ActivityConfig(
        task_queue=WORKFLOW_QUEUE,
        start_to_close_timeout=timedelta(seconds=20),
        heartbeat_timeout=LOST_WORKER,
        schedule_to_close_timeout=timedelta(seconds=60),
        retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=500), maximum_attempts=5),
        priority=URGENT,
    )


def former_run(task_queue: str) -> ActivityConfig:
    """What was before: asked until it is answered, since an episode that goes on can't end without that."""
    return ActivityConfig(
        task_queue=task_queue,
        start_to_close_timeout=timedelta(seconds=10),
        retry_policy=RetryPolicy(maximum_interval=LONGEST_RETRY_PAUSE),
        priority=URGENT,
        summary="asks who has left the state",
    )


def cluster_read(cluster: str) -> ActivityConfig:
    """A live read: repeated freely for a minute at least, so that the last try comes after that."""
    return ActivityConfig(
        task_queue=cluster_queue(cluster),
        start_to_close_timeout=CLUSTER_TRY,
        heartbeat_timeout=LOST_WORKER,
        schedule_to_close_timeout=timedelta(minutes=1) + LONGEST_RETRY_PAUSE,
        retry_policy=RetryPolicy(maximum_interval=LONGEST_RETRY_PAUSE),
        priority=_SOON,
    )


def publication(cluster: str) -> ActivityConfig:
    """Telling people of an episode, beside its story. It waits for as long as a read may, and behind all of these: where many
    nodes fail at once, what gave up before its turn would be told anew by another activity, and acts go before words."""
    return cluster_read(cluster) | {"retry_policy": RetryPolicy(maximum_attempts=2), "priority": _AFTER_ACTS}


def attestation(cluster: str) -> ActivityConfig:
    """Verifying who has spoken: the person waits for the answer, and has gone by the time that a later worker has it."""
    return cluster_read(cluster) | {"start_to_close_timeout": timedelta(seconds=5), "schedule_to_close_timeout": ANSWERED_WITHIN}


def cluster_write(cluster: str) -> ActivityConfig:
    """A write of ours that reads first and carries preconditions: a repetition finds it done and changes nothing."""
    return cluster_read(cluster) | {
        "schedule_to_close_timeout": WRITE_WINDOW,
        "cancellation_type": ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    }


def _at_once(queue: str, deadline: timedelta) -> ActivityConfig:
    """One attempt, begun at once or not at all, because its licence is a look seconds old."""
    return ActivityConfig(
        task_queue=queue,
        start_to_close_timeout=deadline,
        schedule_to_start_timeout=ACT_WINDOW,
        retry_policy=RetryPolicy(maximum_attempts=1),
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        priority=URGENT,
    )


def consequence(cluster: str) -> ActivityConfig:
    """Freeing workloads; asking for the deletion of an object, which is looked at anew after that and is named by its uid."""
    return _at_once(cluster_queue(cluster), CONSEQUENCE_DEADLINE)


DELETION_DEADLINE = CONSEQUENCE_DEADLINE + IN_FLIGHT_MARGIN
"""So long a request for a deletion may still be under way, with the margin."""


def machine_deletion(cluster: str) -> ActivityConfig:
    """Asking for the deletion of a Machine that is then followed: the same, but that a worker that is lost is noticed at once.
    Whatever it still has in flight can only delete the very Machine, and whether it has is read before anything else."""
    return consequence(cluster) | {"heartbeat_timeout": LOST_WORKER}


def power_read(site: str, plan: FencingPlan) -> ActivityConfig:
    """Reading a device: a few tries; that it does not answer is an answer the workflow deals with."""
    return ActivityConfig(
        task_queue=power_queue(site),
        start_to_close_timeout=plan.act_deadline + IN_FLIGHT_MARGIN,
        schedule_to_start_timeout=ACT_WINDOW,
        retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=500), maximum_attempts=2),
        priority=_SOON,
    )


def power_command(site: str, plan: FencingPlan) -> ActivityConfig:
    """Commanding a device, and reading back what came of it: exactly one attempt (S33)."""
    return _at_once(power_queue(site), plan.act_deadline + READ_BACK + IN_FLIGHT_MARGIN)


def check_listing(cluster: str) -> ActivityConfig:
    """What a check of the fence devices reads of a cluster: more at once than others do, after all others."""
    return ActivityConfig(
        task_queue=cluster_queue(cluster),
        start_to_close_timeout=timedelta(seconds=60),
        heartbeat_timeout=LOST_WORKER,
        schedule_to_start_timeout=CHECK_PATIENCE,
        schedule_to_close_timeout=timedelta(minutes=3),
        retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=10)),
        priority=_PATIENT,
    )


def check_reading(site: str, longest: timedelta) -> ActivityConfig:
    """Devices read for a check: one attempt, behind everything that fences."""
    return ActivityConfig(
        task_queue=power_queue(site),
        start_to_close_timeout=longest,
        heartbeat_timeout=LOST_WORKER,
        schedule_to_start_timeout=CHECK_PATIENCE,
        retry_policy=RetryPolicy(maximum_attempts=1),
        priority=_PATIENT,
    )


def evidence(queue: str) -> ActivityConfig:
    """Evidence that the API or a device gives: after all others, and once. What fails is missing, and nothing waits for it."""
    return ActivityConfig(
        task_queue=queue,
        start_to_close_timeout=EVIDENCE_PATIENCE,
        schedule_to_start_timeout=EVIDENCE_BEGUN,
        retry_policy=RetryPolicy(maximum_attempts=1),
        priority=_PATIENT,
    )
