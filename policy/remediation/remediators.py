"""What the remediation objects of other controllers say of their work: one table by kind, which the settings can extend.

The contract is medik8s', and a kind that is not in the table is read by it. Other words are turned into those of the contract,
so that what follows such an object (`following.py`) knows only these. The rights to the kinds follow the table
(`starter/deploy/rights.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Remediator:
    """One kind of objects, and which conditions of their status say what; "" for what they never say.

    working: is True while it is at work. succeeded: is True once it is done. failed: is False once it has failed; where that is
    another condition than `succeeded`, it tries again, and has not failed while `working` is True. node_goes: is True where the
    Node is to be deleted for good.
    """

    group: str
    kind: str
    working: str = "Processing"
    succeeded: str = "Succeeded"
    failed: str = "Succeeded"
    node_goes: str = "PermanentNodeDeletionExpected"

    def has_succeeded(self, conditions: Mapping[str, str]) -> str:
        """The status of the contract's `Succeeded`. conditions: the status of each, by type."""
        said = conditions.get(self.succeeded, "")
        if self.failed == self.succeeded or said == "True" or conditions.get(self.working) == "True":
            return said
        return "False" if conditions.get(self.failed) == "False" else said

    @property
    def telling(self) -> tuple[str, ...]:
        """The conditions whose messages tell how it fares, the most telling first."""
        return tuple(dict.fromkeys((self.failed, self.succeeded, self.working)))


_NO_CONDITIONS = dict.fromkeys(("working", "succeeded", "failed", "node_goes"), "")

REMEDIATORS: tuple[Remediator, ...] = (
    Remediator(group="self-node-remediation.medik8s.io", kind="SelfNodeRemediation"),
    Remediator(group="fence-agents-remediation.medik8s.io", kind="FenceAgentsRemediation"),
    Remediator(group="machine-deletion-remediation.medik8s.io", kind="MachineDeletionRemediation"),
    Remediator(
        group="storage-based-remediation.medik8s.io",
        kind="StorageBasedRemediation",
        working="FencingInProgress",
        succeeded="FencingSucceeded",
        failed="Ready",
        node_goes="",
    ),
    # These two have no conditions: of Metal3's the phase is read, of the other one's work the node alone tells.
    Remediator(group="infrastructure.cluster.x-k8s.io", kind="Metal3Remediation", **_NO_CONDITIONS),
    Remediator(group="customized-user-remediation.medik8s.io", kind="CustomizedUserRemediation", **_NO_CONDITIONS),
)


def remediator_of(api_version: str, kind: str, known: Iterable[Remediator] = REMEDIATORS) -> Remediator:
    """The first row of that kind in whatever version, or the contract."""
    group = api_version.partition("/")[0]
    return next((each for each in known if (each.group, each.kind) == (group, kind)), Remediator(group=group, kind=kind))
