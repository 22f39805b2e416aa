"""Who is told what, by which services, in which words."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from pydantic import Field, field_validator

from policy.episode.events import When
from policy.episode.messages import Outcome
from policy.episode.notices import NoticeRule, Severity, Wording
from policy.values.errors import PolicyError
from policy.values.fields import Fields
from policy.values.selectors import Selector, parse_selector
from workers.configuration.setting_types import Duration, Section, UserPath


class TextSettings(Section):
    """Title and text of a message, with fields in braces; what is not given is ours."""

    title: str = ""
    text: str = ""

    @field_validator("title", "text")
    @classmethod
    def _with_known_fields(cls, value: str) -> str:
        Wording(text=value)
        return value


def _selector(spec: dict[str, Any]) -> Selector:
    return parse_selector(Fields(spec, subject="labels"), [])


class NotificationSettings(Section):
    """Who is told what by which services. The addresses are Apprise's, one a line; they contain tokens, so they are in a file."""

    url_file: UserPath = Field(description="file with addresses as Apprise has them, one a line; read at each sending")
    when: Annotated[tuple[When, ...], Field(min_length=1)] = Field(default=tuple(When), description="what is told; default: all")
    clusters: tuple[str, ...] = Field(default=(), description="of these clusters; none: of all")
    nodes: tuple[str, ...] = Field(default=(), description="of these nodes, by name with * and ?; none: of all")
    checks: tuple[str, ...] = Field(
        default=(), description="of nodes that these health checks cover, as `status` names them, with * and ?; none: of all"
    )
    labels: dict[str, Any] = Field(
        default_factory=dict,
        description="of nodes with these labels: a Kubernetes selector, `matchLabels` and `matchExpressions`",
    )
    outcomes: tuple[Outcome, ...] = Field(default=(), description="of episodes with these outcomes; none: any outcome")
    severity: Severity = Field(default=Severity.INFO, description="of at least this severity")
    after: Duration = Field(default=timedelta(0), description="once an episode has waited this long for a person: escalation")
    texts: dict[When, TextSettings] = Field(default_factory=dict, description="other words for some of it")

    @field_validator("labels")
    @classmethod
    def _selects(cls, value: dict[str, Any]) -> dict[str, Any]:
        try:
            _selector(value)
        except PolicyError as error:
            raise ValueError(str(error)) from error
        return value

    def rule(self) -> NoticeRule:
        """The same as the typed rule that everything downstream knows."""
        return NoticeRule(
            when=frozenset(self.when),
            clusters=frozenset(self.clusters),
            nodes=self.nodes,
            checks=self.checks,
            labels=_selector(self.labels),
            outcomes=frozenset(self.outcomes),
            severity=self.severity,
            after=self.after,
            wordings={when: Wording(title=each.title, text=each.text) for when, each in self.texts.items()},
        )
