"""Which class carries out which strategy. All that is said of a strategy is `policy/remediation/strategies.py`."""

from __future__ import annotations

from collections.abc import Mapping

from policy.remediation.strategies import Strategy
from workflows.remediation.detaching import DetachingStep
from workflows.remediation.external import AnnotateExternal, ExternalRemediation
from workflows.remediation.fencing_step import FencingStep, RebootStep
from workflows.remediation.ladder_step import LadderStep
from workflows.remediation.replacing import DeleteMachine, RequestOwner

STEPS: Mapping[Strategy, type[LadderStep]] = {
    Strategy.DELETE_MACHINE: DeleteMachine,
    Strategy.REQUEST_OWNER: RequestOwner,
    Strategy.EXTERNAL: ExternalRemediation,
    Strategy.ANNOTATE_EXTERNAL: AnnotateExternal,
    Strategy.FENCE: FencingStep,
    Strategy.REBOOT: RebootStep,
    Strategy.DETACH_VOLUMES: DetachingStep,
}
