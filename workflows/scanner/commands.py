"""What people have commanded a scanner: that it stops, is paused, goes no further than a mode; and what of that
outlives a reset or a termination (S44, S52).

Each command is checked and verified before it comes here (`workflows/definitions/scanner.py`), and takes effect at once.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from temporalio import workflow

from activities.contracts.episodes import STOPPED_MEMO, FoundOpen
from policy.episode.decisions import DecisionKind
from policy.episode.modes import (
    CHANGES_REMEMBERED,
    LONGEST_KEPT,
    MODE_CHANGES_MEMO,
    MODES_MEMO,
    REPAIRS,
    UNSET,
    ClusterModes,
    ModeChange,
    ModeRule,
    scope_key,
    scope_of,
)
from policy.episode.node_action import Verb
from policy.episode.permits import PermitState
from policy.scan import pauses
from policy.scan.pauses import PAUSES_MEMO, Pause, Pauses
from policy.values.display_text import in_a_line, some_of
from policy.values.mode import Mode, read_mode
from policy.values.times import format_duration
from workflows.episode.attestation import refused
from workflows.kit import continuation, options
from workflows.kit.messages import ModeRequest, PauseRequest, StopRequest, UnpauseRequest
from workflows.scanner.state import ScannerInput, ScannerState, Underway

SAID_MEANWHILE = "what people command a run that replaces a failed one is not undone"
SAID_AFTER_RESET = "nor what they command after a reset"
STOPPED_BEFORE = "nor is a stop that a reset has taken back before it was done"
OF_THEIR_OWN_PAUSE = "nor what they say of their own pause"
MOST_NAMED = 20
"""Nodes of a command in its record, and in its answer those where an act may be under way."""


class Commands:
    """Of one scanner."""

    def __init__(self, scanner: ScannerInput, state: ScannerState, underway: Underway) -> None:
        self._scanner = scanner
        self._state = state
        self._underway = underway
        self.took_over = scanner.state is not None and not continuation.is_retry()
        """Whether what the last scanner had set is known: once, since people may take it back from then on (S44, S52)."""

    @property
    def halted(self) -> str:
        """Why nothing is begun although a node could need it, as people are shown everywhere (S44); "" else."""
        if (stop := self._underway.stop) is not None:
            return f"the scanner was stopped by {stop.by}: {stop.reason} (`nodewarden scan start` starts it)"
        return pauses.halted(self._state.pauses, workflow.now())

    def modes_in_force(self, *, was_reset: bool) -> ClusterModes | None:
        """None while it was not found out yet with which mode this cluster begins, which licenses no program (S52). Where an
        older version has built the table, none was looked for, and the cluster is repaired as before. was_reset: and what the
        former life had set was not taken over yet."""
        found = self._state.modes.is_known or self._state.known
        lost = was_reset or (not self.took_over and self._scanner.modes == REPAIRS)
        return self._state.modes if found and not lost else None

    # Commands -------------------------------------------------------------------------------------------------------

    def take_stop(self, request: StopRequest) -> str:
        """Nothing more is begun, and no last look licenses anything."""
        cluster, self._underway.stop, self._underway.changed = self._scanner.cluster, request, True
        self._state.record(cluster, DecisionKind.ANSWERED, act="stop-scan", who=request.by, message=request.reason)
        workflow.upsert_memo({STOPPED_MEMO: (request.by, request.reason)})
        self._underway.cut_short()
        return f"the scanner of {cluster} stops{self._still_licensed()}"

    def take_pause(self, request: PauseRequest) -> str:
        """Raises ApplicationError where there are too many."""
        state, cluster = self._state, self._scanner.cluster
        pause = Pause(who=request.by, owner=request.owner, reason=request.reason, since=workflow.now(), until=request.until)
        former = pauses.in_force(state.pauses, workflow.now())
        try:
            self._set_pauses(pauses.paused(state.pauses, pause))
        except ValueError as error:
            raise refused(f"pause: {error}") from error
        message = pauses.described((pause,))
        state.record(cluster, DecisionKind.ANSWERED, act="pause", who=request.by, message=message)
        replaced = "".join(f"; before, it was {each}" for each in former if each.owner == pause.owner)
        beside = "".join(f"; it is also {each}" for each in former if each.owner != pause.owner)
        return f"{cluster} is {message}{replaced}{beside}{self._still_licensed()}"

    def take_unpause(self, request: UnpauseRequest, *, known: bool) -> str:
        """known: whether all that had been set before is. Raises ApplicationError where it is not said which of several, or where
        one may be found that goes on although the person was told that there is none."""
        state, cluster, now = self._state, self._scanner.cluster, workflow.now()
        in_force = pauses.in_force(state.pauses, now)
        if not in_force:
            if (self._is_anew or not known) and workflow.patched(OF_THEIR_OWN_PAUSE):
                raise refused(
                    "unpause: this run of the scanner does not know yet which pauses were set before: repeat the command in some "
                    "seconds; nothing is begun until then"
                )
            return f"{cluster} was not paused"
        try:
            ended = pauses.to_be_ended(in_force, owner=request.owner, of=request.of)
        except ValueError as error:
            raise refused(f"unpause: {error}") from error
        self._set_pauses(pauses.unpaused(state.pauses, ended, who=request.by, reason=request.reason, now=now))
        workflow.logger.info("%s ends a pause of %s: %s", request.by, cluster, request.reason)
        state.record(cluster, DecisionKind.ANSWERED, act="unpause", who=request.by, message=request.reason)
        left = pauses.in_force(state.pauses, now)
        goes_on = f"{cluster} is still {pauses.described(left)}" if left else f"{cluster} is no longer paused"
        return f"{goes_on}; you have ended: {'; '.join(map(str, ended))}"

    def take_mode(self, request: ModeRequest) -> str:
        """Raises ApplicationError where that can't be set."""
        state, cluster = self._state, self._scanner.cluster
        change = ModeChange(
            at=workflow.now(),
            by=request.by,
            mode=request.mode,
            scope=scope_of(request.nodes, request.selector),
            scope_key=scope_key(request.nodes, request.selector),
            reason=in_a_line(request.reason, LONGEST_KEPT),
        )
        try:
            self._set_modes(self.changed_modes(request), change)
        except ValueError as error:
            raise refused(f"mode: {error}") from error
        about = some_of(request.nodes, MOST_NAMED) or request.selector or "all nodes"
        said = {"act": Verb.SET_MODE.value, "outcome": request.mode, "message": f"{about}: {request.reason}"}
        state.record(cluster, DecisionKind.MODE_CHANGED, who=request.by, **said)
        licensed = self._still_licensed() if request.mode != Mode.REPAIR else ""
        return f"{cluster}: {state.modes.described(request.nodes, request.selector)}{licensed}"

    def changed_modes(self, request: ModeRequest) -> ClusterModes:
        """Raises ValueError where that can't be set."""
        if request.mode == UNSET:
            return self._state.modes.unruled(request.nodes, request.selector)
        mode, problem = read_mode(request.mode)
        if problem:
            raise ValueError(problem)
        rule = ModeRule(
            mode=mode,
            by=request.by,
            reason=request.reason,
            at=workflow.now(),
            nodes=request.nodes,
            selector=request.selector,
        )
        return self._state.modes.ruled(rule)

    def _still_licensed(self) -> str:
        """What a person has to know of acts under way: a look before this command may have licensed one (S20)."""
        nodes = [node for node, permit in self._state.permits.items() if permit.state is not PermitState.PARKED]
        within, names = format_duration(options.ACT_WINDOW), some_of(nodes, MOST_NAMED)
        if self._is_anew or not self._state.known:  # which episodes hold a permit of the scanner before this one
            return f"; an act that was licensed before may still be done within {within}: of which nodes is not known yet"
        return f"; an act that was licensed before may still be done within {within}: {names}" if nodes else ""

    @property
    def _is_anew(self) -> bool:
        """Whether it was reset, and no report has come since. A task that gives it a command may tell it of a reset only after
        that; what it has taken in then is of another run."""
        info, report = workflow.info(), self._state.report
        return info.run_id != info.original_execution_run_id and (report is None or report.run != info.run_id)

    def require_known(self, request: UnpauseRequest | ModeRequest) -> None:
        """Raises ValueError for a command that lets more happen while it is not known what people had set before: it would be
        answered by what this run alone knows, and undone a moment later. A pause and the mode observe are taken at once."""
        lowers = isinstance(request, ModeRequest) and request.mode == Mode.OBSERVE
        if continuation.is_retry() and not self.took_over and not lowers:
            raise ValueError(
                "this run of the scanner replaces one that failed, and does not know yet what was set before: repeat the command "
                "in a few seconds; nothing is begun until then, and a pause or the mode observe is taken at once"
            )

    # What stays of them ---------------------------------------------------------------------------------------------

    def take_over(self, found: FoundOpen) -> None:
        """What people had set in a life of this history, or of the last one, that a reset took back and, where we were handed
        nothing from it, in the last scanner, as far as that lowers or stops: what raises a person sets anew (S44, S52). What
        they have said since counts more than all of it."""
        state, now = self._state, workflow.now()
        # Two runs of one id are never open at once: one that ended after this history had begun was a life of this one.
        began = workflow.info().workflow_start_time + timedelta(seconds=1)
        was_reset = found.untaken or (found.ended is not None and found.ended > began)
        if continuation.is_retry() and not was_reset:
            self._go_on_as(found)
            return
        begins = bool(found.former) and not (was_reset or self.took_over)
        takes_pauses = was_reset or (begins and not self._scanner.pauses)
        lost, since, taken_back = found.pauses, now, frozenset[str]()
        if was_reset and workflow.patched(SAID_AFTER_RESET):
            # A pause that is known and not in force was ended by a person since.
            known = {(each.pause.owner, each.pause.since) for each in state.pauses}
            lost, since = tuple(each for each in lost if (each.pause.owner, each.pause.since) not in known), found.ended or now
            if workflow.patched(OF_THEIR_OWN_PAUSE):  # one that Temporal has set again since is of another moment
                said = {each.pause.owner for each in state.pauses if (each.ended or each.pause.since) >= since}
                lost = tuple(each for each in lost if each.pause.owner not in said)
            taken_back = frozenset(each.scope_key for each in state.mode_changes if each.mode == UNSET and each.at >= since)
        standing = pauses.with_lost(state.pauses, lost, now) if takes_pauses else state.pauses
        if standing != state.pauses:
            self._set_pauses(standing)
        if was_reset:
            self._set_modes(state.modes.after_reset(found.modes or REPAIRS, since, taken_back))
        elif begins and self._scanner.modes == REPAIRS:
            self._lower_as(found)
        if found.repaired is not None and not state.modes.is_known:
            self._set_modes(state.modes.begun(repaired=found.repaired))
        self.took_over = True
        # A stop that was told to an earlier workflow of the id is over: a person has started the scanner since.
        ours = found.stop_ended is None or found.stop_ended > began
        if was_reset and found.stopped and ours and workflow.patched(STOPPED_BEFORE):
            self._stop_as(found)

    def _stop_as(self, found: FoundOpen) -> None:
        if found.stopped and self._underway.stop is None:
            who, reason = found.stopped
            self.take_stop(StopRequest(who=who, reason=reason))

    def _go_on_as(self, failed: FoundOpen) -> None:
        """As the run that failed stood: its memo has all that people had commanded; and what they have commanded since (S44,
        S52)."""
        state, began = self._state, workflow.info().workflow_start_time
        paused, modes = failed.pauses, failed.modes
        changes = tuple(each for each in state.mode_changes if each.at >= began)
        if (changes or any(each.pause.since >= began for each in state.pauses)) and workflow.patched(SAID_MEANWHILE):
            paused = pauses.with_said(paused, state.pauses, began, workflow.now())
            modes = modes.with_said(state.modes, began) if modes is not None else None
        else:
            changes = ()
        if paused != state.pauses:
            self._set_pauses(paused)
        if modes is not None and modes != state.modes:
            state.mode_changes = (*failed.mode_changes, *changes)
            self._set_modes(modes)
        self.took_over = True
        self._stop_as(failed)

    def _lower_as(self, found: FoundOpen) -> None:
        """No further than the last scanner's modes, but for what people have set since we began. A cluster that begins with
        observe is lowered already."""
        begun = self._state.modes.begun(repaired=found.repaired is not False)
        lowered = begun.after_reset(found.modes or REPAIRS, self._state.started)
        if begun.default is Mode.REPAIR and lowered.before:
            self._set_modes(replace(self._state.modes, before=lowered.before))

    def _set_pauses(self, changed: Pauses) -> None:
        """In the memo as well, where people and the next scanner find them, however this one has ended."""
        self._state.pauses = changed
        workflow.upsert_memo({PAUSES_MEMO: changed})
        self._underway.changed = True

    def _set_modes(self, changed: ClusterModes, *changes: ModeChange) -> None:
        """It takes effect at once: no report that was made under the former modes is acted on (S52). changes: by people."""
        before = self._state.modes
        if changed.default is not before.default or (changed.rules, changed.before) != (before.rules, before.before):
            self._underway.drop_report()
            self._underway.cut_short()
        self._state.modes, self._underway.changed = changed, True
        self._state.mode_changes = (*self._state.mode_changes, *changes)[-CHANGES_REMEMBERED:]
        workflow.upsert_memo({MODES_MEMO: changed, MODE_CHANGES_MEMO: self._state.mode_changes})
