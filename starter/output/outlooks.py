"""How a remediation would go, in words and as JSON: for `nodewarden explain` and `remediate plan`, by hand and by the scanner.

Nothing is done. What is true is `policy/scan/explanation.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from activities.cluster.watch.offline import ClusterSnapshot, ManifestMistake
from policy.checks.health_check import RetryRules
from policy.episode.permits import Permit, PermitState
from policy.remediation.ladder import Body, EscalationStep
from policy.remediation.memory import LastRemediation, NextRemediation
from policy.scan.explanation import ConcurrencyLimit, Outlook, OwnersTurn, PlannedStep, outlook, outlook_by_hand
from policy.values.times import format_duration, written
from starter.output.evaluation import described, mistake_of
from starter.output.models import RemediatePlanAnswer


def step_text(planned: PlannedStep) -> str:
    """Its name, what kind of step that is where the name does not say so, and its time-out."""
    step = planned.step
    kind = f" ({step.strategy.value})" if step.name != step.strategy.value else ""
    timeout = f", at most {format_duration(step.timeout)}" if step.timeout is not None else ""
    return f"{step.name}{kind}{timeout}"


def state_of(planned: PlannedStep) -> str:
    """What becomes of it: "" for a step that comes later."""
    if planned.impossible:
        return f"not possible: {planned.impossible}"
    if planned.failed:
        return "has failed before, is passed over"
    next_one = "is next" if planned.next else ""
    return ", ".join(filter(None, (next_one, planned.doubtful, planned.endless)))


def rules_text(rules: RetryRules) -> str:
    """`maxRetry none, retryPeriod 0s, minHealthyPeriod 1h, backoff none`."""
    backoff = "none" if rules.backoff is None else f"{format_duration(rules.backoff.base)}, doubled up to"
    limit = "" if rules.backoff is None else f" {format_duration(rules.backoff.limit)}"
    return (
        f"maxRetry {'none' if rules.max_retry is None else rules.max_retry}, "
        f"retryPeriod {format_duration(rules.retry_period)}, "
        f"minHealthyPeriod {format_duration(rules.min_healthy_period)}, backoff {backoff}{limit}"
    )


def memory_text(last: LastRemediation) -> str:
    """The last remediation of its lineage."""
    which = f"as retry {last.retry}" if last.retry else "for the first time"
    failed = f"; failed: {', '.join(last.failed)}" if last.failed else ""
    incident = f" (incident {last.incident})" if last.incident else ""
    return f"{last.of} was remediated at {written(last.at)} {which}{incident}{failed}"


def due_text(turn: NextRemediation) -> str:
    """When the next one is due, and why not before."""
    if turn.exhausted:
        return f"a person is asked: {turn.exhausted}"
    return turn.why or "at once"


def in_flight_text(limit: ConcurrencyLimit, permits: Collection[Permit] = ()) -> str:
    """How many at once, and who is under way now where the scanner has said."""
    share = f" ({limit.limit} of {limit.total})" if limit.limit.percent else ""
    busy = sorted(each.node for each in permits if limit.check in each.checks and each.state is not PermitState.PARKED)
    under_way = f"; under way: {', '.join(busy)}" if busy else ""
    return f"{limit.check} lets {limit.most}{share} be remediated at once{under_way}"


def owners_own_text(own: OwnersTurn) -> str:
    """What its owner does by itself: it is asked, and by its own rules acts or waits."""
    head = f"{own.owner} remediates by its own remediationStrategy"
    if own.rules is None or own.turn is None:
        return f"{head}, which is not known here: {own.problem}"
    due = f"gives up: {own.turn.exhausted}" if own.turn.exhausted else due_text(own.turn)
    return f"{head}: {rules_text(own.rules)}; the next {due}" if not own.turn.exhausted else f"{head}: it {due}"


def lines(found: Outlook, permits: Collection[Permit] = (), *, by_hand: bool = False) -> list[tuple[str, str]]:
    """All of it as pairs of a word and a sentence; the steps are numbered in the order of the ladder."""
    said = []
    total = len(found.steps)
    for number, planned in enumerate(found.steps, start=1):
        state = state_of(planned)
        word = f"step {number} of {total}" if total > 1 else "step"
        said.append((word, f"{step_text(planned)}{f': {state}' if state and (total > 1 or not planned.next) else ''}"))
    if found.problem:
        said.append(("nothing", found.problem))
    elif not any(planned.next for planned in found.steps):
        said.append(("nothing", "every step that is possible has failed: a person is asked"))
    if found.held_by:
        said.append(("held", "; ".join(filter(None, (found.held_by, found.unblock)))))
    if found.machine or found.owner:
        owner = f"owned by {found.owner}" if found.owner else "no controller owns it"
        said.append(("machine", f"{found.machine}, {owner}" if found.machine else owner))
    if found.last is not None:
        said.append(("remembered", memory_text(found.last)))
    if by_hand:
        said.append(("due", "at once, from the first step: a person's wish waits for no back-off, only for a permit"))
    elif found.owners_own is None and not found.plain and not found.problem and (found.last is not None or found.turn.exhausted):
        said.append(("due", due_text(found.turn)))
    if found.rules is not None and found.owners_own is None:
        said.append(("retries", rules_text(found.rules)))
    said += [("limit", in_flight_text(limit, permits)) for limit in found.in_flight]
    if found.owners_own is not None:
        said.append(("owner", owners_own_text(found.owners_own)))
    return said


def outlook_table(found: Outlook, permits: Collection[Permit] = (), *, by_hand: bool = False) -> RenderableType:
    """The same on the page."""
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for word, said in lines(found, permits, by_hand=by_hand):
        table.add_row(f"  {word}", said)
    return table


# The plan of one node: both by hand and by the scanner.


@dataclass(frozen=True, slots=True, kw_only=True)
class RemediationPlan:
    """Both. by_hand None: there is no such node; by_scanner None: no health check covers it. named: a person has said by which
    steps."""

    node: str
    by_hand: Outlook | None
    by_scanner: Outlook | None
    named: bool = False
    mistakes: Sequence[ManifestMistake] = ()
    names: Collection[str] = ()
    """Of all nodes."""


def planned(
    cluster: ClusterSnapshot, node: str, named: tuple[EscalationStep, ...] | None, body: Body | None, *, whole: bool = True
) -> RemediationPlan:
    """Of objects that were read. named: the steps that a person wants, whole: all of them or none. body: as a look at the cluster
    has found it."""
    known = cluster.ledger.known(cluster.now)
    return RemediationPlan(
        node=node,
        by_hand=outlook_by_hand(known, node, named=named, whole=whole, body=body, owners=cluster.owners),
        by_scanner=outlook(known, node, cluster.owners),
        named=named is not None,
        mistakes=tuple(cluster.mistakes),
        names=tuple(known.nodes),
    )


def as_model(plan: RemediationPlan) -> RemediatePlanAnswer:
    return RemediatePlanAnswer(
        node=plan.node,
        found=plan.by_hand is not None,
        by_hand=plan.by_hand,
        by_scanner=plan.by_scanner,
        errors=tuple(mistake_of(mistake) for mistake in plan.mistakes),
    )


def as_table(plan: RemediationPlan) -> RenderableType:
    """A block each, then what could not be read."""
    parts: list[RenderableType] = [Text(plan.node, style="bold")]
    if plan.by_hand is None:
        parts.append(Text("there is no such Node or Machine", style="red"))
    else:
        check = f", as {plan.by_hand.check} says" if plan.by_hand.check and not plan.named else ""
        parts += [Text(f"By hand{check}", style="bold"), outlook_table(plan.by_hand, by_hand=True)]
        if plan.by_scanner is None:
            parts.append(Text("By the scanner: never, no health check covers it", style="bold"))
        else:
            parts += [Text(f"By the scanner, as {plan.by_scanner.check} says", style="bold"), outlook_table(plan.by_scanner)]
    parts += [Text(f"error: {described(mistake)}", style="red") for mistake in plan.mistakes]
    return Group(*parts)
