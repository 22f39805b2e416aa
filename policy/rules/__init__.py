"""The rules of each dialect: which targets a check covers, and what it thinks of one at one moment.

One module for each, with the shipped system's own words in its verdicts. The rules know nothing of sums (`policy/brakes.py`) and
nothing of acts (`policy/remedies.py`).
"""

from __future__ import annotations

from policy.healthcheck import Dialect, HealthCheck
from policy.rules.cluster_api import ClusterApiRules
from policy.rules.medik8s import Medik8sRules
from policy.rules.openshift import OpenShiftRules

Rules = Medik8sRules | OpenShiftRules | ClusterApiRules


def rules_of(check: HealthCheck) -> Rules:
    """The rules by which that check judges, prepared for many targets."""
    match check.dialect:
        case Dialect.MEDIK8S | Dialect.NODE_FENCING:
            return Medik8sRules(check)
        case Dialect.OPENSHIFT:
            return OpenShiftRules(check)
        case Dialect.CLUSTER_API:
            return ClusterApiRules(check)
