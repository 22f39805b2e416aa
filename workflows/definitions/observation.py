"""The workflow Observation: a record of what was seen and not repaired. It ends in its first task."""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from activities.errors import ErrorType
from policy.observation.spells import OBSERVATION, ObservationRecord


@workflow.defn(name=OBSERVATION)
class RecordedObservation:
    """Returns the record that it is started with, if it bears the record's own id: by that no record is made twice."""

    @workflow.run
    async def run(self, record: ObservationRecord) -> ObservationRecord:
        try:
            expected = record.workflow_id
        except ValueError as error:
            expected, problem = "", str(error)
        else:
            problem = f"expected the workflow id {expected!r}"
        if workflow.info().workflow_id != expected:
            raise ApplicationError(problem, type=ErrorType.INVALID_CONFIG.value, non_retryable=True)
        return record
