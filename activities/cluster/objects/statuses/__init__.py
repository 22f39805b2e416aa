"""What a health check's status says of our work, in the words that its dialect's users and tools know.

Only composed here, from the scan's report and what stands in the object; written by `activities/cluster/report/status_writer.py`,
and only where something differs. A condition carries the memory of what was said already, so that a circuit breaker that opens
or closes becomes one Event whichever worker sees it.
"""

from __future__ import annotations

from datetime import datetime

from activities.cluster.objects.statuses.common import Situation, StatusChange, another_controller, conflicting_status
from activities.cluster.objects.statuses.machines import cluster_api_status, openshift_status
from activities.cluster.objects.statuses.medik8s import medik8s_status
from policy.values.object_refs import Dialect


def status_change(situation: Situation, now: datetime) -> StatusChange | None:
    """What is to be written over the status as it stands; None where it says all of it already.

    While another controller acts on the object, its status is that controller's, also where the check is paused or only we refuse
    it: there it remembers what it has begun. Only our condition that says so is put beside, and stays.
    """
    if another_controller(situation.report):
        return conflicting_status(situation, now)
    match situation.dialect:
        case Dialect.MEDIK8S:
            return medik8s_status(situation, now)
        case Dialect.OPENSHIFT:
            return openshift_status(situation, now)
        case Dialect.CLUSTER_API:
            return cluster_api_status(situation, now)
        case Dialect.NODE_FENCING:
            return None  # a ConfigMap has no status: what is to be told is told by Events
