"""Whether a permit is held, asked of the scanner at the moment of use: the last look's question (S20).

A scanner that can't be asked is a "no" with its reason: what can't be proven held is not held.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio.client import Client, WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.common import QueryRejectCondition
from temporalio.service import RPCError

from policy.ids import scanner_id
from policy.permits import PermitQuestion

QUERY_TIMEOUT = timedelta(seconds=5)


class ScannerPermits:
    """Asks the cluster's running scanner."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def holds(self, cluster: str, node: str, incident: str) -> tuple[bool, str]:
        """Whether that incident may disrupt that node, and why not."""
        scanner = self._client.get_workflow_handle(scanner_id(cluster))
        try:
            answer = await scanner.query(
                "holds_permit",
                PermitQuestion(node=node, incident=incident),
                result_type=PermitQuestion,
                reject_condition=QueryRejectCondition.NOT_OPEN,
                rpc_timeout=QUERY_TIMEOUT,
            )
        except WorkflowQueryRejectedError:
            return False, f"the scanner of {cluster} has been stopped"
        except (RPCError, WorkflowQueryFailedError) as error:
            return False, f"the scanner of {cluster} can't be asked for the permit: {error}"
        return answer.held, answer.reason
