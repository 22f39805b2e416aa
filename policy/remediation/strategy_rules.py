"""The strategies that a step of a ladder can have: one row of `RULES` has everything that differs between them.

The rows say what a person or an annotation may name, what a target must have, how long the step may take, and how `evaluate`
calls it. `ladder.py` applies them. The class of each step does the work (`workflows/remediation/steps.py`). How to add one:
`docs/adding-a-strategy.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, StrEnum

from policy.fence.template_reader import KIND, MACHINE_DELETION, REBOOT, VOLUME_DETACHMENT


class Strategy(StrEnum):
    """One way to remediate; the values are what people write."""

    DELETE_MACHINE = "delete-machine"
    REQUEST_OWNER = "request-owner"
    EXTERNAL = "external"
    ANNOTATE_EXTERNAL = "annotate-external"
    FENCE = "fence"
    REBOOT = "reboot"
    DETACH_VOLUMES = "detach-volumes"


class Action(StrEnum):
    """An act on one target; the values are part of the interface of `nodewarden evaluate`."""

    NONE = "none"
    DELETE_MACHINE = "delete-machine"
    CREATE_REMEDIATION = "create-remediation"
    DELETE_REMEDIATION = "delete-remediation"
    REQUEST_OWNER_REMEDIATION = "request-owner-remediation"
    ANNOTATE_EXTERNAL = "annotate-external"
    SKIP_NO_OWNER = "skip-no-owner"
    FENCE = "fence"
    REBOOT = "reboot"
    DETACH_VOLUMES = "detach-volumes"
    PRESERVE = "preserve"


class Needs(Enum):
    NODE = "a Node"
    MACHINE = "a Machine"
    TEMPLATE = "a template of another controller"


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyRule:
    """The properties of one strategy.

    action: how `evaluate` calls it as the first step. timeout: where a ladder sets none; None: none, or for fencing those of
    its plan. template: the kind of ours that stands for it in a health check, "" where none does. replaces: it ends with
    another machine, so a controller must own the Machine. owners: the kinds of owner that it works with, empty for any. doubt:
    what must hold of the target's Machine that a scan may not know, in words to end a sentence with; "": a target without a
    known Machine has none. endless: what that a step has no time-out means for those after it, "" where its own plan ends it.
    """

    action: Action
    needs: Needs
    timeout: timedelta | None = None
    template: str = ""
    replaces: bool = False
    owners: tuple[str, ...] = ()
    doubt: str = ""
    endless: str = ""


DELETION_TIMEOUT = timedelta(minutes=30)
"""A drain may hang, an instance may not go: after this long a deletion has failed."""

REPLACING_OWNERS = ("MachineSet", "KubeadmControlPlane")
"""Cluster API: only these owners remediate their Machines when asked."""

RULES: Mapping[Strategy, StrategyRule] = {
    Strategy.DELETE_MACHINE: StrategyRule(
        action=Action.DELETE_MACHINE,
        needs=Needs.MACHINE,
        timeout=DELETION_TIMEOUT,
        template=MACHINE_DELETION,
        replaces=True,
        doubt="if it then belongs to a Machine that a controller owns",
    ),
    Strategy.REQUEST_OWNER: StrategyRule(
        action=Action.REQUEST_OWNER_REMEDIATION,
        needs=Needs.MACHINE,
        timeout=DELETION_TIMEOUT,
        replaces=True,
        owners=REPLACING_OWNERS,
    ),
    Strategy.EXTERNAL: StrategyRule(
        action=Action.CREATE_REMEDIATION,
        needs=Needs.TEMPLATE,
        endless="has no time-out: the next step comes only if its object says that it has failed",
    ),
    Strategy.ANNOTATE_EXTERNAL: StrategyRule(
        action=Action.ANNOTATE_EXTERNAL, needs=Needs.MACHINE, endless="has no time-out: no step comes after it"
    ),
    Strategy.FENCE: StrategyRule(action=Action.FENCE, needs=Needs.NODE, template=KIND),
    Strategy.REBOOT: StrategyRule(action=Action.REBOOT, needs=Needs.NODE, template=REBOOT),
    Strategy.DETACH_VOLUMES: StrategyRule(action=Action.DETACH_VOLUMES, needs=Needs.NODE, template=VOLUME_DETACHMENT),
}

BY_TEMPLATE: Mapping[str, Strategy] = {rule.template: strategy for strategy, rule in RULES.items() if rule.template}
"""The strategy that a template of ours means, by its kind."""
