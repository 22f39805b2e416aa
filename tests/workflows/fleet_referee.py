"""The rules of the scanner's side, held against the truth: what it may begin, what its episodes may do, what it may say.

A referee draws its own conclusions from what is so: which mode a node has, whether a check's circuit breaker is open, since when
a person has paused. It asks no predicate of `policy`. What the scanner sees may be `SEEN` old; what people have said to it counts
at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from policy.episode.messages import FencingInput, NeedKind, RemediationInput
from policy.history.spells import Ending, Spell
from policy.scan import pauses
from policy.scan.explanation import conclude, explain
from tests.workflows.attempts import START, Attempt
from tests.workflows.fleet import Body, Episode, Fleet, Written

Fact = tuple[str, ...]
SetMode = tuple[str, tuple[str, ...], str]
"""What people have set: mode, nodes, rack."""
SEEN = timedelta(seconds=30)
"""How old a report may be by which an episode is opened (15 s), and how long it may have been on its way, or behind, before."""
SHOWN = timedelta(seconds=45)
"""So long what people are shown may lag behind what is so: a report, its answer, and a task whose worker has died."""
LATE = timedelta(seconds=61)
"""Nothing is opened so long after it was decided."""
ORDER = ("observe", "cordon", "drain", "repair")
MEMBER = "node-role.kubernetes.io/control-plane"
EXCLUDED, HELD, OFF, MODE, MOST = (
    "remediation.medik8s.io/exclude-from-remediation",
    "nodewarden.io/hold",
    "nodewarden.io/fencing",
    "nodewarden.io/mode",
    "nodewarden.io/max-in-flight",
)
SAFETY_RULES = {"gone": "S9", "well": "S6", "uncovered": "S13", "breaker": "S17", "check paused": "S17", "stale": "S18"} | {
    "lease lost": "S38",
    "observed": "S52",
    "quorum": "S15",
    "another member": "S15",
}
REFUSED_FOR: dict[str, tuple[str, ...]] = {
    "Mode": ("below repair",),
    "mode": ("below repair",),
    "Paused": ("paused",),
    "excluded": ("excluded",),
    "hold": ("held",),
    "fencing off": ("off",),
    "NoClusterLease": ("lease lost",),
    "StaleView": ("stale",),
}
"""What must be so where people read that a node is held back by that."""


@dataclass(frozen=True, slots=True)
class State:
    """A node at a moment. well: its Machine has not failed, either."""

    present: bool
    well: bool
    uid: str
    boot: str
    covered: bool


class FleetReferee:
    """What is so and since when, and what was wrong."""

    def __init__(self, fleet: Fleet, default: str) -> None:
        self.fleet, self.default = fleet, default
        self.rules: list[SetMode] = []
        """What people have set, the oldest first."""
        self.before: list[SetMode] = []
        """What was set before a reset, or a beginning: it goes on lowering (S52), but for nodes that a rule of `fresh` covers."""
        self.fresh: list[SetMode] = []
        self.ruled_at = START
        """When people have set a mode last."""
        self.pauses: dict[str, tuple[datetime, datetime | None]] = {}
        """By owner, since when and until when."""
        self.since: dict[Fact, datetime] = {}
        self.past: dict[str, list[tuple[datetime, State]]] = {}
        self.spells: dict[str, datetime] = {}
        """Of the last open spell that was shown of a node, when it began."""
        self.broken: list[str] = []
        self.opened: dict[str, tuple[str, datetime]] = {}
        """By incident, the node and when."""
        self.due: dict[str, datetime] = {}
        """Nodes that are due and in no episode, and since when."""
        self.licensed: list[tuple[datetime, str]] = []
        """Commands that stop acts, and what was answered."""
        self.left_alone: dict[str, datetime] = {}
        """Nodes that no program may begin anything for, and since when."""
        self._aborts: dict[str, datetime] = {}
        """The last abort of each node that was noted."""
        self.put_off: dict[str, tuple[datetime, datetime]] = {}
        """Nodes of which people were told until when they are left alone, and since when that is known."""
        self.acts = 0
        self.caps: dict[str, list[tuple[datetime, int]]] = {}
        """By rack, "" for all: since when how many may act; empty where no policy ever said so."""
        self.limits: dict[str, list[tuple[datetime, int]]] = {}
        """By check: since when how many of its nodes may be remediated at once."""
        self.under: dict[str, tuple[datetime, frozenset[str]]] = {}
        """By incident that acts: since when, and the checks that covered its node then."""
        fleet.changed, fleet.opens = self.note, self.judge_opening

    def fault(self, rule: str, what: str) -> None:
        """A rule is broken."""
        self.broken.append(f"{rule}: {what}")

    # What is so -------------------------------------------------------------------------------------------------------

    def mode(self, body: Body, check: Written | None, ruled: str = "") -> str:
        """How far programs may go: the most cautious of three (S52). ruled: what people have set, where it is known already."""
        found = [ruled or self.ruled(body)]
        found += [check.annotations[MODE]] if check is not None and MODE in check.annotations else []
        found += [body.labels[MODE]] if MODE in body.labels else []
        return ORDER[min(ORDER.index(each) if each in ORDER else 0 for each in found)]

    def ruled(self, body: Body) -> str:
        """The mode that people have set for it."""
        rule = next((each for each in reversed(self.rules) if covers(each, body)), (self.default, (), ""))
        lower = [each[0] for each in reversed(self.before) if covers(each, body)] if rule not in self.fresh else []
        return min(rule[0], *lower[:1], key=ORDER.index) if lower else rule[0]

    def take_before(self, status: Any) -> None:
        """A scanner says what goes on from before it began."""
        self.before = [*map(_rule, status.modes.before)]
        since = status.modes.before[0].at if self.before else START
        self.fresh = [_rule(each) for each in status.modes.rules if each.at >= since]

    def is_due(self, body: Body) -> bool:
        """Whether some check asks for it now. None asks for a node that is excluded."""
        if not body.present or body.labels.get(EXCLUDED) == "true" or (body.well and not body.failed):
            return False
        return any(each.calls_sick(body, self.fleet.now) for each in self.fleet.checks.values())

    def facts(self) -> Iterator[Fact]:
        """Whatever speaks against something now."""
        fleet, checks = self.fleet, list(self.fleet.checks.values())
        if self.paused():
            yield ("paused",)
        if fleet.stale:
            yield ("stale",)
        if not fleet.lease.held:
            yield ("lease lost",)
        if fleet.policies.problem or fleet.policies.switched_off:
            yield ("policies",)
        for check in checks:
            covered = [each for each in fleet.nodes.values() if check.covers(each)]
            if sum(each.well for each in covered) < check.least:
                yield ("breaker", check.name)
            if check.paused:
                yield ("check paused", check.name)
        members = {name: body for name, body in fleet.nodes.items() if MEMBER in body.labels}
        for name in members:
            if sum(body.well for other, body in members.items() if other != name) <= len(members) // 2:
                yield ("quorum", name)
            if any(each.done and each.node in members and each.node != name for each in fleet.open.values()):
                yield ("another member", name)
        for name, body in fleet.nodes.items():
            if not body.present:
                yield ("gone", name)
            if body.well and not body.failed:
                yield ("well", name)
            if body.labels.get(EXCLUDED) == "true":
                yield ("excluded", name)
            if body.annotations.get(HELD, "false") != "false":
                yield ("held", name)
            if body.labels.get(OFF, "on") != "on":
                yield ("off", name)
            ruled = self.ruled(body)
            if ruled == "observe":
                yield ("ruled out", name)
            for check in checks:
                if not check.covers(body):
                    yield ("uncovered", name, check.name)
                mode = self.mode(body, check, ruled)
                if mode != "repair":
                    yield ("below repair", name, check.name)
                    if mode != "drain":
                        yield ("below drain", name, check.name)
                    if mode == "observe":
                        yield ("observed", name, check.name)

    def paused(self) -> bool:
        """Whether a person has paused, and it has not ended."""
        return any(until is None or self.fleet.now < until for _, until in self.pauses.values())

    def note(self) -> None:
        """Something has changed, or may have."""
        now = self.fleet.now
        for check in self.fleet.checks.values():
            most, known = int(check.annotations.get(MOST, 1000)), self.limits.setdefault(check.name, [])
            if not known or known[-1][1] != most:
                known.append((now, most))
        self.since = {fact: self.since.get(fact, now) for fact in self.facts()}
        for name, body in self.fleet.nodes.items():
            covered = any(each.covers(body) for each in self.fleet.checks.values())
            state = State(body.present, body.well and not body.failed, body.uid, body.boot_id, covered)
            past = self.past.setdefault(name, [])
            if not past or past[-1][1] != state:
                past.append((now, state))
        self._note_who_is_left_alone()
        waits = {name for name, body in self.fleet.nodes.items() if self.is_due(body) and name not in self.fleet.open}
        self.due = {name: self.due.get(name, now) for name in waits}

    def _note_who_is_left_alone(self) -> None:
        """From the abort of a person until the node was well, or is another machine, or a person's episode has its permit."""
        fleet = self.fleet
        for node, (at, _) in fleet.aborted.items():
            if self._aborts.get(node) != at:
                self._aborts[node] = self.left_alone[node] = at
        for node in {*self.left_alone, *self.put_off}:
            episode, body = fleet.open.get(node), fleet.nodes[node]
            asked = episode is not None and episode.by_person and episode.permit
            if asked or ("well", node) in self.since or not body.present:
                self.left_alone.pop(node, None)
                self.put_off.pop(node, None)

    def held_for(self, fact: Fact, until: datetime, at_least: timedelta = SEEN) -> bool:
        """Whether it has been so for so long at that moment."""
        return fact in self.since and self.since[fact] <= until - at_least

    def states(self, node: str, since: datetime, until: datetime) -> list[State]:
        """What a node was between two moments."""
        past = self.past.get(node, [])
        ends = [at for at, _ in past[1:]] + [datetime.max.replace(tzinfo=since.tzinfo)]
        return [state for (at, state), end in zip(past, ends, strict=True) if at <= until and end >= since]

    # What is done -----------------------------------------------------------------------------------------------------

    def judge_opening(self, asked: FencingInput | RemediationInput, attempt: Attempt) -> None:
        """An episode is opened. It was decided when the workflow asked for it."""
        self.note()
        decided, node, need = attempt.decided, asked.node, asked.need
        machine = self.fleet.nodes[node].view().provider_id
        if also := [each.node for each in self.fleet.open.values() if each.permit and each.provider_id == machine]:
            self.fault("S13", f"an episode of {node} begins, and one of the same machine acts as {also}")
        self.opened[asked.incident] = (node, self.fleet.now)
        if node in self.left_alone and need is not None and need.kind.automatic:
            since = self.fleet.now - self.left_alone[node]
            self.fault("S19", f"an episode of {node} begins, which a person has aborted {since} ago; since then: {need.since}")
        until, known = self.put_off.get(node, (decided, decided))
        if known < decided < until and need is not None and need.kind.automatic:
            self.fault("S19", f"an episode of {node} begins, and people were told that it is left alone until {until}")
        if need is None or need.kind is not NeedKind.CHECK or need.check is None:
            return
        check = need.check.name
        facts: list[Fact] = [("gone", node), ("well", node), ("excluded", node), ("held", node), ("off", node), ("stale",)]
        facts += [(each, node, check) for each in ("uncovered", "observed")] + [("lease lost",), ("policies",)]
        facts += [(each, check) for each in ("breaker", "check paused")]
        for fact in facts:
            if self.held_for(fact, decided):
                since = self.fleet.now - self.since[fact]
                self.fault(SAFETY_RULES.get(fact[0], "S20"), f"an episode of {node} begins under {check}, and {fact} for {since}")
        if self.since.get(("ruled out", node)) == self.ruled_at < decided:  # by that command, and not by another label
            self.fault("S52", f"an episode of {node} begins {decided - self.ruled_at} after a person has set observe")
        seen = {state.uid for state in self.states(node, decided - SEEN, decided)}
        if asked.node_uid not in seen:
            self.fault("S9", f"an episode of {node} begins for {asked.node_uid}, which has been {sorted(seen)}")
        if (late := self.fleet.now - decided) > LATE:
            self.fault("S18", f"an episode of {node} begins that was decided {late} ago")
        self.not_paused(decided, f"an episode of {node} begins")

    def not_paused(self, moment: datetime, what: str, *, latest: datetime | None = None) -> None:
        """S44: what was decided then. latest: where it is only known that it was between the two."""
        for owner, (since, until) in self.pauses.items():
            if since < moment and (until is None or (latest or moment) < until):
                self.fault("S44", f"{what} after {owner} has paused, {moment - since} ago")

    def judge_act(self, episode: Episode, needs: str, looked: datetime) -> None:
        """An act on a machine, on a look of then that said go."""
        self.note()
        self.acts += 1
        node, check = episode.node, episode.asked.need.check if episode.asked is not None and episode.asked.need else None
        now = timedelta(0)
        facts: list[Fact] = [("gone", node), ("excluded", node), ("held", node), ("off", node), ("lease lost",)]
        if needs != "cordon":
            for fact in (("quorum", node), ("another member", node)):
                if self.held_for(fact, looked, now):
                    self.fault("S15", f"{needs} of {node}, a member of the control plane: {fact} for {looked - self.since[fact]}")
        if check is not None:
            mode = {"cordon": "observed", "drain": "below drain"}.get(needs, "below repair")
            facts += [("well", node), ("uncovered", node, check.name), (mode, node, check.name)]
        for fact in facts:
            if self.held_for(fact, looked, now):
                self.fault(SAFETY_RULES.get(fact[0], "S52" if "below" in fact[0] else "S20"), f"{needs} of {node}: {fact}")
        if all(state.uid != episode.uid for state in self.states(node, looked, looked)):
            self.fault("S9", f"{needs} of {node}, which was another Node than {episode.uid} when it was looked at")
        self.not_paused(looked, f"{needs} of {node} on a look")
        for at, answer in self.licensed:
            if (
                looked < at < self.fleet.now
                and node not in answer
                and " more" not in answer
                and "not known yet" not in answer
                and check is not None
            ):
                self.fault("S44", f"{needs} of {node} on a look before a command that does not name it: {answer}")

    def judge_permits(self) -> None:
        """S14: of all that act, and of those in one rack; more of them only where more might when one of them began."""
        acting = [each for each in self.fleet.open.values() if each.permit and not (each.parked or each.cleans_up)]
        for rack in ("", *{each.rack for each in acting}):
            found = [each for each in acting if rack in {"", each.rack}]
            first = min((each.began for each in found), default=self.fleet.now) - SEEN
            known = self.caps.get(rack, [(START, len(self.fleet.nodes) if rack else self.fleet.cap)])
            over = [*(at for at, _ in known[1:]), self.fleet.now + SEEN]
            most = max(number for (_, number), end in zip(known, over, strict=True) if end > first)
            if len(found) > most:
                self.fault("S14", f"{sorted(each.node for each in found)} act, {most} may in {rack or 'all'}")
        self._judge_limits(acting)

    def _judge_limits(self, acting: list[Episode]) -> None:
        """S14: no check has more of its nodes remediated at once than its `max-in-flight` has allowed since one of them began."""
        fleet, checks = self.fleet, [*self.fleet.checks.values()]
        covering = {
            each.node: frozenset(check.name for check in checks if check.covers(fleet.nodes[each.node])) for each in acting
        }
        self.under = {each.incident: self.under.get(each.incident, (fleet.now, covering[each.node])) for each in acting}
        for check in checks:
            mine = [each for each in acting if check.name in self.under[each.incident][1]]
            first = min((self.under[each.incident][0] for each in mine), default=fleet.now) - SEEN
            known = self.limits[check.name]
            over = [*(at for at, _ in known[1:]), fleet.now + SEEN]
            most = max(number for (_, number), end in zip(known, over, strict=True) if end > first)
            if len(mine) > most:
                self.fault("S14", f"{sorted(each.node for each in mine)} act, {check.name} lets {most} be remediated at once")

    def note_caps(self) -> None:
        """The fence policies are others: how many may act in all, and in each rack."""
        fleet, policies = self.fleet, self.fleet.policies
        self.caps.setdefault("", [(START, fleet.cap)]).append((fleet.now, policies.cap or fleet.cap))
        for rack in ("a", "b"):
            number = policies.caps[0].cap if policies.caps else len(fleet.nodes) + 100
            self.caps.setdefault(rack, [(START, len(fleet.nodes) + 100)]).append((fleet.now, number))

    # What is said -----------------------------------------------------------------------------------------------------

    def judge_words(self, status: Any, spells: Any) -> None:
        """What `status` shows, and the spells that are known."""
        self.note()
        fleet, report = self.fleet, status.report
        said = rules_of(status)
        if said != self.rules:
            self.fault("S52", f"status says that {said} is set, people have set {self.rules}")
        owners = {each.owner.partition(" (")[0] for each in status.pauses}
        paused = {owner for owner, (_, until) in self.pauses.items() if until is None or fleet.now < until}
        if owners != paused:
            self.fault("S44", f"status says that {sorted(owners)} pause, it is {sorted(paused)}")
        if report is None or status.problem or report.view.stale:
            return
        known = min(report.at, fleet.now) - timedelta(seconds=8)  # what has changed since the report may not be shown yet
        for each in status.held_off:
            if each.until is not None and not each.holder:
                self.put_off[each.node] = each.until, fleet.now
        for each in status.refused:
            self._held_by(each.reason, each.node, each.check.name, known, f"status refuses {each.node}")
        for spell in spells.spells:
            if spell.held and spell.held[-1].until is None:
                self._held_by(spell.held[-1].code, spell.node, spell.check.rpartition("/")[2], known, "its open spell")
            if spell.ended is None and self.held_for(("well", spell.node), known, timedelta(seconds=10)):
                self.fault("spells", f"{spell.node} has an open spell, and is well")
            if spell.ended is None:
                self._judge_open(spell, known)
            else:
                self.judge_spell(spell)

    def _judge_open(self, spell: Spell, known: datetime) -> None:
        """An open spell is of the node as it is, ends when an episode begins, and is not begun anew."""
        node, episode, before = spell.node, self.fleet.open.get(spell.node), self.spells.get(spell.node, spell.due)
        if spell.uid and all(each.uid != spell.uid for each in self.states(node, known - SHOWN, self.fleet.now)):
            self.fault("spells", f"{node} has an open spell of another Node, {spell.uid}")
        if episode is not None and episode.asked is not None and known - episode.began > SHOWN:
            self.fault("spells", f"{node} has an open spell, and an episode since {episode.began}")
        over = {(each.node, each.due) for each in self.fleet.recorded()}
        if before < spell.due and self.due.get(node, spell.due) < before and (node, before) not in over:
            self.fault("spells", f"the spell of {node} from {before} is lost: another one began at {spell.due}")
        self.spells[node] = spell.due

    def _held_by(self, code: str, node: str, check: str, known: datetime, where: str) -> None:
        keys = REFUSED_FOR.get(code, ())
        facts = [fact for key in keys for fact in ((key,), (key, node), (key, node, check))]
        if keys and not any(fact in self.since for fact in facts) and self._was_still(node, known):
            self.fault("S44", f"{where}: {node} is held by {code}, and that is not so")

    def _was_still(self, node: str, known: datetime) -> bool:
        """Whether nothing that could hold the node has ended since."""
        return known >= self.quiet_since

    quiet_since = START
    """Since when no one has done anything but wait."""

    def judge_spell(self, spell: Spell) -> None:
        """What the record of a spell says of its end."""
        if spell.ended is None:
            return
        around = self.states(spell.node, spell.ended - SHOWN, spell.ended + timedelta(seconds=1))
        during = self.states(spell.node, spell.since - timedelta(seconds=1), spell.ended + timedelta(seconds=1))
        match spell.ending:
            case Ending.CAME_BACK if not any(each.well and each.uid == spell.uid for each in around):
                self.fault("spells", f"{spell} came back, it was {around}")
            case Ending.OTHERS if "its Node was deleted" in spell.traces and all(each.present for each in around):
                self.fault("spells", f"{spell}: its Node was never deleted")
            case Ending.OTHERS if "another Node" in " ".join(spell.traces) and len({each.uid for each in during}) < 2:
                self.fault("spells", f"{spell}: its Node was no other one")
            case Ending.OTHERS if spell.traces == ("another boot id",) and len({each.boot for each in during}) < 2:
                self.fault("spells", f"{spell}: it has not booted")
            case Ending.OURS:
                node, at = self.opened.get(spell.incident, ("", spell.ended))
                if node not in {spell.node, ""}:
                    self.fault("spells", f"{spell} ended with an incident of {node} at {at}")
            case Ending.NOT_OURS if all(each.covered for each in around):
                self.fault("spells", f"{spell}: a check covered it all the time")

    # The end ----------------------------------------------------------------------------------------------------------

    def judge_end(self, status: Any, spells: Any, calm: timedelta) -> None:
        """After a calm time: nothing was forgotten."""
        self.judge_words(status, spells)
        fleet = self.fleet
        for spell in fleet.recorded():
            self.judge_spell(spell)
        open_spells = {each.node: each for each in spells.spells if each.ended is None}
        if left := [each for each in spells.spells if each.ended is not None and fleet.now - each.ended > timedelta(minutes=3)]:
            self.fault("spells", f"{left} have ended and are not recorded")
        snapshot, halted = fleet.ledger.known(fleet.now), pauses.described(status.pauses)
        for node in sorted(fleet.nodes.keys() - fleet.open.keys()):
            kept = [each.reason for each in (*status.held_off, *status.refused) if each.node == node]
            sentence = conclude(explain(snapshot, node), halted=halted, kept_from=kept)
            if "is due under" in sentence and fleet.now - self.due.get(node, fleet.now) >= calm:
                self.fault("S44", f"explain says of {node}: {sentence}, and nothing begins")
            if "is due under" in sentence and node not in self.due:
                self.fault("S44", f"explain says of {node}, which is not due: {sentence}")
            if sentence == "healthy" and ("well", node) not in self.since:
                self.fault("S44", f"explain calls {node} healthy, and it is not")
        for node, since in self.due.items():
            if fleet.now - since < calm:
                continue
            if node not in open_spells and not status.problem:
                self.fault("spells", f"{node} is due for {fleet.now - since}, and has no spell")
            if not self._something_holds(node, status):
                held = open_spells[node].held[-1] if node in open_spells else "nothing"
                self.fault("S44", f"{node} is due for {fleet.now - since}, nothing holds it, and nothing begins: {held}")
        for permit in status.permits:
            if permit.node not in fleet.open and fleet.now - permit.granted_at > timedelta(minutes=3):
                self.fault("S14", f"status shows a permit of {permit.node}, of which no episode is open")

    def _something_holds(self, node: str, status: Any) -> bool:
        body, fleet = self.fleet.nodes[node], self.fleet
        facts = {fact[0] for fact in self.since if fact[1:2] in {(), (node,)}}
        if facts & {"excluded", "held", "off", "paused", "stale", "lease lost", "policies"} or status.problem:
            return True
        checks = [each for each in fleet.checks.values() if each.covers(body)]
        counts = [each for each in fleet.nodes.values() if each.well and not each.mark]  # one with our mark is well for no check
        closed = [each for each in checks if not each.paused and sum(map(each.covers, counts)) >= each.least]
        # One that is well and whose Machine has failed is a loss for the checks that count it.
        spent = body.well and any(sum(map(each.covers, counts)) <= each.least for each in closed if not each.of_machines)
        acting = [each.rack for each in fleet.open.values() if each.permit and not each.parked]
        full = any(acting.count(body.rack) >= each.cap for each in fleet.policies.caps)
        full = full or any(len(acting) >= int(each.annotations.get(MOST, 1000)) for each in checks)
        if (
            len(closed) < len(checks)
            or spent
            or {("quorum", node), ("another member", node)} & self.since.keys()
            or len(acting) >= (fleet.policies.cap or fleet.cap)
            or full
            or node in {each.node for each in status.held_off}
        ):
            return True
        return any(self.mode(body, each) == "observe" for each in checks)


def rules_of(status: Any) -> list[SetMode]:
    """What people have set, as the scanner says."""
    return [*map(_rule, status.modes.rules)]


def _rule(said: Any) -> SetMode:
    return said.mode.value, said.nodes, said.selector.removeprefix("rack=")


def covers(rule: SetMode, body: Body) -> bool:
    """Whether that rule of people is for that node."""
    _, nodes, rack = rule
    return (body.rack == rack and body.present) if rack else (not nodes or body.name in nodes)
