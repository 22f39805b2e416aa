"""The scanner of one cluster, a shell round its story (`workflows/scanner/story.py`): its histories, and what can be
asked of it and commanded to it.

One per cluster (its workflow id is `scanner/<cluster>`, its claim on the cluster a Lease), and the only grantor of permits.
Handlers only check, and have verified who speaks; the story answers episodes, `workflows/scanner/commands.py` obeys people.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from temporalio import workflow

from activities.contracts import search_attributes
from activities.contracts.episodes import TOOK_OVER_MEMO
from policy.episode.messages import scanner_id
from policy.episode.modes import REPAIRS
from policy.episode.node_action import NodeActionSpec, Verb
from policy.episode.permits import (
    PermitQuestions,
    Release,
    ScannerAnswer,
    ScannerQuestion,
)
from policy.history.spells import ScannerSpells
from workflows.episode.attestation import Command, require_future, require_name_and_reason, verified_command
from workflows.kit import continuation
from workflows.kit.interrupts import run_to_its_end
from workflows.kit.messages import (
    ModeRequest,
    PauseRequest,
    ScannerResult,
    ScannerStatus,
    StopRequest,
    UnpauseRequest,
    invalid_input,
)
from workflows.scanner.answers import Answers
from workflows.scanner.commands import Commands
from workflows.scanner.state import ScannerInput, ScannerState, Underway
from workflows.scanner.story import ScannerStory

LOST_SCANS = "a scan that rests is given up where a worker calls it lost"
"""Marks the runs that do so: a worker of an earlier build has dropped that signal."""


@workflow.defn(name="HealthScanner", failure_exception_types=[workflow.NondeterminismError])
class HealthScanner:
    """Cancelling it is a stop. A history that its code can't replay, of another build or as Temporal's SDK writes one when an
    update meets a worker that has not replayed it yet (temporalio/sdk-python#1591), ends the run; Temporal starts the next one
    (the retry policy of `nodewarden scan start`), which remembers what a scanner does that replaces a terminated one, and what
    people had set."""

    @workflow.init
    def __init__(self, request: ScannerInput) -> None:
        self._input = request
        state = continuation.carried(request.state) or ScannerState(
            started=workflow.now(), pauses=request.pauses, modes=request.modes, mode_changes=request.mode_changes
        )
        state.holder = state.holder or request.holder
        self._state, self._underway = state, Underway(wait=request.wait)
        self._commands = Commands(request, state, self._underway)
        self._story = ScannerStory(request, state, self._underway, self._commands)
        self._answers = Answers(request.cluster, state, self._story.queue, self._story.permits)

    @workflow.run
    async def run(self, request: ScannerInput) -> ScannerResult:
        self._check_identity(request)
        workflow.upsert_search_attributes(
            [search_attributes.CLUSTER.value_set(request.cluster), search_attributes.KIND.value_set("HealthScanner")]
        )
        await run_to_its_end(self._scan_and_answer_all(), on_cancel=self._stop)
        if (stop := self._underway.stop) is None:
            # Else the next history would have the memo that this one began with: pauses and rules of modes that were set since
            # would be lost with the scanner (S44, S52).
            took_over = {TOOK_OVER_MEMO: workflow.info().run_id} if self._story.knows_what_was_set else {}
            memo = {**workflow.memo(), **took_over}
            # One that Temporal's own command has started has none (`temporal workflow start` knows no such option).
            continuation.go_on(self._carried(), memo=memo, retry_policy=continuation.ANEW)
        await run_to_its_end(self._story.give_back_lease(), on_cancel=self._stop)
        return ScannerResult(
            cluster=request.cluster,
            stopped_by=stop.by,
            reason=stop.reason,
            scans=self._state.scans,
            opened=self._state.opened,
        )

    async def _scan_and_answer_all(self) -> None:
        await self._story.run()
        await workflow.wait_condition(workflow.all_handlers_finished)

    def _stop(self) -> None:
        """However late a cancellation comes, it is a stop, and no scanner that was stopped keeps the Lease (S35)."""
        if self._underway.stop is None:
            self._commands.take_stop(StopRequest(who="Temporal", reason="the workflow was cancelled"))

    def _check_identity(self, request: ScannerInput) -> None:
        expected = scanner_id(request.cluster)
        if not request.cluster or workflow.info().workflow_id != expected:
            raise invalid_input(f"expected an input with a cluster, run under the workflow id {expected!r}")
        if request.cap < 1:
            raise invalid_input(f"cap: expected at least 1, got {request.cap}")

    def _carried(self) -> ScannerInput:
        """What the next history begins with."""
        return replace(self._input, state=self._state, pauses=(), modes=REPAIRS)

    # Episodes -------------------------------------------------------------------------------------------------------

    @workflow.signal(description="An episode ended, waits for a person or is held (not for people).")
    def release(self, release: Release) -> None:
        """An episode ended, parked, or is held; that is no failure of it."""
        self._story.releases.take(release)

    @workflow.signal(description="A worker sees that the cluster Lease is not renewed (not for people).")
    def scan_is_lost(self) -> None:
        """A poll that rests is given up for another one, which is missed in seconds if its worker dies. No other poll is:
        a signal that is not true costs one scan."""
        if workflow.patched(LOST_SCANS):
            self._underway.changed = True

    @workflow.query(description="Which of those incidents may disrupt their nodes now.")
    def holds_permits(self, asked: PermitQuestions) -> PermitQuestions:
        """Which of those incidents may disrupt their nodes now. Every last look asks this, one question for all looks of a
        moment. None as soon as a person has stopped the scanner, although it gives the Lease back later."""
        return self._story.look(asked)

    @workflow.signal(description="An episode asks for leave to disrupt its node, or to free pods (not for people).")
    async def ask(self, question: ScannerQuestion) -> None:
        """An episode asks for a permit, or how many pods it may free now; `answer` has what it was answered."""
        await self._answers.take(question)

    @workflow.query(description="What the question of an episode was answered (not for people).")
    def answer(self, question: ScannerQuestion) -> ScannerAnswer:
        """What that question was answered."""
        return self._answers.of(question)

    # People ---------------------------------------------------------------------------------------------------------

    @workflow.query(description="Everything that is known, for people.")
    def status(self) -> ScannerStatus:
        """Everything that is known, for people."""
        return self._story.status()

    @workflow.query(description="What was seen and not repaired, as far as it is not recorded yet.")
    def spells(self) -> ScannerSpells:
        """What was seen and not repaired, as far as it is not recorded yet."""
        return self._story.spells.handed_over()

    @workflow.query(description="Which cluster it scans: the uid of kube-system (not for people).")
    def cluster_uid(self) -> str:
        """Which cluster it scans: the uid of kube-system, "" while it is not known. Workers that serve the cluster's name ask
        it."""
        return self._state.cluster_uid

    async def _verified(self, verb: Verb, command: Command, still: Callable[[Command], None], **said: Any) -> Command:
        """See `attestation.verified_command`. said: what the request says besides."""
        spec = NodeActionSpec(action=verb, node="", reason=command.reason, **said)
        return await verified_command(command, spec, cluster=self._input.cluster, still=still)

    @workflow.update(description="Stop scanning; open episodes pause before their next destructive act.")
    async def stop(self, request: StopRequest) -> str:
        """Stop scanning; open episodes pause before their next destructive act."""
        return self._commands.take_stop(await self._verified(Verb.STOP_SCAN, request, self._check_stop))

    @stop.validator
    def _check_stop(self, request: StopRequest) -> None:
        require_name_and_reason(request)

    @workflow.update(description="Begin nothing new and do nothing destructive until a moment, or until unpause.")
    async def pause(self, request: PauseRequest) -> str:
        """Begin nothing new and do nothing destructive until a moment, or until `unpause`. What was begun and is off is still
        freed and switched on again."""
        return self._commands.take_pause(await self._verified(Verb.PAUSE, request, self._check_pause, until=request.until))

    @pause.validator
    def _check_pause(self, request: PauseRequest) -> None:
        require_name_and_reason(request)
        require_future(request.until)
        if self._underway.stop is not None:
            raise ValueError("pause: expected a scanner that goes on; this one is being stopped, and begins nothing")

    @workflow.update(
        description="End a pause: your own, or that of another person by name. The cluster goes on when none is left."
    )
    async def unpause(self, request: UnpauseRequest) -> str:
        """End a pause. The cluster goes on when none is left."""
        said = await self._verified(Verb.UNPAUSE, request, self._check_unpause, of=request.of)
        return self._commands.take_unpause(said, known=self._story.knows_what_was_set)

    @unpause.validator
    def _validate_unpause(self, request: UnpauseRequest) -> None:
        self._check_unpause(request)
        self._commands.require_known(request)

    def _check_unpause(self, request: UnpauseRequest) -> None:
        require_name_and_reason(request)

    @workflow.update(description="Set how far programs may go with some nodes, or with all.")
    async def set_mode(self, request: ModeRequest) -> str:
        """Set how far programs may go with some nodes, or with all. Without a rule the cluster's default holds."""
        said = {"mode": request.mode, "nodes": request.nodes, "selector": request.selector}
        return self._commands.take_mode(await self._verified(Verb.SET_MODE, request, self._check_set_mode, **said))

    @set_mode.validator
    def _validate_set_mode(self, request: ModeRequest) -> None:
        self._commands.require_known(request)  # not asked again: histories have commands that were accepted before
        self._check_set_mode(request)

    def _check_set_mode(self, request: ModeRequest) -> None:
        require_name_and_reason(request)
        self._commands.changed_modes(request)
