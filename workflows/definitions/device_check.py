"""Do the devices that would fence the nodes answer? All of them are read every hour, and whenever a person asks.

One per cluster (its workflow id is `device-check/<cluster>`). It reads and never acts, a few devices of a site at a time and with
the lowest priority, so that no fencing ever waits for it. It remembers when each device last answered; that outlives restarts,
continue-as-new, and even its own end: the next run begins with its result.

Nodes are read page by page. Where there is more than one, each is a child workflow: the devices with their parameters and the
answers, some 1.4 KB for a device, stay in the child's history, so that the size of a cluster ends no check (Temporal ends a
history of 50 MB). What all pages together say, whether a device is another node's, too (S39), is found here.

A history that its code can't replay, of another build or by a fault of the SDK (see `workflows/definitions/scanner.py`), ends the
run, and Temporal starts the next with what that history began with. So what people have set begins a history: the interval, and
where a credential may go. Only what was read is lost, which the next check reads again.

What a reading means is `policy/fence/device_check.py`. `nodewarden scan start` starts it, with the scanner; and so does
`nodewarden fence check` where none runs, for as long as a question is open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import islice

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, ChildWorkflowError, TimeoutType
from temporalio.exceptions import TimeoutError as ActivityTimeoutError

from activities.contracts import metrics, search_attributes
from activities.contracts.device_check import (
    DeviceReadingActivities,
    FenceDeviceActivities,
    FenceDevicesRequest,
    NodeNamesRequest,
    PublishDeviceNoticesRequest,
    ReadDevicesRequest,
)
from activities.errors import ErrorType, error_message, error_type
from policy.episode.messages import device_check_id
from policy.fence.device_check import (
    CheckedNode,
    DeviceAnswer,
    DeviceClaims,
    DeviceNotice,
    DeviceReport,
    DeviceRow,
    DeviceToCheck,
    Hosts,
    NodeToCheck,
    Reachability,
    Remembered,
    checked,
    hosts_met,
    merged,
    report_of,
)
from policy.values.display_text import without_calls
from policy.values.times import in_utc, later, written
from workflows.kit import continuation, options
from workflows.kit.messages import (
    CheckedPage,
    CheckRequest,
    DeviceCheckInput,
    DeviceCheckResult,
    PageToCheck,
    invalid_input,
)
from workflows.kit.options import cluster_queue, power_queue

KIND = "DeviceCheck"

PAGE = 24
"""How many nodes have their devices found and read in one go."""
BATCH = 12
"""Devices of a site in one request: if none of them answers it is over in a minute."""

FIRST_AFTER = timedelta(minutes=5)
"""A scanner that has just been started may have more urgent things to do with the devices."""
SETTLED_AFTER = timedelta(seconds=5)
"""After a policy has changed: what is applied together is read together."""
AGAIN_AFTER = timedelta(minutes=5)
"""Where the API of the cluster did not answer, it is tried again before the next hour."""
LINGER = timedelta(seconds=10)
"""How long a check that only runs on request waits for the next question."""
JITTER = 0.1

LONGEST_PAUSE = timedelta(days=366)

HISTORY_LIMIT = 500
"""Compared before each check by the clock; that of a large cluster adds nine events for a page."""
SHOWN_PROBLEMS = 20

BEGINS_A_HISTORY = "what people set begins a history"
"""Marks the histories in which it does."""


@workflow.defn(name="DeviceCheck", failure_exception_types=[workflow.NondeterminismError])
class DeviceCheck:
    """See the module. What outlives continue-as-new is in `DeviceCheckInput`."""

    @workflow.init
    def __init__(self, request: DeviceCheckInput) -> None:
        self._cluster = request.cluster
        self._every = request.every
        every = min(request.every or FIRST_AFTER, LONGEST_PAUSE)
        if request.due is None:
            self._due = later(workflow.now(), self._spread(min(FIRST_AFTER, every)))
        else:  # it comes from outside, and may be any moment
            self._due = min(in_utc(request.due), later(workflow.now(), every * (1 + JITTER)))
        self._remembered = Remembered(request.memory)
        self._asking = 0
        self._all: asyncio.Task[DeviceReport] | None = None
        self._turn = asyncio.Lock()
        self._report: DeviceReport | None = None
        self._pages = 0
        """How many child workflows this run has begun."""
        self._was_set = False
        """Whether people have set what the next history begins with."""

    # The story ------------------------------------------------------------------------------------------------------

    @workflow.run
    async def run(self, request: DeviceCheckInput) -> DeviceCheckResult:
        self._check_identity(request)
        workflow.upsert_search_attributes(
            [search_attributes.CLUSTER.value_set(self._cluster), search_attributes.KIND.value_set(KIND)]
        )
        while await self._is_check_due():
            if self._was_set or continuation.roll_is_due(may_move=self._report is not None, events=HISTORY_LIMIT):
                await workflow.wait_condition(workflow.all_handlers_finished)
                continuation.go_on(self._carried(), retry_policy=continuation.ANEW)
            await self._check_by_the_clock()
        await workflow.wait_condition(workflow.all_handlers_finished)
        return DeviceCheckResult(cluster=self._cluster, memory=self._remembered.carried())

    async def _is_check_due(self) -> bool:
        """Wait until all devices are due, which they are at once where another build is current: the next history begins without
        a report. False: checks by the clock were stopped, and no question has come for a while."""
        while not self._was_set and (self._every is None or workflow.now() < self._due):
            if self._every is not None:
                schedule, rest = (self._every, self._due), self._due - workflow.now()
                await self._until(
                    lambda schedule=schedule: (self._every, self._due) != schedule or self._was_set or self._moves(),
                    rest,
                    "until all devices are due",
                )
                if self._moves():
                    self._due = workflow.now()
            elif self._asking:
                await workflow.wait_condition(lambda: not self._asking)
            elif not await self._until(lambda: self._every is not None or self._asking > 0, LINGER, "for the next question"):
                return False
        return True

    def _moves(self) -> bool:
        return self._report is not None and continuation.is_another_build_current()

    async def _check_by_the_clock(self) -> None:
        every = self._every or FIRST_AFTER
        self._due = later(workflow.now(), self._spread(every))
        try:
            await self._check_all()
        except ApplicationError as error:
            self._due = later(workflow.now(), min(AGAIN_AFTER, every))
            workflow.logger.warning("the fence devices of %s were not checked: %s", self._cluster, error.message)
            self._show(error.message)

    async def _check_all(self) -> DeviceReport:
        """A question that comes while all devices are being read gets the answer of that reading."""
        if self._all is None or self._all.done():
            self._all = asyncio.create_task(self._read_all())
        return await asyncio.shield(self._all)

    async def _read_all(self) -> DeviceReport:
        began, rows, claims, hosts = workflow.now(), list[DeviceRow](), DeviceClaims(), list[Hosts]()
        names = await self._names()
        for start in range(0, len(names), PAGE):
            page = PageToCheck(cluster=self._cluster, nodes=names[start : start + PAGE], check=began)
            read = await self._read_page(page, alone=len(names) <= PAGE)
            claims.add(*read.nodes)
            hosts.append(read.hosts)
            rows += await self._noted(read.nodes)
        self._remembered.keep_hosts(merged(hosts))
        await self._publish(self._remembered.note_claims(claims))
        rows = claims.noted(rows)
        self._remembered.keep_nodes(frozenset(names))
        self._report = report_of(self._cluster, rows, began=began, ended=workflow.now(), nodes=len(names))
        self._show()
        return self._report

    async def _read_one(self, node: str, *, admit: bool) -> DeviceReport:
        """Also a node that an open episode holds: its device may be why that episode needs a person. admit: its credentials may
        be sent to where its devices are, from now on (S40)."""
        began, page = workflow.now(), PageToCheck(cluster=self._cluster, nodes=(node,), also_held=True)
        if admit:
            self._remembered.keep_hosts(hosts_met(await _find(page)), admits=True)
        rows = await self._noted((await self._read_page(page, alone=True)).nodes)
        return report_of(self._cluster, rows, began=began, ended=workflow.now(), nodes=1)

    async def _read_page(self, page: PageToCheck, *, alone: bool) -> CheckedPage:
        """One page at a time, however many questions are open: so a site never has more to do than one page gives it. alone:
        it needs no history of its own."""
        async with self._turn:
            if alone:
                return await read_page(page)
            info, self._pages = workflow.info(), self._pages + 1
            try:
                return await workflow.execute_child_workflow(
                    DeviceCheckPage.run,
                    page,
                    id=f"{info.workflow_id}/{info.run_id}-{self._pages}",
                    static_summary=f"the devices from {page.nodes[0]} on",
                )
            except ChildWorkflowError as error:
                raise error.cause if isinstance(error.cause, ApplicationError) else _unreadable(self._cluster, error) from error

    async def _noted(self, nodes: Sequence[CheckedNode]) -> list[DeviceRow]:
        """The lines of these nodes, with what is remembered of their devices; what is new is remembered and published."""
        rows, notices = list[DeviceRow](), list[DeviceNotice]()
        for node in nodes:
            for row in node.rows:
                notice = self._remembered.note_answer(node, row)
                notices += [notice] if notice is not None else []
                rows.append(replace(row, last_success=self._remembered.last_successes(node.node).get(row.endpoint)))
            if endpoints := [row.endpoint for row in node.rows if row.endpoint]:
                self._remembered.keep_devices(node.node, endpoints)
        await self._publish(notices)
        return rows

    # Reading and publishing -------------------------------------------------------------------------------------------

    async def _names(self) -> tuple[str, ...]:
        names: tuple[str, ...] = ()
        while True:
            try:
                found = await options.execute(
                    FenceDeviceActivities.list_nodes,
                    NodeNamesRequest(cluster=self._cluster, after=names[-1] if names else ""),
                    options.check_listing(self._cluster),
                    "lists the nodes",
                )
            except ActivityError as error:
                raise _unreadable(self._cluster, error) from error
            names += found.names
            if not found.more:
                return names

    async def _publish(self, notices: list[DeviceNotice]) -> None:
        """A notice that can't be published now is published by the next check, if it still holds."""
        for start in range(0, len(notices), BATCH):
            some = tuple(notices[start : start + BATCH])
            try:
                await options.execute(
                    FenceDeviceActivities.publish_device_notices,
                    PublishDeviceNoticesRequest(cluster=self._cluster, notices=some),
                    options.report(self._cluster),
                    f"publishes notices of {len(some)} devices",
                )
            except ActivityError as error:
                workflow.logger.warning("Events about %d devices can't be written: %s", len(some), error_message(error))
                continue
            for each in some:
                self._remembered.mark_published(each)

    # Requests from outside ------------------------------------------------------------------------------------------

    @workflow.update(description="Read the devices now.")
    async def check(self, request: CheckRequest) -> DeviceReport:
        """Read the devices now. Fails if the cluster's nodes or their configuration can't be read."""
        self._asking += 1
        try:
            return await (self._read_one(request.node, admit=request.admit) if request.node else self._check_all())
        finally:
            self._was_set |= request.admit and workflow.patched(BEGINS_A_HISTORY)
            self._asking -= 1

    @workflow.signal(description="Check all devices by the clock from now on.")
    def repeat(self, every: timedelta) -> None:
        """Check all devices at this interval from now on. An unchanged interval and an impossible one change nothing."""
        if timedelta(0) < every <= LONGEST_PAUSE and every != self._every:
            self._every = every
            self._due = later(workflow.now(), self._spread(min(FIRST_AFTER, every)))
            self._was_set = workflow.patched(BEGINS_A_HISTORY)

    @workflow.signal(description="Which policies name devices now (not for people).")
    def note_policies(self, policies: str) -> None:
        """A digest of the policies that name devices now. New ones are read within moments, not only at the next interval."""
        if policies != self._remembered.policies:
            self._remembered.policies = policies
            self._due = min(self._due, later(workflow.now(), SETTLED_AFTER))

    @workflow.signal(description="Another build is current (not for people).")
    def build_changed(self) -> None:
        """Another build is current: all devices are read again, under that. Temporal tells of it with the task that this
        brings."""

    @workflow.signal(description="From now on check only on request; without one, end.")
    def stop(self) -> None:
        """From now on check only on request; without one, end."""
        self._every = None

    @workflow.query(description="The last check of all devices, None before this run has made one.")
    def report(self) -> DeviceReport | None:
        """The last check of all devices, None before this run has made one."""
        return self._report

    @workflow.query(description="Node and device of each that several nodes are configured to have, as the last check found.")
    def shared(self) -> tuple[tuple[str, str], ...]:
        """Each node and device for which the last check of all devices found that several nodes have the same device."""
        return self._remembered.claimed

    @workflow.query(description="Where each credential of a device may go that names no hosts itself.")
    def hosts(self) -> dict[str, tuple[str, ...]]:
        """To which hosts each credential of a device may go, if the credential names no hosts itself."""
        return self._remembered.hosts

    # Small things ---------------------------------------------------------------------------------------------------

    def _check_identity(self, request: DeviceCheckInput) -> None:
        expected = device_check_id(request.cluster)
        if not request.cluster or workflow.info().workflow_id != expected:
            raise invalid_input(f"expected an input with a cluster, run under the workflow id {expected!r}")
        if request.every is not None and not timedelta(0) < request.every <= LONGEST_PAUSE:
            raise invalid_input(f"every: expected a time above 0 and of at most {LONGEST_PAUSE.days} days, got {request.every}")

    @staticmethod
    def _spread(pause: timedelta) -> timedelta:
        """Not all clusters in the same second."""
        return pause * (1 + JITTER * workflow.random().random())

    @staticmethod
    async def _until(condition: Callable[[], bool], patience: timedelta, why: str) -> bool:
        try:
            await workflow.wait_condition(condition, timeout=patience, timeout_summary=why)
        except TimeoutError:
            return False
        return True

    def _carried(self) -> DeviceCheckInput:
        return DeviceCheckInput(cluster=self._cluster, every=self._every, due=self._due, memory=self._remembered.carried())

    def _show(self, problem: str = "") -> None:
        lines = [f"**Fence devices of {self._cluster}**"]
        if problem:
            lines.append(f"* **not checked: {problem}**")
        if (report := self._report) is not None:
            lines.append(f"* {report.answering} of {report.devices} answered at {written(report.ended)}")
            worst = [row for row in report.rows if row.problem][:SHOWN_PROBLEMS]
            lines += [f"* `{row.node}` {row.endpoint}: {row.problem}" for row in worst]
            lines += [f"* and {report.problems - len(worst)} more"] if report.problems > len(worst) else []
        workflow.set_current_details("\n".join(map(without_calls, lines)))  # it is shown as Markdown (S50)


@workflow.defn(name="DeviceCheckPage", failure_exception_types=[workflow.NondeterminismError])
class DeviceCheckPage:
    """Some nodes of a check, in a history of their own."""

    @workflow.run
    async def run(self, request: PageToCheck) -> CheckedPage:
        parent, expected = workflow.info().parent, device_check_id(request.cluster)
        if parent is None or parent.workflow_id != expected or not 0 < len(request.nodes) <= PAGE:
            raise invalid_input(f"expected 1 to {PAGE} nodes, and {expected!r} to ask")
        return await read_page(request)


async def read_page(page: PageToCheck) -> CheckedPage:
    """Find the devices of these nodes and read them. Raises ApplicationError where the cluster can't be read."""
    nodes = await _find(page)
    left_alone = {node.node for node in nodes if node.problem or (node.held and not page.also_held)}
    to_read = [(node, device) for node in nodes if node.node not in left_alone for device in node.devices]
    answers = await _read_sites(page.cluster, [device for _, device in to_read])
    for (node, _), answer in zip(to_read, answers, strict=True):
        _count(page.cluster, node, answer)
    rest = iter(answers)
    found = [checked(node, () if node.node in left_alone else [*islice(rest, len(node.devices))]) for node in nodes]
    return CheckedPage(nodes=tuple(found), hosts=hosts_met(nodes))


async def _find(page: PageToCheck) -> tuple[NodeToCheck, ...]:
    try:
        found = await options.execute(
            FenceDeviceActivities.find_devices,
            FenceDevicesRequest(cluster=page.cluster, nodes=page.nodes, check=page.check),
            options.check_listing(page.cluster),
            f"finds the devices from {page.nodes[0]} on",
        )
    except ActivityError as error:
        raise _unreadable(page.cluster, error) from error
    return found.nodes


async def _read_sites(cluster: str, devices: Sequence[DeviceToCheck]) -> list[DeviceAnswer]:
    """Sites side by side, each batch by batch. In the order of the devices."""
    by_site: dict[str, list[int]] = {}
    for index, each in enumerate(devices):
        by_site.setdefault(each.device.site, []).append(index)
    answers: dict[int, DeviceAnswer] = {}

    async def read_site(site: str, places: list[int]) -> None:
        for start in range(0, len(places), BATCH):
            batch = places[start : start + BATCH]
            found = await _read_batch(cluster, site, tuple(devices[place] for place in batch))
            answers.update(zip(batch, found, strict=True))

    await asyncio.gather(*(read_site(site, places) for site, places in by_site.items()))
    return [answers[place] for place in range(len(devices))]


async def _read_batch(cluster: str, site: str, devices: tuple[DeviceToCheck, ...]) -> tuple[DeviceAnswer, ...]:
    """That a device could not be asked says nothing about the device: it is unread then."""
    request = ReadDevicesRequest(cluster=cluster, devices=devices)
    try:
        read = await options.execute(
            DeviceReadingActivities.read_devices,
            request,
            options.check_reading(site, request.longest),
            f"reads {len(devices)} devices of site {site}",
        )
    except ActivityError as error:
        why = _not_taken(error, power_queue(site)) or f"not read: {error_message(error)}"
        now = workflow.now()
        return tuple(
            DeviceAnswer(endpoint=each.device.endpoint, answer=Reachability.UNREAD, at=now, problem=why) for each in devices
        )
    return read.answers


def _count(cluster: str, node: NodeToCheck, answer: DeviceAnswer) -> None:
    """A device that is well counts 0, so that its series exists before something is wrong with it."""
    if answer.answer is Reachability.UNREAD or node.held:
        return
    meter = workflow.metric_meter()
    labels = {"cluster": cluster, "node": node.node, "endpoint": answer.endpoint}
    metrics.DEVICE_SILENT.add(meter, int(answer.answer is Reachability.SILENT), **labels)
    metrics.DEVICE_INSECURE.add(meter, int(bool(answer.insecurity)), **labels)


def _unreadable(cluster: str, error: ActivityError | ChildWorkflowError) -> ApplicationError:
    queue_problem = _not_taken(error, cluster_queue(cluster)) if isinstance(error, ActivityError) else ""
    kind = error_type(error) or ErrorType.UNREACHABLE
    why = queue_problem or error_message(error)
    return ApplicationError(f"the cluster {cluster} can't be read: {why}", type=kind.value, non_retryable=True)


def _not_taken(error: ActivityError, queue: str) -> str:
    """What it means that no worker took the activity, "" where one did."""
    cause = error.cause
    if isinstance(cause, ActivityTimeoutError) and cause.type is TimeoutType.SCHEDULE_TO_START:
        return f"no worker took it from the task queue {queue} within {options.CHECK_PATIENCE.total_seconds():.0f} s"
    return ""
