"""By which steps a node would be remediated, for `nodewarden remediate plan`: by hand, and by the scanner.

Nothing is done. What is true is `policy/scan/explanation.py`, in which words `starter/output/outlooks.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from activities.cluster.watch.offline import ClusterSnapshot, ManifestMistake
from policy.remediation.ladder import Body, EscalationStep
from policy.scan.explanation import Outlook, outlook, outlook_by_hand
from starter.output import outlooks
from starter.output.evaluation import described, mistake_of
from starter.output.models import RemediatePlanAnswer


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


def planned(cluster: ClusterSnapshot, node: str, named: tuple[EscalationStep, ...] | None, body: Body | None) -> RemediationPlan:
    """Of objects that were read. named: the steps that a person wants. body: as a look at the cluster has found it."""
    known = cluster.ledger.known(cluster.now)
    return RemediationPlan(
        node=node,
        by_hand=outlook_by_hand(known, node, named=named, body=body, owners=cluster.owners),
        by_scanner=outlook(known, node, cluster.owners),
        named=named is not None,
        mistakes=tuple(cluster.mistakes),
        names=tuple(known.nodes),
    )


def as_model(plan: RemediationPlan) -> RemediatePlanAnswer:
    """The whole answer."""
    return RemediatePlanAnswer(
        node=plan.node,
        found=plan.by_hand is not None,
        by_hand=outlooks.as_model(plan.by_hand) if plan.by_hand is not None else None,
        by_scanner=outlooks.as_model(plan.by_scanner) if plan.by_scanner is not None else None,
        errors=tuple(mistake_of(mistake) for mistake in plan.mistakes),
    )


def as_table(plan: RemediationPlan) -> RenderableType:
    """A block each, then what could not be read."""
    parts: list[RenderableType] = [Text(plan.node, style="bold")]
    if plan.by_hand is None:
        parts.append(Text("there is no such Node or Machine", style="red"))
    else:
        check = f", as {plan.by_hand.check} says" if plan.by_hand.check and not plan.named else ""
        parts += [Text(f"By hand{check}", style="bold"), outlooks.as_table(plan.by_hand, by_hand=True)]
        if plan.by_scanner is None:
            parts.append(Text("By the scanner: never, no health check covers it", style="bold"))
        else:
            parts += [Text(f"By the scanner, as {plan.by_scanner.check} says", style="bold"), outlooks.as_table(plan.by_scanner)]
    parts += [Text(f"error: {described(mistake)}", style="red") for mistake in plan.mistakes]
    return Group(*parts)
