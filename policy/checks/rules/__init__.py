"""The rules of each dialect: which targets a check covers, and its verdict on one target at one moment.

One module for each, with the shipped system's own words in its verdicts. The rules know nothing of counts
(`policy/checks/circuit_breakers.py`) and nothing of acts (`policy/remediation/ladder.py`).
"""

from __future__ import annotations

from policy.checks.health_check import HealthCheck
from policy.checks.rules.machine_health_checks import ClusterApiRules, OpenShiftRules
from policy.checks.rules.medik8s import Medik8sRules
from policy.values.object_refs import Dialect

Rules = Medik8sRules | OpenShiftRules | ClusterApiRules


def rules_of(check: HealthCheck) -> Rules:
    """The rules of that check, prepared for many targets."""
    match check.dialect:
        case Dialect.MEDIK8S | Dialect.NODE_FENCING:
            return Medik8sRules(check)
        case Dialect.OPENSHIFT:
            return OpenShiftRules(check)
        case Dialect.CLUSTER_API:
            return ClusterApiRules(check)
