"""The moves against a scanner, and one play of them. docs/adversary.md has them as a table: each row names its move here.

A play is a list of them (`plays.py`), so that one that fails can be cut down to those that it takes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

from activities.cluster.objects.live_node import seen_node
from policy.checks.fence_policies import NO_POLICIES, FencePolicies, ScopeCap
from policy.checks.verdict import JudgedTarget
from policy.episode.gate import Objection, Operation, Weight
from policy.episode.messages import Outcome, Pinned, episode_id
from policy.episode.need_now import NeedSeen, need_now
from policy.episode.permits import (
    PermitAnswer,
    PermitDecision,
    PermitQuestions,
    PermitRequest,
    Release,
    ScannerAnswer,
    ScannerQuestion,
)
from policy.episode.proofs import compare_identity
from policy.objects.machines import FAILED
from policy.scan.scan_report import ClusterLease
from policy.values.mode import Mode
from tests.workflows.attempts import START
from tests.workflows.clockwork import Perils
from tests.workflows.executions import Execution, Word
from tests.workflows.fleet import BOOT, RUNNING, SCANNER, WAIT, Body, Episode, Fleet, Written
from tests.workflows.fleet_referee import EXCLUDED, HELD, MODE, MOST, OFF, ORDER, SHOWN, FleetReferee, covers, rules_of
from tests.workflows.plays import Move, least
from workflows.kit.messages import ModeRequest, PauseRequest, StopRequest, UnpauseRequest
from workflows.scanner.story import AT_REST, NOT_TAKEN_OVER

ACT_WINDOW = timedelta(seconds=15)
CALM = timedelta(seconds=150)
"""How long the world is left alone in the end."""
WAITS = (0.0, 0.0, 0.3, 2.0, 5.0, 12.0, 31.0, 75.0)
LONGEST = 60_000
"""Events of the clock."""


class FleetPlay:
    """One scanner, its cluster, and all that happens to them."""

    world: type[Fleet] = Fleet

    def __init__(self, seed: int, moves: list[Move] | None = None) -> None:
        draw = Random(seed)
        perils = draw.choice((Perils(), Perils(), Perils(forgets=0.03), Perils(forgets=0.02, dies=0.02, queues=0.02)))
        setting = draw.choice((Mode.REPAIR, Mode.REPAIR, Mode.REPAIR, Mode.OBSERVE, None))
        self.seed = seed
        self.fleet = self.world(seed, nodes=draw.choice((4, 6, 9)), cap=draw.choice((1, 2, 3)), setting=setting, perils=perils)
        self.referee = FleetReferee(self.fleet, (setting or Mode.OBSERVE).value)
        self.moves = moves if moves is not None else drawn_moves(draw)
        self.fleet.began = self._begins
        self._words: list[tuple[str, Any, Word]] = []
        self._last: Callable[[], None] = lambda: None
        """The last command, for one that is given twice."""
        self._unsure = False
        """Whether a reset has taken back what people have said."""
        self._learned = START
        """When the scanner had begun of which it is known what it has taken over."""
        self._set_since: list[tuple[datetime, tuple[str, tuple[str, ...], str]]] = []
        """Rules of which people were told before their scanner had taken over what was set earlier, with when it had begun."""
        self._pauses_since: dict[str, tuple[datetime, datetime | None]] = {}
        """What their owners, or others for them, were told last of pauses: when their scanner had begun, and until when."""
        self._runs: bool | None = True
        """Whether the scanner is to run: not once a person has been told that it stops; None where others have ended it."""
        self.draw = draw
        self.told: list[str] = []

    def run(self) -> list[str]:
        """What was wrong, each with its rule."""
        with self.fleet.clockwork as clockwork:
            self.fleet.start()
            self.referee.note()
            self._pass(20)
            for move in self.moves:
                self.draw = Random(move.number)
                self.told.append(f"{clockwork.now:%H:%M:%S} {move}")
                getattr(self, move.name)()
                self.referee.note()
                self.referee.quiet_since = clockwork.now
                self._pass(move.wait)
                self._audit()
                if self.referee.broken or clockwork.problems:
                    break
            else:
                self._calm()
            return [*dict.fromkeys((*self.referee.broken, *clockwork.problems))]

    def _pass(self, seconds: float) -> None:
        clockwork, until = self.fleet.clockwork, self.fleet.now + timedelta(seconds=seconds)
        for _ in range(LONGEST):
            due = clockwork.due()
            if due is None or due > until:
                break
            clockwork.turn()
            self._hear()
        else:
            self.referee.fault("S35", "it never rests")
        clockwork.now = max(clockwork.now, until)

    def _calm(self) -> None:
        """Servers and workers are as they should be, and all else stays as it is."""
        fleet = self.fleet
        fleet.faults, fleet.frozen, fleet.lag, fleet.late = {}, 0, timedelta(0), timedelta(0)
        fleet.slow.clear()
        fleet.stale, fleet.lease, fleet.clockwork.away_until = "", ClusterLease(held=True), fleet.now
        fleet.clockwork.perils = Perils()
        if self._runs is not False:
            self._starts()
        fleet.look()
        self.referee.quiet_since = fleet.now
        for _ in range(4):
            self._pass(CALM.total_seconds() / 2)
            if self._runs is False and fleet.scanner is not None:
                self.referee.fault("S44", "a person was told that the scanner stops, and it goes on")
            self._starts()
        if fleet.scanner is not None and fleet.scanner.hears:
            self._pass(1)
        if (scanner := fleet.scanner) is None or not scanner.begun or scanner.hears:
            self.referee.fault("S35", f"no scanner answers: {fleet.clockwork.executions[SCANNER].failure}")
            return
        status = scanner.query("status")
        if status.problem or status.report is None or fleet.now - status.report.at > AT_REST * WAIT + SHOWN:
            self.referee.fault("S35", f"no scan follows: {status.problem or status.report}")
        self.referee.judge_end(status, scanner.query("spells"), CALM)

    def _audit(self) -> None:
        scanner = self.fleet.scanner
        if scanner is None and self._runs:
            last = self.fleet.clockwork.executions[SCANNER]
            self.referee.fault("S44", f"the scanner has ended, and nobody has stopped it: {last.failure or last.result}")
        since = self.fleet.now - self.fleet.begun
        if scanner is None or not scanner.begun or scanner.hears or self._unsure or since < SHOWN:
            return
        status = scanner.query("status")
        if status.problem != NOT_TAKEN_OVER:
            self.referee.judge_words(status, scanner.query("spells"))

    # People ---------------------------------------------------------------------------------------------------------

    def _hear(self) -> None:
        """What became of commands."""
        self.referee.judge_permits()
        scanner = self.fleet.scanner
        if scanner is not None and scanner.begun and not scanner.hears:
            self._learn_what_is_left(scanner)
        for each in [each for each in self._words if each[2].done]:
            self._words.remove(each)
            name, request, word = each
            if not word.refused and isinstance(word.answer, str):
                self._obeyed(name, request, word)
        self.referee.note()

    def _learn_what_is_left(self, scanner: Execution) -> None:
        """Of what people had said before a reset, or to the scanner before this one, once it has taken that over: each pause, at
        least, and no higher mode (S44, S52)."""
        if self._learned == self.fleet.begun or not self.fleet.knew(scanner, scanner.former):
            return
        self._learned, status, referee = self.fleet.begun, scanner.query("status"), self.referee
        modes = [(each, referee.ruled(each)) for each in self.fleet.nodes.values()]
        if self._unsure:
            self._unsure, pauses = False, {each.owner.partition(" (")[0]: (each.since, each.until) for each in status.pauses}
            for owner, (_, until) in referee.pauses.items():
                if owner not in pauses and (until is None or until > self.fleet.now):
                    referee.fault("S44", f"the pause of {owner} is lost by a reset")
            for owner, (begun, until) in self._pauses_since.items():
                if begun == self.fleet.begun and owner in pauses and pauses[owner][1] != until:
                    referee.fault("S44", f"what was said of the pause of {owner} was answered, and undone by what was before")
            referee.rules, referee.pauses = rules_of(status), pauses
        referee.take_before(status)
        for body, mode in modes:
            if ORDER.index(referee.ruled(body)) > ORDER.index(mode):
                referee.fault("S52", f"a scanner that begins raises the mode of {body.name} from {mode} to {referee.ruled(body)}")
            mine = [rule for begun, rule in self._set_since if begun == self.fleet.begun and covers(rule, body)]
            if mine and referee.ruled(body) != mine[-1][0]:
                what = f"{mine[-1]} was answered, and undone by what was before"
                referee.fault("S44", f"{what}: {referee.ruled(body)} for {body.name}")

    def _obeyed(self, name: str, request: Any, word: Word) -> None:
        referee, now = self.referee, word.taken or self.fleet.now
        stops = False
        match name:
            case "set_mode":
                rack, nodes = request.selector.removeprefix("rack="), request.nodes
                kept = [each for each in referee.rules if (set(each[1]), each[2]) != (set(nodes), rack)]
                before, stops, referee.ruled_at = referee.rules, request.mode != "repair", now
                lowered = referee.before
                referee.before = lowered if nodes or rack else []
                if request.mode == "unset":
                    referee.rules = kept if nodes or rack else []
                    if (referee.rules, referee.before) == (before, lowered):
                        referee.fault("S44", f"a rule is taken back that is none: {request}")
                else:
                    referee.rules = [*(kept if nodes or rack else []), (request.mode, nodes, rack)]
                    referee.fresh.append(referee.rules[-1])
                    if self._learned != self.fleet.begun:
                        self._set_since.append((self.fleet.begun, referee.rules[-1]))
                    if f"is {request.mode}" not in word.answer:
                        referee.fault("S44", f"{request} is answered: {word.answer}")
            case "pause":
                referee.pauses[request.who] = (now, request.until)
                self._pauses_since[request.who] = (self.fleet.begun, request.until)
                stops = True
            case "stop":
                stops, self._runs = True, False
            case "unpause":
                for owner in [request.of or request.who]:
                    referee.pauses.pop(owner, None)
                    self._pauses_since[owner] = (self.fleet.begun, self.fleet.begun)  # over, so that any other moment is a fault
        if stops:
            referee.licensed.append((now, word.answer))

    def _command(self, name: str, request: Any) -> None:
        def say() -> None:
            if (scanner := self.fleet.scanner) is not None:
                self._words.append((name, request, scanner.update(name, request)))

        self._last = say
        say()

    def sets_mode(self) -> None:
        """For a node, a rack, or all."""
        mode, (nodes, selector) = self.draw.choice(("observe", "cordon", "drain", "repair", "repair")), self._scope()
        self._command("set_mode", ModeRequest(who="ada", reason="drawn", mode=mode, nodes=nodes, selector=selector))

    def unsets_mode(self) -> None:
        nodes, selector = self._scope()
        if self.referee.rules and self.draw.random() < 0.7:
            _, nodes, rack = self.draw.choice(self.referee.rules)
            selector = f"rack={rack}" if rack else ""
        self._command("set_mode", ModeRequest(who="bob", reason="drawn", mode="unset", nodes=nodes, selector=selector))

    def _scope(self) -> tuple[tuple[str, ...], str]:
        names = sorted(self.fleet.nodes)
        return self.draw.choice(
            [((self.draw.choice(names),), ""), (tuple(names[:2]), ""), ((), "rack=a"), ((), "rack=b"), ((), "")]
        )

    def pauses(self) -> None:
        """Until a moment, or until it is ended."""
        until = self.draw.choice((None, None, timedelta(seconds=20), timedelta(seconds=90)))
        moment = self.fleet.now + until if until is not None else None
        self._command("pause", PauseRequest(who=self.draw.choice(("ada", "bob")), reason="drawn", until=moment))

    def unpauses(self) -> None:
        of = self.draw.choice(("", "", "ada", "bob"))
        self._command("unpause", UnpauseRequest(who=self.draw.choice(("ada", "bob")), reason="drawn", of=of))

    def says_it_again(self) -> None:
        """A second click on the last command."""
        self._last()

    def stops_scanner(self) -> None:
        if (scanner := self.fleet.scanner) is not None:
            request = StopRequest(who="ada", reason="drawn")
            self._words.append(("stop", request, scanner.update("stop", request)))

    def starts_scanner(self) -> None:
        self._starts()

    def _starts(self) -> None:
        if self.fleet.start():
            self._runs = True

    def fences_by_hand(self) -> None:
        """A person asks for an episode of one node."""
        body = self._some()
        if body.name not in self.fleet.open and body.present:
            incident = f"by-hand-{self.draw.getrandbits(32):08x}"
            view = body.view()
            episode = Episode(body.name, incident, body.uid, view.provider_id, self.fleet.now, None, rack=body.rack)
            self.fleet.open[body.name] = episode
            self._asks(episode, by_person=True)

    def aborts(self) -> None:
        if self.fleet.open:
            self.fleet.ends(self.fleet.open[self.draw.choice(sorted(self.fleet.open))], Outcome.ABORTED.value, "by ada")

    def resumes(self) -> None:
        """A parked episode, or one that was sent away."""
        parked = [each for _, each in sorted(self.fleet.open.items()) if each.parked]
        if parked:
            self._asks(self.draw.choice(parked), by_person=True)

    def holds_episode(self) -> None:
        """An episode gives its permit back, since a person holds it."""
        found = [each for _, each in sorted(self.fleet.open.items()) if each.permit and not each.done]
        if found:
            self._rests(self.draw.choice(found), held=True)

    # Objects ----------------------------------------------------------------------------------------------------------

    def _some(self) -> Body:
        return self.fleet.nodes[self.draw.choice(sorted(self.fleet.nodes))]

    def sickens(self) -> None:
        body = self._some()
        if body.well:
            body.ready, body.since = self.draw.choice(("Unknown", "False")), self.fleet.now
            self.fleet.put(body)

    def sickens_some(self) -> None:
        for _ in range(3):
            self.sickens()

    def comes_back(self) -> None:
        body = self._some()
        if body.present and not body.well:
            body.ready, body.since = "True", self.fleet.now
            body.boots += self.draw.random() < 0.3
            self.fleet.put(body)

    def is_sick_otherwise(self) -> None:
        """Its kubelet says that it is not ready, or says nothing any more: its Ready has changed since."""
        sick = [body for _, body in sorted(self.fleet.nodes.items()) if body.present and not body.well]
        if sick:
            body = self.draw.choice(sick)
            body.ready, body.since = "False" if body.ready == "Unknown" else "Unknown", self.fleet.now
            self.fleet.put(body)

    def machine_fails(self) -> None:
        """Its controller says so, and nothing says since when; or that it runs again."""
        body = self._some()
        if body.present:
            self.fleet.show_machine(body, RUNNING if body.failed else FAILED)

    def flaps(self) -> None:
        body = self._some()
        for _ in range(2):
            if body.present:
                body.ready, body.since = "Unknown" if body.well else "True", self.fleet.now
                self.fleet.put(body)

    def is_labelled(self) -> None:
        """By a person, or by its kubelet."""
        body = self._some()
        where, key, value = self.draw.choice(
            (
                (body.labels, EXCLUDED, self.draw.choice(("true", "True"))),
                (body.annotations, HELD, "not now"),
                (body.labels, OFF, self.draw.choice(("off", "on"))),
                (body.labels, MODE, self.draw.choice(("observe", "cordon", "drain", "repair", "off"))),
            )
        )
        if where.pop(key, None) is None:
            where[key] = value
        self.fleet.put(body)

    def changes_rack(self) -> None:
        body = self._some()
        body.rack = "b" if body.rack == "a" else "a"
        self.fleet.put(body)

    def is_deleted(self) -> None:
        """Its Node, by a person or a controller."""
        body = self._some()
        body.present, body.mark = False, ""
        self.fleet.put(body)

    def is_made_anew(self) -> None:
        """The same machine registers again, or another one under its name."""
        body = self._some()
        body.born, body.present, body.mark = body.born + 1, True, ""
        body.labels, body.annotations = {}, {}
        if self.draw.random() < 0.6:
            self.fleet.lose_machine(body)
            body.machine, body.boots = body.machine + 1, 1
        body.ready, body.since = self.draw.choice(("True", "True", "Unknown")), self.fleet.now
        self.fleet.put(body)

    def is_renamed(self) -> None:
        """The same machine registers under another name, and is silent soon."""
        body, name = self._some(), f"n{len(self.fleet.nodes)}"
        if body.present:
            known = {"machine": body.machine, "boots": body.boots, "ready": "Unknown", "was": body.was or body.name}
            new = self.fleet.nodes[name] = Body(name, body.rack, self.fleet.now, **known)
            body.present, body.mark = False, ""
            self.fleet.put(body)
            self.fleet.clockwork.after(timedelta(seconds=self.draw.choice((0, 2, 20))), lambda: self.fleet.put(new))

    def grows(self) -> None:
        name = f"n{len(self.fleet.nodes)}"
        self.fleet.nodes[name] = Body(name, self.draw.choice("ab"), self.fleet.now)
        self.fleet.put(self.fleet.nodes[name])

    def pool_rolls(self) -> None:
        """The owner of Machines takes one away, with its Node, and makes a new pair: either of a pair may come or go first."""
        body = self._some()
        machine = body.machine_view()
        self.fleet.put_machine(machine)
        self.fleet.put_machine(replace(machine, deleting=True, deleting_since=self.fleet.now))

        def goes() -> None:
            body.present, body.mark = False, ""
            self.fleet.put(body)

        def comes(rack: str = self.draw.choice("ab")) -> None:
            name = f"n{len(self.fleet.nodes)}"
            new = self.fleet.nodes[name] = Body(name, rack, self.fleet.now)
            self.fleet.put_machine(new.machine_view())
            self.fleet.put(new)

        is_gone = lambda: self.fleet.shown(lambda ledger: ledger.remove_machine(machine.key))  # noqa: E731
        for step in (goes, is_gone, comes):
            self.fleet.clockwork.after(timedelta(seconds=self.draw.choice((0, 2, 20))), step)

    def follows_policies(self) -> None:
        """A cap, of all or of each rack; another one; none; or what can't be read, or switches all off."""
        rack = (ScopeCap(scope="rack", cap=self.draw.choice((1, 2))),)
        others = (FencePolicies(caps=rack), FencePolicies(problem="a typo"), FencePolicies(switched_off=("ada",)), NO_POLICIES)
        self.fleet.follow(self.draw.choice((FencePolicies(cap=self.draw.choice((1, 2, 4))), *others)))
        self.referee.note_caps()

    def limits_attempts(self) -> None:
        """So many attempts on a node may fail in a row, before it is left alone for a while."""
        policies = FencePolicies(maximum_attempts=self.draw.choice((1, 2)), attempts_pause=timedelta(minutes=10))
        self.fleet.follow(policies)
        self.referee.note_caps()

    def template_is_bad(self) -> None:
        """An episode that has done nothing yet can't begin, as with a template that has a typo: a failed attempt."""
        found = [each for _, each in sorted(self.fleet.open.items()) if each.permit and not each.done and not each.cleans_up]
        if found:
            self.fleet.ends(self.draw.choice(found), Outcome.REFUSED.value, "its template can't be used")

    def clock_jumps(self) -> None:
        """All that was to happen meanwhile happens late: a machine that was suspended, with the server on it."""
        self.fleet.clockwork.now += timedelta(seconds=self.draw.choice((20, 90, 3600)))
        self.fleet.look()

    def writes_check(self) -> None:
        """A second check for a part of the nodes, or an edit of one."""
        check = self._check()
        check.present, check.generation = True, check.generation + 1
        check.least = self.draw.choice((0, 1, 2, 3, len(self.fleet.nodes)))
        self.fleet.write(check)

    def annotates_check(self) -> None:
        check, value = self._check(), self.draw.choice(("observe", "drain", "repair", "all"))
        if check.annotations.pop(MODE, None) is None:
            check.annotations[MODE] = value
        self.fleet.write(check)

    def limits_check(self) -> None:
        """How many of its nodes may be remediated at once: `nodewarden.io/max-in-flight`."""
        check, most = self._check(), self.draw.choice(("1", "1", "2"))
        if check.annotations.pop(MOST, None) is None:
            check.annotations[MOST] = most
        self.fleet.write(check)

    def pauses_check(self) -> None:
        check = self._check()
        check.paused, check.generation = not check.paused, check.generation + 1
        self.fleet.write(check)

    def mistypes_check(self) -> None:
        check = self._check()
        check.typo, check.generation = not check.typo, check.generation + 1
        self.fleet.write(check)

    def replaces_check(self) -> None:
        """GitOps deletes it, and makes it anew at once, or later."""
        check = self._check()
        if check.present:
            check.present = False
            self.fleet.write(check)
        if self.draw.random() < 0.6:
            check.present, check.uid, check.generation = True, check.uid + 1, 1
            self.fleet.write(check)

    def _check(self) -> Written:
        return self.fleet.checks[self.draw.choice(("workers", "workers", "rack-a"))]

    # Servers and workers ------------------------------------------------------------------------------------------------

    def watch_is_behind(self) -> None:
        self.fleet.lag = timedelta(seconds=self.draw.choice((0, 1, 5)))

    def api_is_away(self) -> None:
        """And comes back with the next one."""
        self.fleet.stale = "" if self.fleet.stale else "the watch is down on Node"
        self.fleet.look()

    def lease_is_lost(self) -> None:
        held = self.fleet.lease.held
        self.fleet.lease = ClusterLease(held=not held, holder="others" if held else "", problem="held by others" if held else "")
        self.fleet.look()

    def answers_are_late(self) -> None:
        self.fleet.slow += deque(timedelta(seconds=self.draw.choice((2, 9, 14, 20))) for _ in range(self.draw.randint(1, 3)))

    def worker_freezes(self) -> None:
        self.fleet.frozen = self.draw.choice((1, 3))

    def worker_is_away(self) -> None:
        """No worker serves the cluster for a while."""
        self.fleet.clockwork.away_until = self.fleet.now + timedelta(seconds=self.draw.choice((5, 20, 60)))

    def activity_fails(self) -> None:
        method = self.draw.choice(
            ("open", "open", "describe", "find_open", "notify", "record", "former_spells", "observe_cluster")
        )
        fault = self.draw.choice(("fails", "forbidden", "lost before", "lost after", "lost after"))
        self.fleet.faults.setdefault(method, deque()).extend([fault] * self.draw.choice((1, 1, 4)))

    # Temporal -------------------------------------------------------------------------------------------------------------

    def is_terminated(self) -> None:
        """And started again, at once or by hand later."""
        if (scanner := self.fleet.scanner) is not None:
            # The next one takes what people had set before for what goes on from a reset.
            self._unsure = self._unsure or (scanner.attempt > 1 and not self.fleet.knew(scanner, scanner.former))
            scanner.terminate()
            self._runs = None
            if self.draw.random() < 0.8:
                self._starts()

    def is_cancelled(self) -> None:
        if (scanner := self.fleet.scanner) is not None:
            scanner.cancel("drawn")
            self._runs = None

    def is_reset(self) -> None:
        """To any of its workflow tasks; what people have said since is given to it again, or not."""
        found = self.fleet.clockwork.executions[SCANNER]
        if found.tasks:
            if found.closed or self._is_told_to_stop():
                self._runs = None  # who resets one that has ended has it scan again, and what it was not told yet may be lost
            back = self.draw.choice((1, 2, 5, 20, found.tasks))
            self.fleet.clockwork.reset(found, max(found.tasks - back, 0), reapplies=self.draw.random() < 0.6)
            self._unsure, self._words, self.fleet.begun = True, [], self.fleet.now

    def is_unreadable(self) -> None:
        """No code replays its history, so that it fails and is tried again."""
        if (scanner := self.fleet.scanner) is not None:
            self._hear()
            self._runs = None if self._is_told_to_stop() else self._runs
            self.fleet.clockwork.retry(scanner)
            self._words, self.fleet.begun = [], self.fleet.now

    def _is_told_to_stop(self) -> bool:
        """Whether it was not answered yet."""
        return any(name == "stop" for name, _, _ in self._words)

    def rolls(self) -> None:
        """Its history is long."""
        if (scanner := self.fleet.scanner) is not None:
            scanner.suggests_rolling = True

    def is_of_another_build(self) -> None:
        """Its worker deployment has another version by now, and it goes on in a history of that."""
        if (scanner := self.fleet.scanner) is not None:
            scanner.is_of_old_build = True

    def is_forgotten(self) -> None:
        """Its worker dies, and another one reads the history."""
        if (scanner := self.fleet.scanner) is not None:
            scanner.forget()

    def signals_are_late(self) -> None:
        self.fleet.late = timedelta(seconds=self.draw.choice((0, 3, 30, 90)))

    def forges_release(self) -> None:
        """A stranger says in an episode's name that it gives its permit back."""
        if self.fleet.open:
            episode = self.fleet.open[self.draw.choice(sorted(self.fleet.open))]
            how = self.draw.choice(({"outcome": Outcome.RECOVERED.value}, {"parked": True}, {"held": True}))
            self.fleet.release(Release(node=episode.node, incident=episode.incident, **how))

    # Episodes -----------------------------------------------------------------------------------------------------------

    def _begins(self, episode: Episode) -> None:
        self._later(self.fleet.clockwork.moments(0.05, 3), episode, self._step)

    def _later(self, delay: timedelta, episode: Episode, step: Callable[[Episode], None]) -> None:
        def happens() -> None:
            if self.fleet.open.get(episode.node) is episode:
                step(episode)

        self.fleet.clockwork.after(delay, happens)

    def _asks(self, episode: Episode, *, by_person: bool) -> None:
        """For a permit."""
        if (scanner := self.fleet.scanner) is None:
            self._rests(episode)
            return
        episode.parked, episode.by_person = False, by_person
        body = self.fleet.nodes[episode.node]
        request = PermitRequest(
            node=episode.node,
            workflow_id=episode_id("fleet", episode.node),
            incident=episode.incident,
            node_uid=episode.uid,
            provider_id=episode.provider_id,
            ready=body.well,
            by_person=by_person,
        )
        question = ScannerQuestion(id=f"{episode.incident}-{self.fleet.now.timestamp()}", permit=request)
        scanner.signal("ask", question)
        self._awaits(episode, question)

    def _awaits(self, episode: Episode, question: ScannerQuestion) -> None:
        """As the activity does: it looks for an answer, and asks anew after a while."""
        asked = self.fleet.now

        def looks(_: Episode) -> None:
            answer = self._answer_to(question)
            if answer is None:
                episode.tries += 1
                if episode.tries > 600:
                    self.fleet.ends(episode, Outcome.RELEASED.value, "no scanner answers")
                elif episode.tries % 90 == 0:
                    self._asks(episode, by_person=episode.by_person)
                else:
                    self._awaits(episode, question)
                return
            decision = answer.decision
            if decision is PermitDecision.GRANTED and not episode.permit:
                self.referee.not_paused(asked, f"{episode.node} is granted a permit", latest=self.fleet.now)
                episode.permit, episode.tries = True, 0
                self._step(episode)
            elif decision is PermitDecision.REFUSED:
                self.fleet.ends(episode, Outcome.REFUSED.value)

        self._later(timedelta(milliseconds=200), episode, looks)

    def _answer_to(self, question: ScannerQuestion) -> PermitAnswer | None:
        """None where there is none yet, or no scanner that can say so."""
        if (scanner := self.fleet.scanner) is None:
            return None
        try:
            answer: ScannerAnswer = scanner.query("answer", question)
        except LookupError:
            return None
        return answer.permit

    def _rests(self, episode: Episode, *, held: bool = False) -> None:
        """It gives its permit back and keeps its node."""
        episode.permit, episode.parked, episode.tries = False, True, 0
        self.fleet.release(Release(node=episode.node, incident=episode.incident, held=held, parked=not held, problem="waits"))
        if held:
            self._later(timedelta(seconds=60), episode, lambda each: self._asks(each, by_person=False))

    def _step(self, episode: Episode) -> None:
        """It looks, and acts on that look."""
        if episode.parked or not episode.permit:
            return
        fleet, scanner, body = self.fleet, self.fleet.scanner, self.fleet.nodes[episode.node]
        if episode.cleans_up:
            body.mark = ""
            fleet.put(body)
            fleet.ends(episode, Outcome.RECOVERED.value)
            return
        if scanner is not None and scanner.hears:
            self._later(timedelta(milliseconds=50), episode, self._step)
            return
        answer = fleet.asked(episode.node, episode.incident)
        operation = Operation.DISRUPT if episode.done else Operation.CORDON
        why = self._objection(episode, operation, answer)
        if why is None:
            looked = fleet.now
            delay = fleet.clockwork.moments(0.05, 14) if fleet.clockwork.chance(0.3) else fleet.clockwork.moments(0.05, 0.5)
            self._later(delay, episode, lambda each: self._acts(each, operation, looked))
        elif why.weight is Weight.NOT_LICENSED and episode.tries < 12:
            episode.tries += 1
            if why.rule == "mode":
                self._rests(episode, held=True)
            else:
                self._later(timedelta(seconds=15), episode, self._step)
        elif why.weight is Weight.NOT_LICENSED:
            self._rests(episode)
        else:
            fleet.ends(episode, Outcome.RELEASED.value, why.reason if why.weight is Weight.VETOED else "")

    def _objection(self, episode: Episode, operation: Operation, answer: PermitQuestions | None) -> Objection | None:
        """As a last look has it, also of its need: a check that was deleted, or no longer selects the node, asks for nothing."""
        fleet, need = self.fleet, episode.asked.need if episode.asked is not None else None
        check = fleet.checks[need.check.name] if need is not None and need.check is not None else None
        body = fleet.nodes[episode.node]
        node = body.view() if body.present else None
        pinned = Pinned(node=episode.node, uid=episode.uid, provider_id=episode.provider_id)
        identity = compare_identity(pinned, seen_node(episode.node, node), destructive=True)
        asking = check.document() if check is not None and check.present else None
        machine = body.machine_view() if body.phase else None
        target = JudgedTarget(episode.node, node=node, machine=machine)
        seen = NeedSeen(node=node, asking=asking, targets=(target,), destructive=True)
        unneeded = need_now(need, seen, fleet.now).objection if need is not None else None
        return fleet.objection(episode, operation, answer, identity=identity, need=unneeded)

    def _acts(self, episode: Episode, operation: Operation, looked: datetime) -> None:
        fleet, body = self.fleet, self.fleet.nodes[episode.node]
        if fleet.now - looked > ACT_WINDOW:
            self._step(episode)
            return
        self.referee.judge_act(episode, "cordon" if operation is Operation.CORDON else "off", looked)
        episode.done += 1
        if operation is Operation.CORDON:
            if body.present and body.uid == episode.uid:
                body.mark = episode.incident
                fleet.put(body)
            self._later(fleet.clockwork.moments(0.5, 8), episode, self._step)
            return
        if body.well:
            body.ready, body.since = "Unknown", fleet.now
            fleet.put(body)
        self._later(BOOT, episode, lambda each: self._comes_up(each, body.machine))

    def _comes_up(self, episode: Episode, machine: int) -> None:
        body = self.fleet.nodes[episode.node]
        if body.machine == machine and body.present:
            body.boots, body.ready, body.since = body.boots + 1, "True", self.fleet.now
            self.fleet.put(body)
            if body.failed:
                self.fleet.show_machine(body, RUNNING)
        self.fleet.ends(episode, Outcome.RECOVERED.value)


def _moves(names: str) -> tuple[str, ...]:
    return tuple(names.split())


OBJECTS = _moves(
    """sickens sickens sickens sickens_some comes_back flaps is_labelled is_labelled changes_rack is_deleted is_made_anew grows
    writes_check annotates_check pauses_check mistypes_check replaces_check
    machine_fails is_sick_otherwise limits_attempts template_is_bad"""
)
PEOPLE = _moves(
    """sets_mode sets_mode unsets_mode pauses unpauses unpauses says_it_again stops_scanner starts_scanner fences_by_hand aborts
    resumes holds_episode"""
)
SERVERS = _moves(
    """watch_is_behind api_is_away lease_is_lost answers_are_late worker_freezes worker_is_away activity_fails activity_fails"""
)
TEMPORAL = _moves("is_terminated is_cancelled is_reset is_reset rolls is_of_another_build is_forgotten signals_are_late")
MOVES = (OBJECTS, PEOPLE, SERVERS, TEMPORAL)


KNOWN = (
    "pauses@2 rolls@31 is_terminated@0 sickens@31",
    "sets_mode@2 rolls@31 is_terminated@0 sickens@31",
    "sickens_some@5 answers_are_late@0 sets_mode@0 aborts@2",
    "sickens_some@12 sets_mode@0 aborts@0 resumes@2",
    "sickens@12 pauses@5 unpauses@0 pauses@5",
    "sickens_some@12 is_terminated@0 sickens@12 sickens_some@12",
    "sickens_some@12 is_reset@0 sickens@12 sickens_some@12",
    "sickens_some@12 rolls@2 is_reset@0 sickens_some@31",
    "sets_mode@0 sickens_some@12 is_reset@0 is_terminated@0 sickens_some@31",
    "sickens_some@5 answers_are_late@0 comes_back@0 comes_back@0 comes_back@12",
    "pauses@0 sickens_some@31 is_terminated@12 comes_back@31 unpauses@31",
    "pauses@0 sickens_some@31 is_made_anew@0 is_made_anew@0 is_made_anew@31",
    "pauses@0 pauses@0 pauses@2 unpauses@0 unpauses@31",
    "sickens_some@12 activity_fails@0 sickens_some@12 is_forgotten@0 sickens@12",
    "machine_fails@12 aborts@75 stops_scanner@5 starts_scanner@31",
    "machine_fails@12 stops_scanner@5 aborts@2 starts_scanner@31",
    "sickens_some@12 aborts@5 is_sick_otherwise@0 is_sick_otherwise@0 is_terminated@31",
    "limits_attempts@31 sickens_some@12 template_is_bad@5 stops_scanner@5 starts_scanner@75",
    "sickens@12 stops_scanner@0 is_reset@12",
)
"""What has broken a scanner before, or nearly: moves with the seconds that follow each. Half of all plays are about one."""


def drawn_moves(draw: Random) -> list[Move]:
    """Of a few kinds each time, or what is known with a few others between, so that a play is about something."""
    kinds, number = draw.choices(MOVES, weights=(4, 3, 2, 2), k=3), draw.randint(8, 30)
    chosen = [
        (draw.choice(OBJECTS[:4] if draw.random() < 0.25 else draw.choice(kinds)), draw.choice(WAITS)) for _ in range(number)
    ]
    if draw.random() < 0.5:
        known = [(name, float(wait)) for name, _, wait in (each.partition("@") for each in draw.choice(KNOWN).split())]
        chosen = [*known, *chosen[:2], *known]
    return [Move(name, draw.getrandbits(30), wait) for name, wait in (("sickens", draw.choice(WAITS)), *chosen)]


def story(seed: int) -> str:
    """What went wrong in that play, and the moves that it takes; "" where nothing did."""
    play = FleetPlay(seed)
    if not play.run():
        return ""
    small = FleetPlay(seed, least(play.moves, lambda moves: FleetPlay(seed, moves).run()))
    found = small.run()
    fleet = small.fleet
    world = f"{len(fleet.nodes)} nodes, cap {fleet.cap}, scan.mode {fleet.setting}, {fleet.clockwork.perils}"
    return "\n".join([f"play {seed} ({world}):", *(f"  {each}" for each in small.told), *(f"  => {each}" for each in found[:4])])
