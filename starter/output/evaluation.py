"""The answer of `nodewarden evaluate`: as JSON (a stable interface, `docs/semantics.md` has the schema) and as a table.

Only worded here; what is true is `policy/scan/evaluation.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from activities.cluster.watch.offline import ManifestMistake
from policy.checks.circuit_breakers import OpenReason
from policy.checks.verdict import SICKNESS
from policy.episode.modes import only_some
from policy.remediation.strategy_rules import Action
from policy.scan.evaluation import CheckEvaluation, TargetEvaluation
from policy.values.display_text import in_a_line
from policy.values.object_refs import ObjectRef, in_natural_order
from starter.output.console import Sentences
from starter.output.models import CheckAnswer, EvaluateAnswer, Opinion, UnusableObject, VerdictAnswer
from starter.wording import HEALTH_STYLE, span

INVALID = "InvalidObject"
ALLOWED = "RemediationAllowed"

ROOM_FOR_REASONS = 40
"""With fewer columns left, reasons stand below the table."""


def as_model(checks: Iterable[CheckEvaluation], mistakes: Sequence[ManifestMistake]) -> EvaluateAnswer:
    """The whole answer. A check that can't be used is among the checks, with nothing allowed, and among the errors."""
    found = [CheckAnswer(**_head_of(check), verdicts=tuple(verdict_of(each) for each in check.verdicts)) for check in checks]
    found += [_bad(mistake.ref, mistake.message) for mistake in mistakes if mistake.ref is not None and mistake.field]
    found.sort(key=lambda check: (check.kind, check.namespace, check.name))
    return EvaluateAnswer(checks=tuple(found), errors=tuple(mistake_of(each) for each in mistakes))


def opinion_of(evaluation: CheckEvaluation, target: TargetEvaluation, unblock: tuple[str, ...]) -> Opinion:
    return Opinion(**_head_of(evaluation), verdict=verdict_of(target), unblock=unblock)


def _head_of(evaluation: CheckEvaluation) -> dict[str, Any]:
    check, counts, breaker = evaluation.check, evaluation.counts, evaluation.breaker
    allowed, reason, message = evaluation.may_act
    return {
        **_named(check.ref),
        "dialect": check.dialect,
        "paused": breaker.reason is OpenReason.PAUSED,
        "targets": counts.total,
        "healthy": counts.healthy,
        "unhealthy": counts.unwell,
        "need_remediation": counts.unhealthy,
        "soon": counts.soon,
        "starting": counts.starting,
        "deleting": counts.deleting,
        "excluded": counts.excluded,
        "recovering": counts.recovering,
        "left_out": counts.left_out,
        "allowed": allowed,
        "remediations_allowed": max(breaker.remaining, 0),
        "reason": reason or ALLOWED,
        "message": message,
        "next_check_seconds": _seconds(evaluation.next_look),
        "warnings": tuple(evaluation.warnings),
    }


def _bad(ref: ObjectRef, message: str) -> CheckAnswer:
    return CheckAnswer(**_named(ref), dialect=None, reason=INVALID, message=message)


def _named(ref: ObjectRef) -> dict[str, Any]:
    return {"kind": ref.kind, "api_version": ref.api_version, "namespace": ref.namespace, "name": ref.name}


def verdict_of(each: TargetEvaluation) -> VerdictAnswer:
    verdict = each.verdict
    return VerdictAnswer(
        target=each.target,
        node=each.node or None,
        machine=each.machine or None,
        verdict=verdict.health,
        standing=verdict.standing,
        reason=verdict.reason,
        message=each.message,
        since=verdict.since,
        due=verdict.due,
        due_in_seconds=_seconds(each.due_in),
        action=each.action,
        held_by=each.held_by or None,
    )


def mistake_of(mistake: ManifestMistake) -> UnusableObject:
    """One object or file that could not be used."""
    ref = mistake.ref
    return UnusableObject(
        kind=ref.kind if ref else None,
        api_version=ref.api_version if ref else None,
        namespace=ref.namespace if ref else None,
        name=ref.name if ref else None,
        field=mistake.field or None,
        message=mistake.message,
        source=mistake.source,
    )


def _seconds(wait: timedelta | None) -> int | float | None:
    if wait is None:
        return None
    seconds = wait.total_seconds()
    return int(seconds) if seconds == int(seconds) else round(seconds, 3)


# For people -----------------------------------------------------------------------------------------------------------


def as_table(checks: Sequence[CheckEvaluation], mistakes: Sequence[ManifestMistake], *, now: datetime) -> RenderableType:
    """A block for each check: its breaker, then its targets, the sickest first. Mistakes go last, where they are seen."""
    parts: list[RenderableType] = []
    for check in checks:
        parts += [_head(check), _targets(check, now)]
    if not checks and not any(mistake.field for mistake in mistakes):
        parts.append(Text("no health check in these files", style="dim"))
    parts += [Text(f"error: {described(mistake)}", style="red") for mistake in mistakes]
    return Group(*(Padding(part, (0, 0, 1 if isinstance(part, Sentences) else 0, 0)) for part in parts))


def described(mistake: ManifestMistake) -> str:
    """One mistake in a line: where, what about which object, and what was expected."""
    about = f"{mistake.ref.key}: " if mistake.ref is not None else ""
    return f"{mistake.source}: {about}{mistake.message}"


def _head(evaluation: CheckEvaluation) -> RenderableType:
    counts, (allowed, reason, message) = evaluation.counts, evaluation.may_act
    head = Text.assemble((evaluation.check.ref.key, "bold"), f"  {evaluation.check.dialect.value}, ")
    head.append(f"{counts.healthy} of {counts.total} healthy")
    head.append(f", {others}" if (others := counts.others()) else "")
    head.append("\n  ")
    if allowed:
        head.append(f"{only_some(evaluation.modes)}may act: {message}", style="green")
    else:
        why = "only observed" if evaluation.breaker.allowed else f"circuit breaker open ({reason})"
        head.append(f"{why}: {message}", style="red")
    if evaluation.next_look is not None:
        head.append(f"\n  looks again in {span(evaluation.next_look)}")
    for warning in evaluation.warnings:
        head.append(f"\n  warning: {warning}", style="yellow")
    return head


def _targets(evaluation: CheckEvaluation, now: datetime) -> Sentences:
    """The targets of one check: with the reasons beside them where there is room, else below, so that no name is cut."""
    rows = sorted(evaluation.verdicts, key=lambda each: (SICKNESS[each.verdict.health], in_natural_order(each.target)))
    return Sentences(
        table=partial(_table, evaluation, rows, now),
        below=[(each.target, Text(why(each))) for each in rows],
        room=ROOM_FOR_REASONS,
        indent=2,
    )


def _table(evaluation: CheckEvaluation, rows: Sequence[TargetEvaluation], now: datetime, reasons: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    of_machines = evaluation.check.of_machines
    for title in (
        "  MACHINE" if of_machines else "  NODE",
        *(("NODE",) if of_machines else ()),
        "VERDICT",
        "SINCE",
        "DUE",
        "ACTION",
    ):
        table.add_column(title, no_wrap=title.strip() not in {"MACHINE", "NODE"}, overflow="fold")
    if reasons:
        table.add_column("WHY", ratio=1, overflow="fold")
    for each in rows:
        verdict = each.verdict
        table.add_row(
            f"  {each.target}",
            *((each.node or "-",) if of_machines else ()),
            Text(verdict.health.value, style=HEALTH_STYLE[verdict.health]),
            span(now - verdict.since) if verdict.since else "-",
            f"in {span(each.due_in)}" if each.due_in is not None else "-",
            Text(each.action.value if each.action is not Action.NONE else "-", style="dim" if each.held_by else ""),
            *((why(each),) if reasons else ()),
        )
    return table


def why(each: TargetEvaluation) -> str:
    """Reason, message and what holds the action back, in one line."""
    words = [in_one_line(each.message) or each.verdict.reason]
    if each.held_by:
        words.append(f"held back by {in_one_line(each.held_by)}")
    return "; ".join(word for word in words if word)


def in_one_line(message: str) -> str:
    """Cluster API's messages are lists of several lines."""
    return in_a_line(re.sub(r"(?<!\s)\s*\n\s*\*?\s*", " ", message))
