"""Notifications outside Kubernetes: their severity, the rules for who gets them, their title and their configured wording. The
sentence comes with the notice: of an episode from `events.py`, of a cluster from `activities/cluster/report/alarms.py`.

`activities/notification_sender.py` sends them; the settings are `notifications` (docs/notifications.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from string import Formatter

from policy.episode.events import When
from policy.episode.messages import GOOD_ENDS
from policy.values.display_text import without_calls
from policy.values.selectors import Selector


class Severity(StrEnum):
    """In rising order."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """A number for comparisons, higher for more severe."""
        return tuple(Severity).index(self)


SEVERITIES: Mapping[When, Severity] = {
    When.NEEDS_HUMAN: Severity.CRITICAL,
    When.DATA_AT_RISK: Severity.CRITICAL,
    When.REPEATED: Severity.WARNING,
    When.HALTED: Severity.WARNING,
    When.CIRCUIT_BREAKER: Severity.CRITICAL,
    When.VIEW_STALE: Severity.CRITICAL,
    When.TEMPORAL_AWAY: Severity.CRITICAL,
    When.NO_PERMIT: Severity.WARNING,
    When.ENDED: Severity.WARNING,
}
"""The same severities as in deploy/alerts.yaml. An episode that ended well is info."""

REMIND_EVERY = timedelta(minutes=30)
"""How often people are reminded that an episode still waits for one of them; the scanner sends it along with a scan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownNode:
    """The node of a notice when it is sent. checks: the keys of the health checks that cover it."""

    labels: Mapping[str, str]
    checks: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One notification. subject: an incident, or another text that distinguishes it from an equal one. outcome: of an episode
    that has ended. waited: how long an episode has waited for a person already. commands_given: how many people had given it by
    then. known: None if the node is gone or not seen yet, or if the notice is about no node. over: the state of an earlier
    notice is over. link: the page that shows it, "" for none."""

    when: When
    cluster: str
    subject: str
    text: str
    node: str = ""
    outcome: str = ""
    waited: timedelta = timedelta(0)
    commands_given: int = 0
    known: KnownNode | None = None
    over: bool = False
    link: str = ""

    @property
    def good(self) -> bool:
        """Whether an episode has ended well, or another state is over."""
        return self.over or self.outcome in GOOD_ENDS

    @property
    def severity(self) -> Severity:
        """Info for a good notice, else by its occasion."""
        return Severity.INFO if self.good else SEVERITIES[self.when]

    @property
    def title(self) -> str:
        where = f"{self.node} ({self.cluster})" if self.node else self.cluster
        what = self.outcome or (f"no longer {self.when.value}" if self.over else self.when.value)
        return f"nodewarden: {what}: {where}"

    @property
    def repetition_key(self) -> tuple[str | int, ...]:
        return (self.when, self.cluster, self.subject, self.text, self.commands_given)

    @property
    def thread(self) -> str:
        """A key that is equal for all notices about one episode, or about one other subject, and for no others."""
        return f"nodewarden/{self.cluster}/{self.subject}"


FIELDS: Mapping[str, Callable[[Notice], str]] = {
    "when": lambda notice: notice.when.value,
    "cluster": lambda notice: notice.cluster,
    "node": lambda notice: notice.node,
    "subject": lambda notice: notice.subject,
    "outcome": lambda notice: notice.outcome,
    "severity": lambda notice: notice.severity.value,
    "thread": lambda notice: notice.thread,
    "title": lambda notice: notice.title,
    "text": lambda notice: notice.text,
    "link": lambda notice: notice.link,
}
"""The fields that a configured text may name in braces."""


def _check(written: str) -> None:
    try:
        parts = list(Formatter().parse(written))
    except ValueError as error:
        raise ValueError(f"expected text with fields in braces ({{{{ for a brace): {error}") from None
    for _, name, form, conversion in parts:
        if name is not None and (name not in FIELDS or form or conversion):
            raise ValueError(f"expected fields of {', '.join(f'{{{each}}}' for each in FIELDS)}, got {{{name}}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """Title and text as configured, with fields in braces; "" for the built-in ones."""

    title: str = ""
    text: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError for a field that no notice has."""
        for written in (self.title, self.text):
            _check(written)

    def of(self, notice: Notice) -> tuple[str, str]:
        """Title and text, filled in from the notice."""
        values = {name: read(notice) if name == "link" else without_calls(read(notice)) for name, read in FIELDS.items()}
        title, text = (each.format_map(values) for each in (self.title, self.text))
        ours = "\n".join(filter(None, (values["text"], values["link"])))
        return " ".join(title.split()) or values["title"], text or ours


PLAIN = Wording()


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeRule:
    """Which notices a service gets; empty clusters, nodes, checks, labels or outcomes mean any. nodes, checks: names and keys,
    with * and ?. labels: of the node. If checks and labels are not known, the notice is sent all the same.

    severity: the least. after: a notice about an episode that needs a person is sent once it has waited so long, and no person
    has acted.
    """

    when: frozenset[str] = frozenset(When)
    clusters: frozenset[str] = frozenset()
    nodes: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    labels: Selector = field(default_factory=Selector)
    outcomes: frozenset[str] = frozenset()
    severity: Severity = Severity.INFO
    after: timedelta = timedelta(0)
    wordings: Mapping[str, Wording] = field(default_factory=dict)

    def wants(self, notice: Notice) -> bool:
        severity = SEVERITIES[notice.when] if notice.over else notice.severity  # the receivers of the beginning also get the end
        if notice.when not in self.when or severity.rank < self.severity.rank:
            return False
        if self.clusters and notice.cluster not in self.clusters:
            return False
        if self.nodes and notice.node and not any(fnmatchcase(notice.node, each) for each in self.nodes):
            return False
        if (node := notice.known) is not None:
            covered = any(fnmatchcase(key, each) for key in node.checks for each in self.checks)
            if (self.checks and not covered) or not self.labels.matches(node.labels):
                return False
        if notice.when is When.NEEDS_HUMAN and notice.waited < self.after:
            return False
        return not (notice.outcome and self.outcomes) or notice.outcome in self.outcomes

    def written(self, notice: Notice) -> tuple[str, str]:
        """Title and text, by the configured wording if there is one."""
        return self.wordings.get(notice.when, PLAIN).of(notice)
