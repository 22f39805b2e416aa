"""Which person has commanded, as the cluster's API server attests it: a NodeAction that they made, read live and used once (S42,
S33).

The server has compared the name in it with the caller's, and has asked its own authorizer, where the policy of deploy/people.yaml
is in force (`policy/episode/operator_commands.py`). It says what the workflow was told; it is young; nothing else has made use of
it.
"""

from __future__ import annotations

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.cluster.api.connection import JsonObject
from activities.cluster.api.refusals import ObjectNotFound, edit
from activities.cluster.api.served_cluster import ClusterActivities, ServedCluster, require_cluster
from activities.cluster.report.node_actions import ACCEPTED, doubt_of, node_action_path
from activities.contracts.attestation import AttestationActivities, Verification, VerifyRequest
from activities.errors import ErrorType, failure
from activities.licences import Licences
from policy.episode.operator_commands import WITHIN, ActionName, SealedCommand, difference, read_spec
from policy.values.times import moment_of, written


class ClusterAttestation(ClusterActivities, AttestationActivities):
    """Served by the workers of one cluster's queue. required: whether a command that is not verified is refused."""

    def __init__(self, served: ServedCluster, licences: Licences, *, required: bool = False) -> None:
        super().__init__(served)
        self._licences = licences
        self._required = required
        self._clock = served.judged_at

    async def verify(self, request: VerifyRequest) -> Verification:
        """The object's use is noted before the workflow learns of it, in the version that was read: no two make use of it."""
        require_cluster(request.cluster, self._cluster)

        async def once() -> Verification:
            try:
                found = await self._connection.get(node_action_path(request.action.name))
            except ObjectNotFound:
                raise _refused(request.action, "there is none") from None
            self._expect(request, found)
            problem = await doubt_of(self._connection, found)
            if problem and self._required:
                raise _refused(request.action, problem)
            await self._note_use(request, found)
            if problem:
                return Verification(problem=problem)
            speaker = str(found["spec"]["requestedBy"])
            command = SealedCommand(spec=request.spec, action=request.action.uid, speaker=speaker)
            return Verification(speaker=speaker, sealed=self._licences.seal_command(self._cluster, request.incident, command))

        return await edit(f"NodeAction/{request.action.name}", once, look_again=True)

    def _expect(self, request: VerifyRequest, found: JsonObject) -> None:
        metadata, used = found["metadata"], _status(found).get("usedBy", "")
        made = moment_of(metadata.get("creationTimestamp"))
        if metadata.get("uid") != request.action.uid:
            raise _refused(request.action, "it is another object of that name")
        try:
            differs = difference(request.spec, read_spec(found.get("spec") or {}))
        except ValueError as error:
            raise _refused(request.action, str(error)) from error
        if differs:
            raise _refused(request.action, f"its {differs} is another than what was said")
        if used not in {"", _use(request)}:
            raise _refused(request.action, "it has been used already")
        if made is None or not (abs(self._clock() - made) <= WITHIN):
            raise _refused(request.action, f"it is from {metadata.get('creationTimestamp')}, and too old: say it once more")

    async def _note_use(self, request: VerifyRequest, found: JsonObject) -> None:
        if _status(found).get("usedBy") == _use(request):
            return
        workflow_id = activity.info().workflow_id or ""
        used = {"workflow": workflow_id, "usedBy": _use(request), "at": written(self._clock())}
        status = {"phase": ACCEPTED} | _status(found) | used  # an answer may stand there: that an episode has begun
        operations = [
            {"op": "test", "path": "/metadata/uid", "value": found["metadata"]["uid"]},
            {"op": "test", "path": "/metadata/resourceVersion", "value": found["metadata"]["resourceVersion"]},
            {"op": "add", "path": "/status", "value": status},
        ]
        await self._connection.patch_json(node_action_path(request.action.name, status=True), operations)


def _use(request: VerifyRequest) -> str:
    """What makes use of the object: a command to that incident, in the run that Temporal names (S49)."""
    info = activity.info()
    return " ".join(filter(None, (info.workflow_id, info.workflow_run_id, request.use, request.incident)))


def _status(found: JsonObject) -> JsonObject:
    return found.get("status") or {}


def _refused(action: ActionName, why: str) -> ApplicationError:
    return failure(ErrorType.NOT_LICENSED, f"NodeAction/{action.name}: {why}")
