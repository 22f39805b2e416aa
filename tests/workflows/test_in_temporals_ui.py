"""What Temporal's own UI and CLI show of our workflows: first what matters, each word with its meaning, how it ended."""

from __future__ import annotations

import pytest
from temporalio import workflow
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.testing import WorkflowEnvironment

from activities.contracts import search_attributes
from activities.contracts.episode_start import SUMMARY_LENGTH, TemporalUi, introduced, page_of, queries
from activities.errors import ErrorType, failure
from policy.episode.messages import Kind, Outcome
from tests.workflows.fencing_run import fencing
from tests.workflows.world import NODE, World
from workers.composition import workflow_serving
from workflows.definitions.device_check import DeviceCheckPage
from workflows.definitions.episodes import RecordedObservation

pytestmark = pytest.mark.timeout(60)

KINDS = workflow_serving(None, page="").workflows  # type: ignore[arg-type] # no activity is called


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_whatever_a_workflow_may_be_asked_or_told_says_what_it_is(kind: type) -> None:
    """A person finds the words in a menu there, without our docs."""
    found = workflow._Definition.must_from_class(kind)
    silent = [name for each in (found.updates, found.queries, found.signals) for name, one in each.items() if not one.description]
    assert silent == []
    assert found.updates or found.signals or kind in {RecordedObservation, DeviceCheckPage}


async def test_the_first_sentence_says_that_a_person_is_needed_and_what_he_can_do(env: WorkflowEnvironment) -> None:
    world = World(ignores_off=True)
    async with fencing(env, world, parks=True) as run:
        status = await run.status()
        shown: WorkflowMetadata = await run.handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
        first, _, second, *facts = shown.current_details.splitlines()
        assert first == f"**needs a person: {status.problem}**"
        assert second == status.advice
        assert status.advice
        assert any(f"Fencing of `{NODE}`" in each for each in facts)
        assert shown.current_details.count(status.problem) == 1
        await run.abort()


async def test_what_a_device_says_draws_no_line_and_no_link_in_temporals_ui(env: WorkflowEnvironment) -> None:
    """S50: an episode's details are shown as Markdown, beside the words by which a person acknowledges that it is off."""
    world = World(
        errors={"off": [failure(ErrorType.UNREACHABLE, "bmc says\n* off proven\n[it is off](https://evil.example.com)")] * 99}
    )
    async with fencing(env, world, parks=True) as run:
        await run.status()
        shown: WorkflowMetadata = await run.handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
        assert "it is off" in shown.current_details
        assert "* off proven" not in shown.current_details.splitlines()
        assert "](" not in shown.current_details
        await run.abort()


async def test_an_ended_episode_is_found_by_how_it_ended(env: WorkflowEnvironment) -> None:
    async with fencing(env, World()) as run:
        before = (await run.handle.describe()).typed_search_attributes
        await run.result(Outcome.RECOVERED)
        after = (await run.handle.describe()).typed_search_attributes
    assert (before.get(search_attributes.OUTCOME), after.get(search_attributes.OUTCOME)) == (None, "recovered")


def test_what_it_is_started_with_leads_to_our_page() -> None:
    told = introduced(
        Kind.FENCING, cluster="prod", node="node-7", reason="x" * 500, requester="ann", page="https://n.example.com"
    )
    assert len(told["static_summary"]) == SUMMARY_LENGTH
    assert told["static_details"].startswith("Fencing of `node-7` in `prod`, asked by ann: xxx")
    assert told["static_details"].endswith("[node-7 on nodewarden's page](https://n.example.com/c/prod/nodes/node-7)")
    without = introduced(Kind.FENCING, cluster="prod", node="node-7", reason="", requester="", page="")
    assert without == {
        "static_summary": "node-7: asked without a name",
        "static_details": "Fencing of `node-7` in `prod`, asked without a name: -",
    }


def test_a_name_becomes_no_part_of_an_address() -> None:
    """S41."""
    assert page_of("https://n.example.com", "prod", "machine/ns/m-1?x#y") == (
        "https://n.example.com/c/prod/nodes/machine%2Fns%2Fm-1%3Fx%23y"
    )
    ui = TemporalUi(address="https://t.example.com", namespace="n/s")
    assert ui.of("episode/prod/a?b", "run") == "https://t.example.com/namespaces/n%2Fs/workflows/episode%2Fprod%2Fa%3Fb/run"
    assert "?query=" in ui.found(queries("prod")["Needs a person"])
