"""The moves against a machine that is kept, one play of them, and the referee that judges it. docs/adversary.md has them as a
table.

Played is the workflow `Preservation`, and `Remediation` where it gives the machine up, on the clockwork; what the activities
do is `preservation_run.py`, with the real rules of what is kept. What goes wrong is drawn here, and judged by what is so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

from pydantic import TypeAdapter
from temporalio.exceptions import ApplicationError

from activities.errors import ErrorType, failure
from policy.episode.messages import (
    EpisodeResult,
    Kind,
    Outcome,
    Phase,
    PreservationInput,
    PreservationUpdate,
    episode_id,
    scanner_id,
)
from policy.episode.permits import PermitAnswer, PermitDecision, Release
from policy.fence.plan import CORDON, UNCORDON, Act
from policy.fence.power import PowerState
from policy.objects.nodes import PRESERVE_ANNOTATION, READY, Condition, NodeView
from policy.preservation.machine_snapshot import Isolation
from policy.preservation.requests import ISOLATE_ANNOTATION, Intent
from policy.values.mode import Mode
from tests.workflows import contract, preservation_run
from tests.workflows import world as scripted
from tests.workflows.attempts import Attempt, Lost
from tests.workflows.clockwork import Clockwork, Perils
from tests.workflows.contract import act_of
from tests.workflows.executions import Execution, Word
from tests.workflows.plans import CUTS, DETACH, FREE, GIVEN_BACK, LIFT, QUARANTINE, plan
from tests.workflows.played_acts import Freeing, at_once
from tests.workflows.plays import Move, least
from tests.workflows.preservation_run import MACHINE, ScriptedMachine, machine
from tests.workflows.world import NODE, World
from workflows.definitions.episodes import Preservation, Remediation
from workflows.kit.messages import AbortRequest, ExtendRequest, HoldEpisodeRequest, PersonRequest, ResumeRequest

CLUSTER = "adversity"
EPISODE, SCANNER = episode_id(CLUSTER, NODE), scanner_id(CLUSTER)
RELEASE = TypeAdapter(Release)
WAITS = (0.0, 0.0, 0.05, 0.4, 2.0, 12.0, 70.0, 600.0, 3600.0)
LONGEST = 20_000
"""Events of the clock between two moves."""
JUST_NOW = timedelta(seconds=5)
"""So long before pods are freed others may have opened a path that was read as cut."""
HEARD = timedelta(seconds=30)
"""So long before an act whoever objects has spoken early enough for its look, wherever that is taken."""
ACTED = frozenset({"drain", "cut_path", "detach_volume", "quarantine", "free_cut_pods", "give_up"})
"""What a hold keeps from the machine (S20)."""
NAMED = frozenset({"drain", "give_up"})
"""What the cluster Lease is shown for, in the name of a deployment (S38)."""
LATE = frozenset({"give_up", "cut_path", "quarantine"})
ARRIVES = {"late": timedelta(seconds=31), "unclear": timedelta(seconds=14)}
"""When what a worker has begun is done at last: it is lost, or lives and says that the answer was."""
AGAIN = timedelta(seconds=15)
"""So soon a scan begins anew for a machine that is kept, and has no episode."""
MAY_END = {
    *("machine_recovers", "only_node_gets_well", "check_calls_it_well", "machine_is_annotated", "machine_is_let_go"),
    *("machine_is_to_be_kept", "machine_is_deleted", "machine_is_replaced", "pool_keeps_fewer"),
}
"""Moves after which it may be kept no longer, or until another moment."""
CALLED = "NodeHealthCheck/workers calls it unhealthy"
BACK_AND_FORTH = 30
"""So often a play may have a machine kept after all."""
HASTY = 30
"""So often it may look at its machine in a minute, whatever people say to it."""
UNANSWERED = timedelta(seconds=150)
"""So long the API server takes each write, and no answer to any arrives."""
WRITES = frozenset({"mark", "mark_schedulable", "note_path", "give_up"})
APART = frozenset({"cut_path", "detach_volume", "quarantine", "free_cut_pods"})
BACK = frozenset({"restore_path", "lift_quarantine"})
POWER = frozenset({"power_off", "power_on", "terminate"})
PLANS = (
    plan(isolation=(CORDON, *CUTS, FREE), recovery=(*GIVEN_BACK, UNCORDON)),
    plan(isolation=(CORDON, *CUTS), recovery=(*GIVEN_BACK, UNCORDON)),
    plan(isolation=(CORDON, DETACH, FREE)),
    plan(isolation=(CORDON, QUARANTINE), recovery=(LIFT, UNCORDON)),
    plan(),
)
"""What a machine may be cut off by; of the last one nothing."""


class PlayedMachine(ScriptedMachine):
    """The activities of a play: they refuse what the real ones refuse by their own looks."""

    def __init__(self, play: KeptPlay) -> None:
        super().__init__(play.kept)
        self._play = play

    async def give_up(self, request: contract.GiveUpRequest) -> contract.GiveUpResult:
        if request.not_after is not None and self.moment > request.not_after:
            raise failure(ErrorType.EXPIRED, "the deletion comes too late")
        mode = self._kept.devices.mode
        if not (request.withdraw or request.released or self._kept.gave_up_at or mode is Mode.REPAIR):
            raise failure(ErrorType.NOT_LICENSED, f"its mode is {mode}")
        found = await super().give_up(request)
        self._kept.claimed = not (request.withdraw or found.kept)
        return found

    async def drain(self, request: contract.DrainRequest) -> contract.DrainResult:
        held = self._kept.held
        if not self._kept.unwell or held.expiry is None or held.expired(self.moment):
            raise failure(ErrorType.VETOED, "it is not kept as failed")
        return await super().drain(request)

    def judge_freeing(self, request: Freeing, act: str) -> None:
        super().judge_freeing(request, act)
        opened = self._play._opened_at
        if opened is not None and self.moment - opened < JUST_NOW:  # no reading could tell
            self._kept.broken[:] = [each for each in self._kept.broken if "pods were freed behind" not in each]

    def is_noted(self, path: str) -> bool | None:
        return super().is_noted(path) if self._kept.devices.mark is not None else None

    async def request_permit(self, request: contract.AskPermit) -> PermitAnswer:
        answer = await super().request_permit(request)
        self._play.permit = self._play.permit or answer.decision is PermitDecision.GRANTED
        self._play.queued = answer.decision is PermitDecision.QUEUED
        if self._play.queued:
            episode = self._play._episodes
            self._play.clockwork.after(self._play._grants_after, lambda: self._play._grant(episode))
        return answer


def incident_of(request: Any) -> str:
    """Whose it is."""
    return getattr(request, "incident", "") or request.target.incident


class KeptPlay:
    """One machine, its preservations one after the other, and all that happens to them."""

    def __init__(self, seed: int, moves: list[Move] | None = None, *, alphabet: Alphabet | None = None) -> None:
        """alphabet: what is drawn from (FIRST)."""
        draw = Random(seed)
        self.seed, self.draw = seed, draw
        self.kept = machine(draw.choice((None, None, "now", "when-failed")), fails=draw.random() < 0.7)
        self.kept.devices = World(plan=draw.choice(PLANS), ready=not self.kept.held.failed)
        self.kept.called = ""
        self.kept.timeout = timedelta(hours=draw.choice((1, 6, 72)))
        self._automatic = self.kept.annotated_by_nobody and draw.random() < 0.7
        self._isolates = draw.random() < 0.5
        perils = draw.choice((Perils(), Perils(forgets=0.05), Perils(forgets=0.02, dies=0.02, queues=0.03)))
        self.clockwork = Clockwork(
            (Preservation, Remediation), self._perform, Random(seed), perils=perils, unheard=self._hear_signal
        )
        self.clockwork.rolls = draw.random() < 0.3
        drawn = drawn_moves(draw, alphabet or FIRST)
        self.moves = moves if moves is not None else drawn
        self.broken = self.kept.broken
        self.told: list[str] = []
        self.acts: Counter[str] = Counter()
        self.permit = self.queued = False
        self._said: list[tuple[str, Word, Any]] = []
        """What people have said to the present episode."""
        self._faults: list[str] = []
        """What befalls the next activities."""
        self._since = dict[str, datetime]()
        """Since when something has been so without a break."""
        self._looks: list[datetime] = []
        self._was_cut: set[str] = set()
        self._episodes = self._ended = 0
        self._underway: list[tuple[str, str, datetime]] = []
        """What may arrive yet: the act, the incident whose it is, and when."""
        self._again: Callable[[], object] = lambda: None
        self._began_kept: datetime | None = None
        self._lasts: datetime | None = None
        """Until when it is kept at least: only its Node has gone since, or was made anew."""
        self._ends_at, self._surplus = self.clockwork.now, False
        """When something was last done that may end its preservation; whether its pool has let it go."""
        self._acts = PlayedMachine(self)
        if alphabet is NODES and self.kept.held.failed and seed % 2:
            self.kept.recovers()
            self._is_called_failed()

    def run(self) -> list[str]:
        """What was wrong, each with its rule."""
        run_id = lambda: self.clockwork.executions[EPISODE].run_id  # noqa: E731
        clock = lambda: self.clockwork.now  # noqa: E731
        with (
            patch.multiple(scripted, clock=clock, this_run=run_id),
            patch.object(preservation_run, "clock", clock),
            self.clockwork as clockwork,
        ):
            self._starts()
            for move in self.moves:
                self.draw = Random(move.number)
                self.told.append(f"{clockwork.now:%d %H:%M:%S} {move}")
                if move.name in MAY_END:
                    self._ends_at, self._lasts = clockwork.now, None
                getattr(self, move.name)()
                self._pass(move.wait)
                if self.broken or clockwork.problems:
                    break
            else:
                self._calm()
            return [*dict.fromkeys((*self.broken, *clockwork.problems))]

    def fault(self, rule: str, what: str) -> None:
        """A rule is broken."""
        self.broken.append(f"{rule}: {what}")

    def _starts(self, held: str = "") -> None:
        """held: what a person had said to the one before it, which was terminated."""
        self._episodes += 1
        self._said[:] = [("hold", Word(taken=self.clockwork.now, done=True), None)] if held else []
        self.permit = self.kept.devices.permitted = self.queued = False
        self._pods_left, self._isolation, self._told = 0, (Isolation.NONE, False), (self._unhealthy, self.clockwork.now)
        self._node_uid, self._node_went = self.kept.devices.uid, self._node_has_gone
        if self.kept.devices.mark is None:  # which alone tells of a predecessor
            self._underway.clear()
        request = PreservationInput(
            cluster=CLUSTER,
            node=NODE,
            machine=MACHINE,
            incident=f"incident-{self._episodes}",
            keep=False,
            automatic=self._automatic,
            isolate=self._isolates,
            unhealthy=self._unhealthy,
            holder=self.draw.choice(("us", "us", "")),
            reason="drawn",
            requester=SCANNER,
            held=held,
        )
        self.clockwork.start("Preservation", EPISODE, request)

    def _goes_on(self) -> None:
        """The scanner begins anew for a machine that is kept, of which the Node is another object now."""
        if self._open is None and self.kept.present and self.kept.held.expiry is not None:
            self._starts()

    @property
    def _open(self) -> Execution | None:
        execution = self.clockwork.open(EPISODE)
        return execution if execution is not None and execution.begun else None

    def _pass(self, seconds: float) -> None:
        clockwork, until = self.clockwork, self.clockwork.now + timedelta(seconds=seconds)
        for _ in range(LONGEST):
            due = clockwork.due()
            if due is None or due > until:
                break
            clockwork.turn()
            self._note()
            if self.broken:
                break
        else:
            self.fault("S35", "it never rests")
        clockwork.now = max(clockwork.now, until)

    # The truth ------------------------------------------------------------------------------------------------------

    def _note(self) -> None:
        """Since when what speaks against an act has been so; and how an episode has ended."""
        kept, now, execution = self.kept, self.clockwork.now, self.clockwork.executions[EPISODE]
        self._was_cut |= {path for path, state in kept.devices.paths.items() if state is PowerState.OFF}
        so = {
            "nothing keeps it": kept.held.expiry is None or kept.held.expiry <= now,
            "it has not failed": not kept.unwell,
            "it is not well": bool(kept.unwell) and not kept.held.well,
            "its mode allows no eviction": not kept.devices.mode.allows(Mode.DRAIN),
            "its mode allows no deletion": kept.devices.mode is not Mode.REPAIR,
        }
        self._since = {what: self._since.get(what, now) for what, is_so in so.items() if is_so}
        if execution.closed and execution.failure != "terminated" and self._ended < self._episodes:
            self._ended = self._episodes
            self._judge_the_end(execution)

    def _word(self, *verbs: str, by: datetime | None = None) -> Word | None:
        """The last word of one of these kinds that had been taken by then."""
        found = [
            word for verb, word, _ in self._said if verb in verbs and word.taken is not None and (by is None or word.taken <= by)
        ]
        return max(found, key=lambda word: word.taken or self.clockwork.now, default=None)

    def _is_held(self, by: datetime) -> bool:
        held, freed = self._word("hold", by=by), self._word("resume", "abort", by=by)
        return held is not None and (freed is None or (freed.taken or by) < (held.taken or by))

    def _judge(self, act: str, attempt: Attempt) -> None:
        """An act that is about to be carried out."""
        if act in POWER:
            self.fault("S21", f"{act} of a machine that is kept")
        if act == "request_permit" and not attempt.repeats:
            to_cut = attempt.kind == "Preservation"
            by = self._looks[-1] if to_cut else attempt.decided - HEARD  # what is said later is heard before the next act
            if self._word(*(("abort", "release") if to_cut else ("abort",)), by=by) is not None:
                self.fault("S14", "a permit is asked for after an abort or a release")
        if act == "drain" and self.clockwork.executions[EPISODE].query("status").permit:
            self.fault("S14", "it keeps a permit for what it does later, and drains")
        sick = self._since.get("it is not well")
        if act in BACK and sick is not None and self.clockwork.now - sick > HEARD and self._word("return_path") is None:
            self.fault("S35", f"{act} of a machine that has failed")
        new = act in ACTED and not attempt.repeats and not getattr(attempt.request, "withdraw", False)
        if not new or self.kept.gave_up_at is not None:
            return
        mine = incident_of(attempt.request)
        for other, incident, until in self._underway:
            if until > self.clockwork.now and (other == act == "give_up" or incident != mine):
                self.fault("S34", f"{act} while {other} of {incident} may be under way")
        if act == "give_up" and self._unlicensed_at is not None and attempt.decided > self._unlicensed_at:
            self.fault("S14", "its deletion is asked for again under a permit that the scanner does not know")
        if self._is_held(attempt.decided):
            self.fault("S20", f"{act} while held")
        if self._word("abort", by=attempt.decided) is not None:
            self.fault("S20", f"{act} after an abort")
        if act in APART and not self._permitted:
            self.fault("S14", f"{act} without a permit")
        if act in NAMED and not attempt.request.holder:
            self.fault("S38", f"{act} by a deployment that has no name")
        released = self._word("release", by=attempt.decided)
        kept_anew = (
            released is not None and self._annotated_at is not None and self._annotated_at >= (released.taken or attempt.now)
        )
        if act != "give_up" and released is not None and not kept_anew:
            self.fault("S20", f"{act} after a release")
        against = ("nothing keeps it", "it has not failed") if act in APART else ()
        for what in against:
            since = max(self._since.get(what, attempt.now), self._unanswered_until)  # until then it can write down no path
            if attempt.now - since > HEARD > attempt.now - attempt.decided:
                self.fault("S20", f"{act} although {what}, for {attempt.now - since} already")

    def _judge_deletion(self, attempt: Attempt) -> None:
        """The machine has just been given up."""
        now, released = self.clockwork.now, self._word("release", "abort")
        if not self._permitted:
            self.fault("S14", "its deletion is asked for without a permit")
        if not self.kept.unwell:
            self.fault("S21", "a machine that has not failed is deleted")
        below = self._since.get("its mode allows no deletion")
        if below is not None and below < now and released is None:
            self.fault("S52", "deleted below repair, and no person has released it")
        moved = self._word("extend", by=attempt.decided)
        annotated = self._annotated_at is not None and moved is not None and self._annotated_at >= (moved.taken or now)
        if moved is not None and released is None and not annotated:
            until = next(until for verb, word, until in self._said if word is moved)
            if until is not None and until > now:
                self.fault("S44", f"deleted although a person was told that it is kept until {until}")

    def _judge_the_end(self, execution: Execution) -> None:
        kept, devices = self.kept, self.kept.devices
        if execution.failure:
            self.fault("S35", f"the workflow failed: {execution.failure}")
            return
        result: EpisodeResult = execution.result
        told = f" (ended {result.outcome}: {result.message})"
        if devices.present and devices.marked == result.incident and "left cut" not in result.message:
            self.fault("S35", f"our mark is left{told}")
        cut = [path for path, state in devices.paths.items() if state is PowerState.OFF]
        if kept.claimed and kept.present and kept.gave_up_at is None and "can't be" not in result.message:
            self.fault("S35", f"our claim on the Node is left{told}")
        unknown = self._node_went  # told by the one before it: the mark has gone with the Node
        if (cut or devices.quarantined) and kept.present and "left cut" not in result.message and not unknown:
            self.fault("S35", f"{cut or 'its network'} left cut and no person is told{told}")
        if result.outcome is Outcome.REPLACED and kept.present and not kept.held.deleting:
            if devices.uid == self._node_uid:
                self.fault("S35", f"replaced, and the machine is there{told}")
            if self._is_held(self._looks[-1]) and self._is_held(self.clockwork.now):
                self.fault("S44", f"a person holds it, and the next one knows of no hold{told}")
            self.clockwork.after(AGAIN, self._goes_on)
        kept_on = execution.definition.name == "Preservation"  # where it is given up, a cancellation ends that
        if result.outcome is Outcome.ABORTED and self._word("abort") is None and kept_on:
            self.fault("S21", f"aborted by no person{told}")
        over = kept.held.expiry is None or kept.held.deleting or not kept.present
        if result.outcome in {Outcome.RELEASED, Outcome.RECOVERED, Outcome.ABORTED} and not over and not self._armed:
            self.fault("S21", f"it is over, and its objects say that the machine is kept until {kept.held.expiry}{told}")

    @property
    def _is_cut(self) -> bool:
        """Whether anything of it is cut, as a mark that stays says."""
        devices = self.kept.devices
        return devices.quarantined or bool(devices.mark is not None and devices.mark.paths)

    @property
    def _armed(self) -> bool:
        """Whether a person has annotated it since the last look, which the scanner then sees."""
        return self._annotated_at is not None and self.clockwork.now - self._annotated_at < HEARD

    @property
    def _permitted(self) -> bool:
        """Whether it has a permit, or had one when it looked."""
        forgotten = self._forgotten_at is not None and self.clockwork.now - self._forgotten_at > HEARD
        return self.permit and (self.kept.devices.permitted or not forgotten)

    _unlicensed_at: datetime | None = None
    """Since when its episode knows that the scanner knows of no permit of its, and has asked for no other."""
    _unanswered_until: datetime = datetime.min.replace(tzinfo=UTC)
    _late_as = ""
    """How the next act that may be late is."""
    _annotated_at: datetime | None = None
    _opened_at: datetime | None = None
    _refused_until: datetime = _unanswered_until
    """Until then our writes are refused, so many of them."""
    _refusals = 0
    _refused_as = ErrorType.FORBIDDEN
    _told = "", datetime.max.replace(tzinfo=UTC)
    """What the scanner has last told of a health check, and when."""
    _pods_left = 0
    """How many stand behind the cut, as was said when they were freed last."""
    _isolation = (Isolation.NONE, False)
    """How far its isolation is, as its last look says, and whether it is wanted."""
    _forgotten_at: datetime | None = None
    _grants_after = timedelta(seconds=40)

    # What befalls activities ----------------------------------------------------------------------------------------

    def _perform(self, attempt: Attempt) -> Any:
        act = act_of(attempt.call)
        self.kept.devices.settle(attempt.now)
        self._note()
        befalls = self._faults.pop(0) if self._faults and act not in {"publish", "name_deployment"} else ""
        if act in LATE and self._late_as and not getattr(attempt.request, "withdraw", False):
            befalls, self._late_as = self._late_as if act == "give_up" else "late", ""
        self.told.append(f"{attempt.now:%d %H:%M:%S}   {act}{f' ({befalls})' if befalls else ''}")
        if befalls == "lost before":
            raise Lost
        if befalls in set(ErrorType):
            kept = self.kept
            if act == "give_up" and kept.devices.permitted and kept.held.failed and kept.held.expiry is None:
                kept.claimed = kept.claimed or not attempt.request.withdraw  # which comes before what has failed
            raise failure(ErrorType(befalls), f"{act}: drawn")
        if act in WRITES and self._refusals and attempt.now < self._refused_until:
            self._refusals -= 1
            raise failure(self._refused_as if act != "give_up" else ErrorType.FORBIDDEN, f"{act}: our rights are missing")
        if self._forgets and act == "give_up":
            self._forgets = False
            self.permit_is_forgotten()
        self._judge(act, attempt)
        if befalls in ARRIVES and act in LATE and not getattr(attempt.request, "withdraw", False):
            self.clockwork.after(ARRIVES[befalls], lambda: self._arrives(act, attempt.request))
            self._underway.append((act, incident_of(attempt.request), self.clockwork.now + ARRIVES[befalls]))
            if befalls == "unclear":
                raise failure(ErrorType.AMBIGUOUS, f"{act}: the answer was lost")
            raise Lost
        given_up, before = self.kept.gave_up_at, len(self.kept.acts)
        if act == "request_permit":
            self._unlicensed_at = None
        elif act == "give_up" and not (self.kept.devices.permitted or self.kept.gave_up_at or attempt.request.withdraw):
            self._unlicensed_at = self.clockwork.now
        answer = at_once(getattr(self._acts, act)(attempt.request))
        self.acts[act] += 1
        if act == "give_up" and self.kept.gave_up_at is not given_up:
            self._judge_deletion(attempt)
        if act == "give_up" and not self.kept.present:
            self.kept.devices.lose_node()
        if act == "hold":
            self._judge_hold(self.kept.acts[before:], answer)
            until, lasts = self.kept.held.expiry, self._lasts
            if lasts is not None and lasts > self.clockwork.now and until != lasts and not self._has_moved:
                self.fault("S21", f"only its Node has gone or was made anew, and it is kept until {until}, not {lasts}")
            self._isolation = attempt.request.isolation, answer.isolate
            self._looks = [*(at for at in self._looks if attempt.now - at < timedelta(minutes=1)), attempt.now]
            if len(self._looks) > HASTY:
                self.fault("S35", f"it looks {len(self._looks)} times in a minute")
            says, at = self._told
            taken_for_well = answer.recovered or (answer.preserved and not answer.phase.startswith("Failed"))
            sick = bool(says) and says == self.kept.called and not self.kept.held.well
            if taken_for_well and sick and at < attempt.decided:
                self.fault("S44", f"it is taken for well, and was told: {says}")
            if attempt.request.isolation is Isolation.CUT and self._pods_left:
                self.fault("S44", f"it says that the machine is cut off, and {self._pods_left} pods are left behind the cut")
        if act == "give_up" and answer.kept and not attempt.request.withdraw:
            self.acts["kept"] += 1
            if self.acts["kept"] > BACK_AND_FORTH:
                self.fault("S35", f"it is given up and kept, over and over: {answer.kept}")
        if act == "free_cut_pods":
            self._pods_left = answer.left.pods
        if befalls == "lost after":
            raise Lost
        if act in WRITES and self.clockwork.now < self._unanswered_until:
            lost = ErrorType.AMBIGUOUS if act == "give_up" else ErrorType.TRANSIENT
            raise failure(lost, f"{act}: etcdserver: request timed out")
        return answer

    def _arrives(self, act: str, request: Any) -> None:
        """What a worker that was lost had begun in time, at the very end of what it may take."""
        if self._open is None:
            self.fault("S34", f"{act} of an episode that has ended arrives, which was not waited out")
        in_time = patch.object(scripted, "clock", lambda: min(self.clockwork.now, request.not_after))
        with suppress(ApplicationError), in_time:
            given_up = self.kept.gave_up_at
            at_once(getattr(self._acts, act)(request))
            if self.kept.gave_up_at is not given_up:
                self.told.append(f"{self.clockwork.now:%d %H:%M:%S}   {act} arrives")

    def _judge_hold(self, acts: list[str], hold: contract.Hold) -> None:
        """S25: what has ended is kept anew by no program while the same failure lasts."""
        again = "preserve" in acts and hold.value == Intent.AUTOMATIC and self.kept.unwell
        if again and self._began_kept is not None:
            self.fault("S25", "a failure whose preservation has ended is kept once more")
        if hold.ended and self.kept.unwell:
            self._began_kept = self.clockwork.now

    def _hear_signal(self, _workflow_id: str, signal: str, argument: Any) -> bool:
        heard = self.clockwork.random.random() < 0.7
        if signal == "release" and RELEASE.validate_python(argument) and heard:
            self.permit = self.kept.devices.permitted = self.queued = False
        return heard

    # The machine ----------------------------------------------------------------------------------------------------

    def _changed(self) -> None:
        """The scanner sees it, mostly."""
        if self.draw.random() < 0.7:
            self.clockwork.after(timedelta(seconds=self.draw.choice((0.2, 5.0))), self.scanner_tells)
        self._note()

    def machine_fails(self) -> None:
        if not self.kept.unwell:
            self._began_kept = None
        self.kept.fails()
        self.kept.devices.ready = False
        self._changed()

    def machine_recovers(self) -> None:
        self._began_kept = None
        self.kept.called = ""
        self.kept.recovers()
        self.kept.devices.ready, self.kept.devices.ready_since = True, self.clockwork.now
        self._changed()

    def only_node_gets_well(self) -> None:
        self.kept.node_gets_well()
        self.kept.devices.ready, self.kept.devices.ready_since = True, self.clockwork.now
        self._changed()

    def check_calls_it_failed(self) -> None:
        """A health check alone: its controller does not. Mostly its Node says so, too."""
        if not self.kept.unwell:
            self._began_kept = None
        if self.draw.random() < 0.7:
            self._is_called_failed()
        self.kept.called = CALLED
        self._changed()

    def _is_called_failed(self) -> None:
        self.kept.called = CALLED
        self.kept.node_falls_silent()
        self.kept.devices.ready = False

    def check_calls_it_well(self) -> None:
        """The check is gone, or begins its time anew; the Node is as it was."""
        self.kept.called = ""
        self._changed()

    def machine_restarts(self) -> None:
        devices = self.kept.devices
        devices.boots += 1
        devices.boot_id = f"boot-{devices.boots}"
        self._changed()

    def machine_is_annotated(self) -> None:
        value = self.draw.choice(("now", "when-failed", "false", "false", None, "nwo"))
        self.kept.annotate(value)
        self._annotated_at = self.clockwork.now
        self._changed()

    def machine_is_to_be_kept(self) -> None:
        self.kept.annotate("now")
        self._annotated_at = self.clockwork.now
        self._changed()

    def machine_is_let_go(self) -> None:
        self.kept.annotate("false")
        self._annotated_at = self.clockwork.now
        self._changed()

    def isolation_is_annotated(self) -> None:
        held = self.kept.held
        if held.node is None:
            return
        node = replace(held.node, annotations={**held.node.annotations, ISOLATE_ANNOTATION: self.draw.choice(("true", "false"))})
        self.kept.held = replace(held, node=node)
        self._changed()

    def machine_is_deleted(self) -> None:
        """By a person, or its set: which beats any preservation (S26). Its Node goes with it, or outlives it."""
        self.kept.present = False
        if self.draw.random() < 0.7:
            self.kept.devices.lose_node()
        self._changed()

    def machine_is_replaced(self) -> None:
        """It is deleted with its Node, and another Machine of the same name is there."""
        self.kept.replaced, self.kept.present = True, False
        self.kept.devices.lose_node()
        self._changed()

    def node_is_deleted(self) -> None:
        """Alone: by its cloud's controller, or a person. Its Machine stays."""
        self._note_what_lasts(well=False)
        self.kept.held, self.kept.called = replace(self.kept.held, node=None), ""  # a check of Nodes says nothing of it
        self.kept.devices.lose_node()
        self._changed()

    def node_is_made_anew(self) -> None:
        """Its kubelet registers, with none of the annotations."""
        well = self.draw.random() < 0.5
        self._note_what_lasts(well=well)
        devices = self.kept.devices
        devices.lose_node()
        devices.register(self.clockwork.now, another=False)
        devices.ready, devices.ready_since = well, self.clockwork.now if well else None
        ready = Condition(type=READY, status="True" if well else "Unknown")
        self.kept.held = replace(self.kept.held, node=NodeView(name=NODE, uid=devices.uid, conditions=(ready,)))
        self._changed()

    def _note_what_lasts(self, *, well: bool) -> None:
        """Its preservation goes on by what its objects say now, if nobody has said or done otherwise since the last look. One for
        its failure is over once its Node is well. well: its new one is."""
        held, self._node_has_gone = self.kept.held, True
        value = held.on_node.get(PRESERVE_ANNOTATION)
        self._value = value if held.node is not None and value is not None else self._value
        if well and self._value != Intent.NOW:
            self._lasts = None
        looked = bool(self._looks) and self._looks[-1] > self._ends_at
        if self._lasts is None and looked and not (self._surplus or self._has_moved):
            well = well or held.well
            lasts = self._value == Intent.NOW or (not well and (self._value is None or self._value == Intent.WHEN_FAILED))
            self._lasts = held.expiry if lasts else None

    @property
    def _has_moved(self) -> bool:
        """Whether a person has ended it, or moved its end."""
        return any(verb in {"release", "abort", "extend"} for verb, _, _ in self._said)

    _node_has_gone = False
    _value: str | None = None
    """What its Node has last said that a person wants."""

    def mode_changes(self) -> None:
        self.kept.devices.mode = self.draw.choice(list(Mode))
        self._changed()

    def pods_stay(self) -> None:
        self.kept.devices.drains += [contract.DrainResult(evicted=1, left=1, names=("default/db-0",))] * self.draw.randint(1, 8)
        self.kept.devices.cut_pods_stay = self.draw.choice((0, 1))

    def path_fails(self) -> None:
        devices = self.kept.devices
        which = (
            set(self.draw.sample(sorted((*devices.paths, *devices.volumes)), 1)) if devices.paths or devices.volumes else set()
        )
        devices.silent, devices.stuck = (which, set()) if self.draw.random() < 0.5 else (set(), which)

    def path_works(self) -> None:
        self.kept.devices.silent, self.kept.devices.stuck = set(), set()

    def path_is_opened(self) -> None:
        self.kept.devices.open_paths()
        self._opened_at = self.clockwork.now

    def mark_is_removed(self) -> None:
        self.kept.devices.lose_mark()

    # The scanner ----------------------------------------------------------------------------------------------------

    @property
    def _unhealthy(self) -> str:
        """What the scanner says that a health check says of it."""
        return "" if self.kept.held.failed else self.kept.unwell

    def scanner_tells(self) -> None:
        if (execution := self._open) is not None and execution.definition.name == "Preservation":
            self._told = self._unhealthy, self.clockwork.now
            execution.signal("look_again", PreservationUpdate(unhealthy=self._unhealthy))

    def pool_keeps_fewer(self) -> None:
        if (execution := self._open) is not None and execution.definition.name == "Preservation":
            execution.signal(
                "look_again", PreservationUpdate(unhealthy=self._unhealthy, released="the pool keeps fewer machines")
            )
            self._surplus = True
            self._annotated_at = self.clockwork.now  # the cap lets go of what a person has extended, too (S24)

    def no_permit_is_granted(self) -> None:
        """For a while: it is refused, or queued for."""
        if self.draw.random() < 0.5:
            refused = PermitAnswer(decision=PermitDecision.REFUSED, reason="a circuit breaker is open")
            self.kept.devices.answers += [refused] * self.draw.randint(1, 3)
            return
        self.kept.devices.answers.append(PermitAnswer(decision=PermitDecision.QUEUED, reason="the cap is reached"))
        self._grants_after = timedelta(seconds=self.draw.choice((1, 40, 900)))

    def _grant(self, episode: int) -> None:
        """Of that episode. Where it wants none any more, its word and the grant may cross on their ways."""
        if (execution := self._open) is not None and episode == self._episodes:
            self.permit = self.kept.devices.permitted = self.queued
            self._unlicensed_at = None
            execution.signal("permit_granted")

    def permit_is_forgotten_late(self) -> None:
        """The same, right before its deletion is asked for."""
        self._forgets = True

    _forgets = False

    def permit_is_forgotten(self) -> None:
        """A scanner that was started anew knows of none."""
        self.kept.devices.permitted = False
        self._forgotten_at = self.clockwork.now

    # People ---------------------------------------------------------------------------------------------------------

    def _says(self, verb: str, argument: Any, until: datetime | None = None) -> None:
        def say() -> None:
            if (execution := self._open) is not None:
                with_question = argument
                if hasattr(argument, "question"):
                    with_question = replace(argument, question=execution.query("status").question)
                self._said.append((verb, execution.update(verb, with_question), until))

        self._again = say
        say()

    def person_holds(self) -> None:
        self._says("hold", HoldEpisodeRequest(who="ada", reason="drawn"))

    def person_resumes(self) -> None:
        """Their own hold, and the one that the scanner has handed on."""
        handed_on = self._open is not None and any(each.startswith(SCANNER) for each in self._open.query("status").held_by)
        for owner in ("", SCANNER) if handed_on else ("",):
            self._says("resume", ResumeRequest(who="ada", reason="drawn", of=owner))

    def person_releases(self) -> None:
        self._says("release", PersonRequest(who="ada", reason="drawn"))

    def person_extends(self) -> None:
        until = self.clockwork.now.replace(microsecond=0) + timedelta(hours=self.draw.choice((80, 200)))
        self._says("extend", ExtendRequest(who="ada", reason="drawn", until=until), until)

    def person_isolates(self) -> None:
        self._says("isolate", PersonRequest(who="ada", reason="drawn"))

    def person_aborts(self) -> None:
        self._says("abort", AbortRequest(who="ada", reason="drawn"))

    def person_returns_path(self) -> None:
        self.kept.devices.word = True
        self._says("return_path", PersonRequest(who="ada", reason="drawn"))

    def person_says_it_again(self) -> None:
        self._again()

    # Temporal -------------------------------------------------------------------------------------------------------

    def episode_is_terminated(self) -> None:
        """And another one begins, in a new incident."""
        if (execution := self._open) is not None and self.kept.present:
            status = execution.query("status")
            execution.terminate()
            self._starts(status.aborted or status.held)

    def episode_is_cancelled(self) -> None:
        if (execution := self._open) is not None:
            execution.cancel("drawn")
            self._said.append(("cancel", Word(taken=self.clockwork.now), None))

    def episode_is_reset(self) -> None:
        execution = self._open
        if execution is None or execution.tasks < 3 or execution.former is not None:
            return
        kept = max(execution.tasks - self.draw.choice((1, 2, 5, execution.tasks)), 2)
        since = execution.moments[kept]
        for _, word, _ in self._said:
            if word.taken is not None and word.taken >= since:
                word.taken, word.done = None, False
        self.clockwork.reset(execution, kept, reapplies=self.draw.random() < 0.6)

    def episode_rolls(self) -> None:
        if (execution := self._open) is not None:
            execution.suggests_rolling = True

    def episode_is_forgotten(self) -> None:
        if (execution := self._open) is not None:
            execution.forget()
            execution.deaf_until = self.clockwork.now + timedelta(seconds=self.draw.choice((1, 20)))

    def activities_fail(self) -> None:
        kinds = ("lost before", "lost after", "late", "", *(each.value for each in (ErrorType.TRANSIENT, ErrorType.FORBIDDEN)))
        kinds = (*kinds, ErrorType.UNREACHABLE.value, ErrorType.AMBIGUOUS.value)
        self._faults += self.draw.choices(kinds, k=self.draw.randint(1, 6))

    def act_is_late(self) -> None:
        """The next that may be: its worker is lost and goes on, or the answer to a deletion is lost on its way."""
        self._late_as = self.draw.choice(tuple(ARRIVES))

    def writes_are_refused(self) -> None:
        """Once or for a while: our rights are missing, or our token is not taken, which is final at once."""
        self._refused_until = self.clockwork.now + timedelta(seconds=self.draw.choice((40, 400)))
        self._refusals = self.draw.choice((1, 2, 1000))
        self._refused_as = self.draw.choice((ErrorType.FORBIDDEN, ErrorType.UNAUTHORIZED))

    def answers_are_lost(self) -> None:
        self._unanswered_until = self.clockwork.now + UNANSWERED

    # The end --------------------------------------------------------------------------------------------------------

    def _calm(self) -> None:
        """All works again, and the episode is to end: by its time, or a person's word."""
        devices = self.kept.devices
        self._faults.clear()
        self._late_as, self._unanswered_until = "", self.clockwork.now
        self._refusals = 0
        devices.silent, devices.stuck, devices.drains, devices.cut_pods_stay = set(), set(), [], 0
        devices.mode, self.clockwork.perils = Mode.REPAIR, Perils()
        self.scanner_tells()
        self._pass(7200)
        self._judge_what_is_said()
        if self.broken:
            return
        for verb in (self.person_resumes, self.person_releases, self.person_returns_path, self.person_aborts):
            for _ in range(2):
                verb()
                self._pass(3 * 3600)
                if self._open is None:
                    return
        status = self._open.query("status") if self._open is not None else None
        if status is not None and not self.broken:
            self.fault("S35", f"it never ended: {status.phase}, {status.doing}, {status.problem}")

    def _judge_what_is_said(self) -> None:
        """S44: what its status says of a machine that is kept is on its objects; and what people have said was done."""
        execution, held = self._open, self.kept.held
        if execution is None or execution.hears:
            return
        status = execution.query("status")
        held_back = self._is_held(self.clockwork.now)  # from its drain, which comes first, or in the middle of being cut off
        if self._word("abort") is not None and self.kept.gave_up_at is None:
            self.fault("S20", f"it was aborted, and goes on: {status.doing}, {status.problem}")
        asked = {path for path in self.kept.devices.paths if "return-path" in status.problem and path in status.problem}
        if asked and self._word("return_path") is not None:
            self.fault("S44", f"a person was told that a path is given back, and is asked again: {status.problem}")
        if asked - self._was_cut:
            self.fault("S44", f"a person is asked about a path that was never cut: {status.problem}")
        if status.kind is Kind.REMEDIATION and self.kept.gave_up_at is None and not held_back:
            kept = held.on_node.get(PRESERVE_ANNOTATION) in {Intent.NOW, Intent.WHEN_FAILED}
            why = "S27", "is annotated to be kept, and its episode gives it up"
            self.fault(*(why if kept else ("S35", f"is never given up: {status.doing}, {status.problem}")))
        if status.kind is not Kind.PRESERVATION or status.phase not in {Phase.FAILED_PRESERVED, Phase.RUNNING_PRESERVED}:
            return
        apart = self._is_cut or self.acts["pin"] > 0  # what may have been cut keeps its mark
        if status.phase is Phase.RUNNING_PRESERVED and self.kept.devices.marked == status.incident and not apart:
            self.fault("S35", "a machine that is well is kept, and our mark is left on it")
        if (status.permit or status.queued) and not held_back:
            self.fault("S14", "it keeps its permit, or waits for one, and nothing is done to the machine")
        far, wanted = self._isolation
        cuts = any(each.act is not Act.CORDON for each in self.kept.devices.plan.isolation)
        if wanted and far is not Isolation.CUT and cuts and not self.kept.devices.ready and not held_back:
            self.fault("S44", f"it is to be cut off, and is not, although nothing is in the way: {status.problem}")
        if (status.phase is Phase.FAILED_PRESERVED) is not bool(self.kept.unwell) and not held_back:
            self.fault("S44", f"it says {status.phase} of a machine that {'has failed' if self.kept.unwell else 'is well'}")
        if status.preserved_until != held.expiry:
            self.fault("S44", f"it says that it is kept until {status.preserved_until}, and the objects say {held.expiry}")


MOVES = tuple(
    tuple(names.split())
    for names in (
        "machine_fails machine_recovers only_node_gets_well machine_is_annotated machine_is_let_go machine_is_to_be_kept",
        "isolation_is_annotated person_isolates person_returns_path path_fails path_works path_is_opened machine_restarts",
        "person_holds person_resumes person_releases person_extends person_isolates person_aborts person_says_it_again",
        "episode_is_terminated episode_is_cancelled episode_is_reset episode_rolls episode_is_forgotten activities_fail",
        "pods_stay path_fails path_works path_is_opened machine_restarts mark_is_removed machine_is_deleted",
        (
            "permit_is_forgotten permit_is_forgotten_late no_permit_is_granted scanner_tells pool_keeps_fewer "
            "person_returns_path mode_changes"
        ),
    )
)
"""By who makes them: the machine, what cuts it off, people, Temporal and servers, what is around it, the scanner."""

KNOWN = (
    "machine_is_let_go@0.05 person_holds@70",
    "machine_is_let_go@0.4 machine_is_annotated@2 person_resumes@70",
    "no_permit_is_granted@0 machine_is_let_go@12 person_holds@600 person_resumes@70",
    "no_permit_is_granted@0 machine_is_let_go@12 person_aborts@600",
    "machine_is_let_go@0.4 activities_fail@0.4 person_holds@70",
    "permit_is_forgotten@0 machine_is_let_go@70",
    "permit_is_forgotten_late@0 machine_is_let_go@70",
    "pods_stay@0 person_aborts@12",
    "pods_stay@0 machine_recovers@600",
    "pods_stay@0 person_isolates@2 person_releases@70",
    "activities_fail@0 scanner_tells@0.4 person_extends@70",
    "activities_fail@0 scanner_tells@0.4 person_releases@70",
    "activities_fail@0 scanner_tells@0.4 person_isolates@70",
    "machine_is_let_go@0.05 activities_fail@12 person_aborts@70",
    "activities_fail@0 person_isolates@12 episode_is_terminated@70",
    "machine_is_to_be_kept@70 machine_fails@70 machine_recovers@70",
    "no_permit_is_granted@0 machine_is_let_go@12 machine_is_to_be_kept@600",
    "pods_stay@0.05 person_holds@12 person_resumes@70",
    "pods_stay@0.4 person_releases@70",
    "pods_stay@0.4 machine_recovers@70 machine_fails@12",
    "person_isolates@0.4 person_holds@70 person_resumes@70",
    "person_isolates@0.05 machine_recovers@70",
    "no_permit_is_granted@0 person_isolates@2 machine_recovers@600",
    "person_isolates@70 machine_recovers@600",
    "person_isolates@70 machine_recovers@2 machine_restarts@600",
    "person_isolates@12 episode_is_terminated@2 machine_recovers@600",
    "person_isolates@12 episode_is_terminated@2 machine_is_let_go@600",
    "person_extends@0.05 machine_is_let_go@70",
    "machine_is_let_go@0 person_extends@70",
    "person_extends@0 person_extends@3600 scanner_tells@2",
    "episode_is_cancelled@70 machine_is_annotated@70",
)
"""What has broken a preservation before, or nearly: moves with the seconds that follow each. Half of all plays are about one."""
KNOWN_LATER = (
    "answers_are_lost@70 machine_recovers@600",
    "answers_are_lost@70 machine_recovers@70 person_releases@70",
    "person_isolates@0 answers_are_lost@70 machine_recovers@600",
    "act_is_late@0 person_isolates@8 episode_is_terminated@2 person_isolates@70",
    "act_is_late@0 machine_is_let_go@2 episode_is_terminated@70",
    "act_is_late@0 machine_is_let_go@70",
    "act_is_late@0 machine_is_let_go@12 person_aborts@70",
    "person_isolates@70 no_permit_is_granted@0 machine_is_let_go@12 person_aborts@600",
    "person_isolates@12 episode_is_terminated@2 no_permit_is_granted@0 machine_is_let_go@12 person_aborts@600",
)
KNOWN_LATEST = (
    "pods_stay@0 machine_is_let_go@12 machine_is_to_be_kept@70",
    "no_permit_is_granted@0 machine_is_let_go@12 machine_is_to_be_kept@70",
    "no_permit_is_granted@0 person_isolates@12 machine_recovers@600",
    "machine_is_to_be_kept@0 no_permit_is_granted@0 person_isolates@12 episode_rolls@70 machine_recovers@600",
    "path_fails@0 person_isolates@70 machine_recovers@600",
    "path_fails@0 person_isolates@70 machine_restarts@70 path_works@3600",
    "person_isolates@600 machine_recovers@70 person_aborts@70",
    "person_isolates@600 machine_recovers@70 person_returns_path@600",
    "person_isolates@600 path_fails@0 episode_is_terminated@600 machine_recovers@600",
    "person_isolates@600 episode_is_terminated@2 no_permit_is_granted@0 machine_is_let_go@400 person_aborts@600",
    "act_is_late@0 person_isolates@8 writes_are_refused@0 episode_is_terminated@70",
    "act_is_late@0 machine_is_let_go@8 machine_is_to_be_kept@0 writes_are_refused@0 episode_is_terminated@70",
    "no_permit_is_granted@0 machine_is_let_go@12 machine_is_replaced@600",
    (
        "machine_is_to_be_kept@0 machine_recovers@70 check_calls_it_failed@70 "
        "no_permit_is_granted@0 machine_is_let_go@12 machine_is_to_be_kept@600"
    ),
    "check_calls_it_failed@70 machine_fails@0 only_node_gets_well@70 machine_is_let_go@70",
    "scanner_tells@600 person_isolates@0.01 person_aborts@70",
    "pods_stay@2 machine_recovers@0 machine_is_let_go@0 episode_is_terminated@0 answers_are_lost@600",
)


KNOWN_NODES = (
    "machine_is_to_be_kept@70 node_is_deleted@70 machine_fails@600",
    "machine_is_to_be_kept@70 node_is_deleted@600 node_is_made_anew@600",
    "machine_is_to_be_kept@70 machine_fails@70 node_is_made_anew@600",
    "machine_is_to_be_kept@70 person_holds@12 node_is_made_anew@600 person_resumes@600",
    "machine_fails@70 node_is_deleted@600 node_is_made_anew@600",
    "check_calls_it_failed@70 node_is_deleted@600",
    "check_calls_it_failed@70 node_is_deleted@70 node_is_made_anew@600",
    "check_calls_it_failed@70 person_holds@12 node_is_made_anew@600",
)


class Alphabet(NamedTuple):
    """moves: by who makes them. known: what has broken a preservation before, or nearly. A later one is drawn from by plays of
    its own, so that those of earlier seeds stay."""

    moves: tuple[tuple[str, ...], ...]
    known: tuple[str, ...]


FIRST = Alphabet(MOVES, KNOWN)
LATER = Alphabet((*MOVES[:3], (*MOVES[3], "act_is_late", "answers_are_lost"), *MOVES[4:]), (*KNOWN, *KNOWN_LATER))
LATEST = Alphabet(
    (
        (*MOVES[0], "check_calls_it_failed", "check_calls_it_well"),
        *MOVES[1:3],
        (*LATER.moves[3], "writes_are_refused"),
        (*MOVES[4], "machine_is_replaced"),
        MOVES[5],
    ),
    (*KNOWN_LATER, *KNOWN_LATEST),
)
NODES = Alphabet(
    ((*LATEST.moves[0], "node_is_deleted", "node_is_made_anew", "node_is_made_anew"), *MOVES[1:3], *LATEST.moves[3:]), KNOWN_NODES
)
"""Its Node alone goes, or is made anew."""


def drawn_moves(draw: Random, alphabet: Alphabet) -> list[Move]:
    """Of some kinds each time, or what is known with a few others round it; in half of all plays a day passes somewhere."""
    kinds, number = draw.choices(alphabet.moves, weights=(4, 2, 4, 3, 2, 2), k=3), draw.randint(5, 20)
    moves = [Move(draw.choice(draw.choice(kinds)), draw.getrandbits(30), draw.choice(WAITS)) for _ in range(number)]
    if draw.random() < 0.5:
        known = [(name, float(wait)) for name, _, wait in (each.partition("@") for each in draw.choice(alphabet.known).split())]
        moves = [*moves[:1], *(Move(name, draw.getrandbits(30), wait) for name, wait in known), *moves[1:4]]
    if draw.random() < 0.5:
        at = draw.randrange(len(moves))
        moves[at] = replace(moves[at], wait=draw.choice((7200.0, 73 * 3600.0)))
    return moves


def story(seed: int, alphabet: Alphabet = FIRST) -> str:
    """What went wrong in that play, and the moves that it takes; "" where nothing did."""
    play = KeptPlay(seed, alphabet=alphabet)
    if not play.run():
        return ""
    small = KeptPlay(seed, least(play.moves, lambda moves: KeptPlay(seed, moves, alphabet=alphabet).run()), alphabet=alphabet)
    found = small.run()
    return "\n".join([f"play {seed}:", *(f"  {each}" for each in small.told), *(f"  => {each}" for each in found[:4])])
