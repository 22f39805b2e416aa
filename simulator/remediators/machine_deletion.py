"""machine-deletion-remediation: it deletes the Machine of a node, and is done when the Machine's owner has all its nodes again.

For OpenShift's Machines, as there. It says whether a node of that name will ever come back (`PermanentNodeDeletionExpected`), so
that the creator of the object knows whether to wait for the node or to forget it. That it is given up after it has deleted the
Machine changes what it says and not what it did: the Machine goes all the same.
"""

from __future__ import annotations

from typing import ClassVar

from simulator.client import ApiError
from simulator.machine_systems.contract import created_at
from simulator.machine_systems.openshift import MACHINE
from simulator.objects import (
    JsonObject,
    condition_status,
    controller_of,
    is_terminating,
    key_of,
    name_of,
    namespace_of,
    split_key,
    uid_of,
)
from simulator.remediators.contract import FALSE, PROCESSING, TRUE, UNKNOWN, Remediator, annotation, is_given_up
from simulator.resources import Resource

HANDLED = "machine-deletion-remediation.medik8s.io/machineNameNamespace"
OWNER = "machine-deletion-remediation.medik8s.io/machineOwner"
PERMANENT = "PermanentNodeDeletionExpected"
_REASONS = {
    TRUE: "MachineDeletionOnCloudProviderCausesNewNodeName",
    FALSE: "MachineDeletionOnBareMetalProviderKeepsNodeName",
    UNKNOWN: "MachineDeletionUndefinedNodeNameExpectation",
}


def permanent_deletion_expected(provider_id: str | None) -> str:
    """Whether the node's name is gone for good with its Machine: so it is in clouds, and not where hosts are reused."""
    if not provider_id:
        return UNKNOWN
    return FALSE if provider_id.startswith("baremetal") else TRUE


class _CannotError(Exception):
    """It can't be begun; the text is the reason that it gives."""


class MachineDeletionRemediations(Remediator):
    """No doors of its own: `cluster.machines.instances` decides whether a replacement comes. Who deleted what is in
    `cluster.machines.deletions()`."""

    name_to_ask_for = "machine-deletion-remediation"
    crds = ("machine-deletion-remediation",)
    needs = ("openshift",)
    remediations: ClassVar[Resource] = Resource(
        api_version="machine-deletion-remediation.medik8s.io/v1alpha1",
        kind="MachineDeletionRemediation",
        plural="machinedeletionremediations",
    )

    async def reconcile(self, key: str) -> float | None:
        remediation = self.objects.get(key)
        if remediation is None:
            return None
        if is_given_up(remediation) and not is_terminating(remediation):
            await self.say(remediation, "RemediationStoppedByNHC", Processing=FALSE, Succeeded=FALSE)
            return None
        if condition_status(remediation, PROCESSING) != FALSE:
            remediation = await self.say(remediation, "RemediationStarted", Processing=TRUE, Succeeded=UNKNOWN)
        try:
            machine = await self._find(remediation)
        except _CannotError as error:
            await self.say(remediation, str(error), Processing=FALSE, Succeeded=FALSE)
            return None
        if machine is None or created_at(machine) > created_at(remediation):
            if not self._is_restored(remediation):
                return self.timings.machine_poll
            await self.say(remediation, "MachineDeleted", Processing=FALSE, Succeeded=TRUE)
            return None
        expected = permanent_deletion_expected(machine["spec"].get("providerID"))
        remediation = await self.say(remediation, _REASONS[expected], **{PERMANENT: expected})
        if not is_terminating(machine):
            owner = controller_of(machine)
            if owner is None:
                await self.say(remediation, "RemediationCannotStartNoControllerOwner", Processing=FALSE, Succeeded=FALSE)
                return None
            names = {HANDLED: key_of(machine), OWNER: f"{owner['kind']}/{owner['name']}"}
            await self.patch(remediation, {"metadata": {"annotations": names}})
            await self._delete(self.machines.machines.resource.path_of_key(key_of(machine)), machine)
        return self.timings.machine_poll

    async def _find(self, remediation: JsonObject) -> JsonObject | None:
        """The Machine to delete; None where it was deleted for this remediation and is gone. Raises _CannotError."""
        if handled := annotation(remediation, HANDLED):
            return await self._live(handled)
        owners = remediation["metadata"].get("ownerReferences") or ()
        name = next((owner["name"] for owner in owners if owner["kind"] == "Machine"), "")
        key = f"{namespace_of(remediation)}/{name}"
        if not name:
            node = self.view.nodes.get(name_of(remediation))
            if node is None:
                raise _CannotError("RemediationCannotStartNodeNotFound")
            key = annotation(node, MACHINE)
            if not key:
                raise _CannotError("RemediationFailed")
        machine = await self._live(key)
        if machine is None:
            raise _CannotError("RemediationCannotStartMachineNotFound")
        return machine

    async def _live(self, key: str) -> JsonObject | None:
        try:
            return await self.client.get(self.machines.machines.resource.path_of_key(key))
        except ApiError as error:
            if error.not_found:
                return None
            raise

    def _is_restored(self, remediation: JsonObject) -> bool:
        """As many nodes of living Machines as the owner wants, of whatever health."""
        _, _, owner = annotation(remediation, OWNER).partition("/")
        namespace, _ = split_key(annotation(remediation, HANDLED))
        machine_set = self.machines.machine_sets.get(f"{namespace}/{owner}")
        if machine_set is None:
            return False
        wanted = machine_set["spec"].get("replicas", 1)
        machines = [self.machines.machines.get(annotation(node, MACHINE)) for node in self.view.nodes]
        owners = [controller_of(machine) for machine in machines if machine is not None]
        return bool(wanted == 0 or sum(1 for each in owners if (each or {}).get("uid") == uid_of(machine_set)) == wanted)
