"""A machine that is kept and that others delete: its preservation ends, and says what has overridden it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from temporalio.testing import WorkflowEnvironment

from activities.contracts.preservation import Hold, HoldRequest
from policy.episode.messages import Outcome, Phase
from policy.preservation.overriding import Override
from tests.workflows import kept_machine
from tests.workflows.kept_machine import kept, machine, preserving
from workflows.definitions.preservation import Preservation

SET = "MachineSet/set"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[HoldRequest]:
    """What a look was asked with; it says who controls the machine, and what has overridden its preservation."""
    requests: list[HoldRequest] = []
    real = kept_machine.ScriptedMachine.hold

    async def hold(self, request: HoldRequest) -> Hold:
        requests.append(request)
        found: Hold = await real(self, request)
        if not found.gone:
            return replace(found, owner=SET)
        why = f"{found.gone}, rolling update: MachineDeployment w replaces it"
        return replace(found, gone=why, override=Override.ROLLING_UPDATE.value, node_uid="" if request.owner else found.node_uid)

    monkeypatch.setattr(kept_machine.ScriptedMachine, "hold", hold)
    return requests


@pytest.mark.parametrize("gone", [False, True], ids=["being deleted", "gone with its Node"])
async def test_an_override_is_recorded_by_its_name_and_told(
    env: WorkflowEnvironment, asked: list[HoldRequest], *, gone: bool
) -> None:
    """S21: in the record, in the result, and as an Event on the Node, also on one that is gone."""
    world = machine("now")
    async with kept(env, world) as run:
        world.present = not gone
        world.held = replace(world.held, deleting=True)  # by others; its controller may not be done with it yet
        await run.news()
        result = await run.result(Outcome.RELEASED)
    assert "rolling update: MachineDeployment w replaces it" in result.message
    (entry,) = [entry for entry in result.record if entry.act == "override"]
    assert (entry.outcome, entry.detail) == ("rolling update", result.message)
    assert [event for event in world.events if event.startswith("PreservationEnded: ") and result.message in event]
    assert asked[-1].owner == SET


@pytest.mark.usefixtures("rolls_once")
async def test_who_controls_the_machine_is_remembered_over_a_new_version(
    env: WorkflowEnvironment, asked: list[HoldRequest]
) -> None:
    """Of one that is gone nobody else knows it."""
    world = machine("now")
    async with preserving(env, world) as run:
        await run.until(lambda status: status.phase is Phase.RUNNING_PRESERVED and len(asked) > 1)
        world.present = False
        await run.news()
        await run.result()
    assert [request.owner for request in asked][1:] == [SET] * (len(asked) - 1)


async def test_what_ends_by_a_persons_word_was_not_overridden(env: WorkflowEnvironment, asked: list[HoldRequest]) -> None:
    world = machine("now")
    async with kept(env, world) as run:
        await run.says(Preservation.release)
        result = await run.result()
    assert asked
    assert not [entry for entry in result.record if entry.act == "override"]
