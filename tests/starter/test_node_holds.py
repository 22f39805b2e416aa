"""A node that is well is held, too: none of its episodes begins until the person who holds it says so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from policy.episode.gate import HOLD_ANNOTATION
from policy.episode.node_action import NAMESPACE
from simulator.api.control.faults import Accident, Fault
from simulator.api.server import ApiServer
from simulator.client import ApiAddress, ApiClient
from starter.client import Nodewarden
from tests.cluster.builders import NODES, node
from tests.documents import documents, path_of
from tests.node_actions import ACTIONS
from tests.starter.builders import nodewarden
from tests.starter.conftest import SETTINGS


@pytest.fixture
async def api(keyboard: Path, cluster: str, kube: ApiServer) -> AsyncIterator[ApiClient]:
    """A cluster with one node, as the person at the keyboard reaches it."""
    async with ApiClient(ApiAddress(url=kube.url, token="abc"), user_agent="ada") as client:
        token = keyboard / "token"
        token.write_text("abc", encoding="utf-8")
        settings = f"clusters: {{{cluster}: {{server: '{kube.url}', token_file: {token}}}}}\n"
        (keyboard / SETTINGS).write_text(settings, encoding="utf-8")
        await client.create(NODES, node("node-1"))
        yield client


@pytest.fixture
async def kube() -> AsyncIterator[ApiServer]:
    async with ApiServer() as server:
        yield server


async def held(api: ApiClient) -> str | None:
    """What the Node says of it."""
    value: str | None = (await api.get(f"{NODES}/node-1"))["metadata"].get("annotations", {}).get(HOLD_ANNOTATION)
    return value


async def test_a_node_without_an_episode_is_held_and_let_go(api: ApiClient, warden: Nodewarden, cluster: str) -> None:
    """S20, S44: it was refused with "no open episode", and the next episode began. No NodeAction is made that none would take."""
    await api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for document in documents("deploy/crds/nodeactions.nodewarden.io.yaml"):
        await api.create(path_of(document), document)
    of_it = ("node-1", "-c", cluster)
    done = await nodewarden("hold", *of_it, "--reason", "its fan is noisy")
    assert (done.exit_code, "none begins" in done.stdout) == (0, True), done.output
    value = await held(api)
    assert value is not None
    assert value.endswith(": its fan is noisy")
    assert value.startswith("by ")
    timed = await nodewarden("hold", *of_it, "--for", "2h")
    assert (timed.exit_code, "leave out --for" in timed.stderr) == (3, True)
    await api.patch(f"{NODES}/node-1", {"metadata": {"annotations": {HOLD_ANNOTATION: "by bob: mine"}}})
    for refused in (await nodewarden("hold", *of_it), await nodewarden("resume", *of_it)):
        assert (refused.exit_code, "by bob: mine" in refused.stderr) == (3, True), refused.output
    assert await held(api) == "by bob: mine"
    ended = await nodewarden("resume", *of_it, "--of", "bob")
    assert (ended.exit_code, ended.stdout) == (0, "node-1 is no longer held: by bob: mine\n"), ended.output
    assert await held(api) is None
    assert (await nodewarden("resume", *of_it)).exit_code == 4
    assert (await nodewarden("hold", "node-9", "-c", cluster)).exit_code == 4
    assert (await api.get(ACTIONS.path(namespace=NAMESPACE)))["items"] == []


async def test_a_person_who_may_not_write_nodes_is_told_which_right_is_missing_and_what_else_there_is(
    api: ApiClient, kube: ApiServer, warden: Nodewarden, cluster: str
) -> None:
    """S42, S44: it was `unexpected ApplicationError: Forbidden`, with the code of a failure of ours."""
    kube.faults.add(Fault(accident=Accident.FORBID, method="PATCH"))
    refused = await nodewarden("hold", "node-1", "-c", cluster, "--reason", "it is mine")
    said = " ".join(refused.stderr.split())
    assert refused.exit_code == 3, said
    assert "the rights get and patch on nodes: PATCH /api/v1/nodes/node-1: 403" in said
    assert f"kubectl annotate node node-1 {HOLD_ANNOTATION}='it is mine'" in said
    assert "`nodewarden pause`" in said
    assert "unexpected" not in said
    assert await held(api) is None
    kube.faults.clear()
    await api.patch(f"{NODES}/node-1", {"metadata": {"annotations": {HOLD_ANNOTATION: "by bob: mine"}}})
    kube.faults.add(Fault(accident=Accident.FORBID, method="PATCH"))
    kept = await nodewarden("resume", "node-1", "-c", cluster, "--of", "bob")
    assert kept.exit_code == 3, kept.output
    assert f"kubectl annotate node node-1 {HOLD_ANNOTATION}-" in " ".join(kept.stderr.split())
    kube.faults.add(Fault(accident=Accident.FORBID, method="GET"))
    unread = await nodewarden("hold", "node-1", "-c", cluster)
    assert unread.exit_code == 3, unread.output
    assert "the rights get and patch on nodes: GET /api/v1/nodes/node-1: 403" in " ".join(unread.stderr.split())


async def test_a_hold_of_a_cluster_out_of_reach_says_how_it_is_set(keyboard: Path, warden: Nodewarden, cluster: str) -> None:
    """S44: the way out is named."""
    refused = await nodewarden("hold", "node-1", "-c", cluster)
    assert refused.exit_code == 3
    assert f"kubectl annotate node node-1 {HOLD_ANNOTATION}=" in " ".join(refused.stderr.split())
