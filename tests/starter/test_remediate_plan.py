"""`nodewarden remediate plan` of a live cluster: what there is of the node is looked up, whoever checks its health."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from simulator.api.server import ApiServer
from simulator.client import ApiAddress, ApiClient
from starter.commands import episodes
from tests.cluster.builders import CHECKS, DEFINITIONS, check, definition, with_template_of
from tests.cluster.machines import OPENSHIFT, machine_of
from tests.starter.builders import nodewarden
from tests.starter.conftest import SETTINGS

OURS = {"apiVersion": "nodewarden.io/v1alpha1", "name": "a", "namespace": "default"}


@pytest.fixture
async def person(keyboard: Path) -> AsyncIterator[ApiClient]:
    """Two OpenShift Machines with their Nodes, one more without, and a NodeHealthCheck that knows no Machines."""
    async with ApiServer() as server, ApiClient(ApiAddress(url=server.url, token="abc"), user_agent="a-person") as client:
        token = keyboard / "token"
        token.write_text("abc", encoding="utf-8")
        settings = f"clusters: {{sim: {{server: '{server.url}', token_file: {token}}}}}\nremediation: {{max_retry: 4}}\n"
        (keyboard / SETTINGS).write_text(settings, encoding="utf-8")
        await OPENSHIFT.install(client)
        await OPENSHIFT.fleet(client, 2)
        await OPENSHIFT.add_machine(client, "never-came")
        await client.create(DEFINITIONS, definition())
        ladder: list[dict[str, Any]] = [
            {"order": order, "timeout": "5m", "remediationTemplate": OURS | {"kind": kind}}
            for order, kind in ((1, "RebootTemplate"), (2, "MachineDeletionTemplate"))
        ]
        for each in ladder:
            await with_template_of(client, each["remediationTemplate"])
        climbing = check(escalatingRemediations=ladder)
        del climbing["spec"]["remediationTemplate"]
        await client.create(CHECKS, climbing)
        yield client


async def planned(node: str, *words: str) -> tuple[int, str]:
    result = await nodewarden("remediate", "plan", node, *words)
    return result.exit_code, " ".join(result.stdout.split()) + result.stderr


async def test_the_machine_of_a_node_is_looked_up(person: ApiClient) -> None:
    """A deletion that nobody would make good is not possible, and the plan says so before anybody asks for it."""
    code, page = await planned("node-0")
    orphan = "not possible: no controller owns the Machine: nothing would replace it"
    assert code == 0
    assert "step 1 of 2 RebootTemplate/default/a (reboot), at most 5m: is next" in page
    assert f"step 2 of 2 MachineDeletionTemplate/default/a (delete-machine), at most 5m: {orphan}" in page
    assert "retries maxRetry 4, retryPeriod 0s" in page
    owner = {"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet", "name": "set", "uid": "u", "controller": True}
    for machine in (machine_of("node-0"), "never-came"):
        await person.patch(OPENSHIFT.path("machines", machine), {"metadata": {"ownerReferences": [owner]}})
    code, page = await planned("node-0", "--with", "delete-machine")
    assert (code, "step delete-machine, at most 30m machine" in page, "owned by MachineSet/set" in page) == (0, True, True)
    code, page = await planned(f"machine/{OPENSHIFT.namespace}/never-came")
    assert code == 0
    assert "By hand step delete-machine, at most 30m" in page
    assert "By the scanner: never, no health check covers it" in page
    assert (await planned(f"machine/{OPENSHIFT.namespace}/never-came", "--with", "reboot"))[0] == 1
    assert (await planned("machine/default/nobody"))[0] == 4


async def test_the_steps_are_shown_before_they_are_asked_about(person: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """S44: a healthy node is not power-cycled by a slip of the keyboard."""
    monkeypatch.setattr(episodes, "on_a_terminal", lambda: True)
    result = await nodewarden("remediate", "node-0", "--reason", "smoke", text="n\n")
    shown, _, asked = " ".join(result.stderr.split()).partition("Carry out these steps on node-0")
    assert "step 1 of 2 RebootTemplate/default/a (reboot), at most 5m: is next" in shown
    assert asked.endswith("node-0 is not remediated: you did not say yes")
    assert result.exit_code == 1
    assert (await nodewarden("remediate", "node-0", "-y")).exit_code == 2, "no reason"
