"""The permit table: which episodes may disrupt a node now, and why the others may not; the portions of pods that may be freed;
which nodes are left alone.

The scanner is the only grantor and keeps all of it in its workflow state. Admission (`policy/scan/admission.py`) reads the table.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from policy.episode.messages import Kind
from policy.episode.modes import ClusterModes
from policy.episode.node_action import LONGEST_REASON
from policy.values.object_refs import LONGEST_NAME

LONGEST_HELD_OFF = 2 * LONGEST_REASON
"""Characters that say why a node is left alone: a person's words, and what we say of them."""


class PermitState(StrEnum):
    """reserved: granted, its episode not yet known to be open (counts, S14). open: it runs. parked: it waits, no permit."""

    RESERVED = "reserved"
    OPEN = "open"
    PARKED = "parked"


@dataclass(frozen=True, slots=True, kw_only=True)
class PermitSubject:
    """The episode that a permit, or a request for one, is about, with what is known of its node.

    control_plane: None while it is not known. owner: kind and name of what controls its Machine, and makes another one of it.
    removes: its machine is replaced, so a control plane counts one member less afterwards, and not one that is down. override:
    see `NodeActionSpec`; each look has to see attested that a person asked for it.
    """

    node: str
    workflow_id: str
    incident: str
    kind: Kind = Kind.FENCING
    reason: str = ""
    provider_id: str = ""
    zone: str = ""
    control_plane: bool | None = False
    node_uid: str = ""
    owner: str = ""
    removes: bool = False
    override: str = ""

    def as_subject(self) -> dict[str, Any]:
        """These fields, for another record about the same episode."""
        return {each.name: getattr(self, each.name) for each in fields(PermitSubject)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Permit(PermitSubject):
    """The row of a node in the table. A parked one keeps the node but counts in no budget.

    found: its episode was found open, so it is not known which checks count it. What is not known counts as in the worst case
    (S14, S15).
    """

    state: PermitState
    granted_at: datetime
    groups: tuple[str, ...] = ()
    """The groups of the node when it was granted (`policy/objects/scopes.py`); what later reports say of it counts beside
    them."""
    checks: tuple[str, ...] = ()
    """The health checks that counted it among their targets when it was granted; those that later reports name count beside
    them."""
    healthy_under: tuple[str, ...] = ()
    """The health checks that counted the node as healthy when it was granted."""
    found: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacing:
    """A remediation of which another machine of the same owner comes, as long as reports may not know yet what that remembers.

    since: no machine that is older can be the one. until: None while it goes on.
    """

    owner: str
    node: str
    since: datetime
    until: datetime | None = None


def silent_scanner(cluster: str) -> str:
    """Of a scanner that runs, to people: Temporal's own words for it help none of them."""
    return f"the scanner of {cluster} does not answer: `nodewarden status -c {shlex.quote(cluster)}` says why, and what to do"


@dataclass(frozen=True, slots=True, kw_only=True)
class PermitRequest(PermitSubject):
    """An open episode asks for a permit.

    by_person: a person wants it now; the request of a program is refused while the node is left alone after failed attempts
    (S19).
    """

    control_plane: bool = False
    ready: bool = True
    """Whether the node says Ready=True; assumed if unknown, which is the stricter reading for quorum (S15)."""
    by_person: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedsPerson:
    """An open episode that waits for a person. reminded: when people were last notified of it. It may have no row in the table:
    preservations have none. since: when it asked first, None if only the last time is known."""

    node: str
    incident: str
    reminded: datetime
    since: datetime | None = None


class PermitDecision(StrEnum):
    """The scanner's answer."""

    GRANTED = "granted"
    QUEUED = "queued"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class PermitAnswer:
    """Granted, queued (a signal `permit_granted` follows) or refused, with the reason in a sentence.

    `holder`: how the cluster Lease names the grantor; the last look compares it. rule: the code of the rule that says no, ""
    where none does.
    """

    decision: PermitDecision
    reason: str = ""
    holder: str = ""
    rule: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """An episode gives its permit back: it ended (`outcome`), parked (`parked`, with `problem`), or a person holds it (`held`)
    before anything was done to the machine.

    cause: what ailed the node, "" if a person asked for the episode or it touched nothing; workloads: what was on the node when
    it was to be freed. Both are for the alarm about repetitions (`policy/scan/repeat_alarm.py`).
    """

    node: str
    incident: str
    outcome: str = ""
    parked: bool = False
    held: bool = False
    problem: str = ""
    cause: str = ""
    workloads: tuple[str, ...] = ()
    node_uid: str = ""
    powered_on_at: datetime | None = None
    powered_off_at: datetime | None = None
    """When the episode last commanded either; None if it did not."""
    vetoed_until: datetime | None = None
    """When the veto for which it ended is over by itself; None if that is not known."""
    missing: bool = False
    """There is no such node: no node is left alone because of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PermitQuestion:
    """Whether that incident may disrupt that node now, and the answer. paused: why no incident may, with or without a permit; ""
    if the permit decides. A preservation needs no permit and asks only for that. override: what a
    person overrides, as the worker that asks has seen it attested."""

    node: str
    incident: str
    held: bool = False
    reason: str = ""
    paused: str = ""
    override: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PermitQuestions:
    """The scanner's query `holds_permits`, question and answer alike: those of all last looks of a moment. modes: what is set for
    the cluster, in the answer."""

    questions: tuple[PermitQuestion, ...]
    modes: ClusterModes | None = None


# Portions: how many pods may be freed in a minute over a whole cluster, and how many each episode was allowed.
#
# Under such a limit an episode asks the scanner for a portion right before it frees, and asks again at the moment that the answer
# says. A portion counts until a minute after the last moment at which it may be used, whether it is used or not: so episodes need
# not report, and a lost answer or a dead worker frees too few pods, never too many.

MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PortionRequest:
    """An episode asks to free that many pods now. number: of its question; the same number is the same question. per_minute: the
    limit as the episode has just read it."""

    node: str
    incident: str
    number: int
    pods: int
    per_minute: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """That episode may free that many pods until then. per_minute: the limit that it was asked under."""

    incident: str
    number: int
    pods: int
    until: datetime
    per_minute: int = 0

    @property
    def counts_until(self) -> datetime:
        """The moment from which on none of its pods was freed within the last minute."""
        return self.until + MINUTE


@dataclass(frozen=True, slots=True, kw_only=True)
class PortionAnswer:
    """pods: how many may be freed until `until`; 0: none now, ask again at `again`. problem: why there is no answer."""

    pods: int = 0
    until: datetime | None = None
    again: datetime | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannerQuestion:
    """An episode asks its scanner (signal `ask`) for one of the two. id: of the question; the same id is the same question."""

    id: str
    permit: PermitRequest | None = None
    portion: PortionRequest | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannerAnswer:
    """What that question was answered (query `answer`). Neither: nothing yet."""

    permit: PermitAnswer | None = None
    portion: PortionAnswer | None = None


def standing(portions: Iterable[Portion], now: datetime) -> tuple[Portion, ...]:
    """The portions that still count."""
    return tuple(each for each in portions if each.counts_until > now)


def portion_of(
    portions: Iterable[Portion], request: PortionRequest, now: datetime, *, used_within: timedelta
) -> tuple[tuple[Portion, ...], PortionAnswer]:
    """The portions that count after the question, and its answer: as many pods as are left, so that a node with more pods than
    may go in a minute is freed minute by minute. used_within: how long a portion may be used."""
    counted = standing(portions, now)
    # Under another limit it is another question: any client of Temporal may ask it before the episode does, under none.
    same = request.incident, request.number, request.per_minute
    asked = next((each for each in counted if (each.incident, each.number, each.per_minute) == same), None)
    if asked is not None:
        return counted, PortionAnswer(pods=asked.pods, until=asked.until)
    pods = min(request.pods, request.per_minute - sum(each.pods for each in counted))
    if pods <= 0:
        again = min((each.counts_until for each in counted), default=now + MINUTE)
        return counted, PortionAnswer(again=again)
    until, limit = now + used_within, request.per_minute
    portion = Portion(incident=request.incident, number=request.number, pods=pods, until=until, per_minute=limit)
    return (*counted, portion), PortionAnswer(pods=pods, until=portion.until)


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldOff:
    """A node that gets no new episode, and why. `until` None: until it has been healthy once, or a person asks.

    holder: the open episode that is in the way, "" where nothing but the node's own past is. judges: the checks that counted it
    then, each with its version; while one of them is gone or another, it is not known whether the node is well. looked_well:
    since when it has seemed so all the same; what ails it since after that moment is another failure.
    """

    node: str
    reason: str
    until: datetime | None = None
    holder: str = ""
    judges: tuple[str, ...] = ()
    looked_well: datetime | None = None

    @property
    def is_handed_over(self) -> bool:
        """Whether the next scanner of the cluster keeps it: a person's abort, a machine that is to stay off, the time after
        failed attempts. What is in the way shows itself again. Without what no scanner keeps."""
        return not self.holder and len(self.node) <= LONGEST_NAME and len(self.reason) <= LONGEST_HELD_OFF
