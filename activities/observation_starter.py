"""Starts the workflows that record what was seen and not repaired. An id is used once for as long as Temporal remembers."""

from __future__ import annotations

from datetime import timedelta

from temporalio.client import Client
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from activities.contracts import search
from activities.errors import ErrorType, failure
from policy.observation.spells import OBSERVATION, ObservationRecord
from policy.values.display_text import counted, in_a_line

PATIENCE = timedelta(seconds=10)


class ObservationStarter:
    """task_queue: where workflows run."""

    def __init__(self, client: Client, *, task_queue: str) -> None:
        self._client = client
        self._task_queue = task_queue

    async def start(self, record: ObservationRecord) -> None:
        """Nothing is done where it exists already. Raises Unreachable, and InvalidConfig where Temporal refuses it as it is: it
        is too large, or the namespace lacks a search attribute."""
        first = record.spells[0] if record.spells else None
        about = "node-days" if first is None else f"storm of {counted(len(record.spells), 'node')}" if first.storm else first.node
        ending = f": {first.ending.value}" if first is not None and first.ending is not None and not first.storm else ""
        try:
            await self._client.start_workflow(
                OBSERVATION,
                record,
                id=record.workflow_id,
                task_queue=self._task_queue,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                search_attributes=search.of_observation(record),
                static_summary=in_a_line(f"{about}{ending}", 200),
                rpc_timeout=PATIENCE,
            )
        except WorkflowAlreadyStartedError:
            return
        except RPCError as error:
            refused = error.status is RPCStatusCode.INVALID_ARGUMENT
            kind = ErrorType.INVALID_CONFIG if refused else ErrorType.UNREACHABLE
            raise failure(kind, f"Temporal can't record {record.workflow_id}: {error.message}") from error
