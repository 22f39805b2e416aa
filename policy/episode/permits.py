"""The permit table: who may disrupt a node now, and the answer to "why not?" for everyone else.

The scanner is the only grantor and keeps this table in its workflow state. Admission (`policy/scan/admission.py`) reads it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from policy.episode.messages import Kind


class PermitState(StrEnum):
    """reserved: granted, its episode not yet known to be open (counts, S14). open: it runs. parked: it waits, no permit."""

    RESERVED = "reserved"
    OPEN = "open"
    PARKED = "parked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Permit:
    """One line of the table, keyed by workflow id and incident. A parked line keeps the node but counts in no budget.

    control_plane: None where nobody has said yet. override: a person's override was asked for, which each look has to see
    attested. found: nobody has told which checks count it, as of an episode
    that was found open. What is not known counts as it would at worst (S14, S15).
    """

    node: str
    workflow_id: str
    incident: str
    kind: Kind
    holding: PermitState
    granted_at: datetime
    provider_id: str = ""
    zone: str = ""
    control_plane: bool | None = False
    reason: str = ""
    node_uid: str = ""
    groups: tuple[str, ...] = ()
    """The groups of the node when it was granted (`policy/objects/scopes.py`); what later reports say of it counts beside
    them."""
    checks: tuple[str, ...] = ()
    """The health checks that counted it among their targets when it was granted; those that later reports name count beside
    them."""
    healthy_under: tuple[str, ...] = ()
    """The health checks that counted the node as healthy when it was granted."""
    owner: str = ""
    """Kind and name of what controls its Machine, and makes another one of it."""
    removes: bool = False
    """Its machine is replaced: a control plane counts one member less afterwards, and not one that is down."""
    found: bool = False
    override: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacing:
    """A remediation of which another machine of the same owner comes, as long as reports may not know yet what that remembers.

    since: no machine that is older can be the one. until: None while it goes on.
    """

    owner: str
    node: str
    since: datetime
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PermitRequest:
    """An open episode asks for a permit (update `request_permit` of the scanner).

    by_person: a person wants it now; the request of a program is refused while the node is left alone after failed attempts
    (S19). override: see `Spoken`; whether a person has said so, the last look asks.
    """

    node: str
    workflow_id: str
    incident: str
    kind: Kind = Kind.FENCING
    reason: str = ""
    provider_id: str = ""
    zone: str = ""
    control_plane: bool = False
    node_uid: str = ""
    owner: str = ""
    removes: bool = False
    ready: bool = True
    """Whether the node says Ready=True; assumed where unknown, which is the stricter reading for quorum (S15)."""
    by_person: bool = False
    override: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedsPerson:
    """An open episode that waits for a person, who was told of it last at that moment. It may have no line: preservations. since:
    when it asked first, None where only the last time is known."""

    node: str
    incident: str
    told: datetime
    since: datetime | None = None


class PermitDecision(StrEnum):
    """The scanner's answer."""

    GRANTED = "granted"
    QUEUED = "queued"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class PermitAnswer:
    """Granted, queued (a signal `permit_granted` follows) or refused, with the reason in a sentence.

    `holder`: how the cluster Lease names the grantor; the last look compares it.
    """

    decision: PermitDecision
    reason: str = ""
    holder: str = ""


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
    """When the episode last commanded either; None where it did not."""
    vetoed_until: datetime | None = None
    """When the veto for which it ended is over by itself; None where nobody says."""
    missing: bool = False
    """It was asked for a node that there is none of: nothing is left alone for that."""


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
    """The scanner's query `holds_permits`, question and answer alike: those of all last looks of a moment."""

    questions: tuple[PermitQuestion, ...]


# How many pods may be freed in a minute over a whole cluster, how many each episode was allowed, and how many are left.
#
# The scanner keeps the portions that it has handed out and is the only one that hands any out; an episode asks for one right
# before it frees, and comes back when it is told to. A portion counts until a minute after the last moment at which it may be
# used, whatever becomes of it: so nobody has to report, and a lost answer or a dead worker frees too few pods, never too many.
# Where nothing limits, nobody asks.

MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PortionRequest:
    """An episode asks to free so many pods now. number: the number of its question; the same number is the same question.
    per_minute: the limit as the episode has just read it."""

    node: str
    incident: str
    number: int
    pods: int
    per_minute: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """So many pods may be freed by that episode until then."""

    incident: str
    number: int
    pods: int
    until: datetime

    @property
    def counts_until(self) -> datetime:
        """From then on no pod that was freed on it has been freed within the last minute."""
        return self.until + MINUTE


@dataclass(frozen=True, slots=True, kw_only=True)
class PortionAnswer:
    """pods: how many may be freed until `until`; 0: none now, ask anew at `again`. problem: why nobody can say."""

    pods: int = 0
    until: datetime | None = None
    again: datetime | None = None
    problem: str = ""


def standing(portions: Iterable[Portion], now: datetime) -> tuple[Portion, ...]:
    """Those that still count."""
    return tuple(each for each in portions if each.counts_until > now)


def portion_of(
    portions: Iterable[Portion], request: PortionRequest, now: datetime, *, used_within: timedelta
) -> tuple[tuple[Portion, ...], PortionAnswer]:
    """What still counts after the question, and its answer. used_within: how long a portion may be used.

    As much as is left, so that a node with more pods than may go in a minute goes minute by minute.
    """
    counted = standing(portions, now)
    asked = next((each for each in counted if (each.incident, each.number) == (request.incident, request.number)), None)
    if asked is not None:
        return counted, PortionAnswer(pods=asked.pods, until=asked.until)
    pods = min(request.pods, request.per_minute - sum(each.pods for each in counted))
    if pods <= 0:
        again = min((each.counts_until for each in counted), default=now + MINUTE)
        return counted, PortionAnswer(again=again)
    portion = Portion(incident=request.incident, number=request.number, pods=pods, until=now + used_within)
    return (*counted, portion), PortionAnswer(pods=pods, until=portion.until)
