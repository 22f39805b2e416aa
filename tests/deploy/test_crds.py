"""Templates that only stand for a step: an API server takes them as the page shows them, and a ladder may name them."""

from __future__ import annotations

import pytest

from policy.dialects import parse
from policy.remediation.ladder import Body, ladder_of
from policy.remediation.strategies import Strategy
from simulator.api.server import ApiServer
from simulator.client import ApiAddress, ApiClient, ApiError
from tests.deploy.manifests import path_of
from tests.documents import documents
from tests.policy.builders import check_object


@pytest.mark.parametrize(
    ("kind", "plural", "strategy"),
    [
        ("RebootTemplate", "reboottemplates", Strategy.REBOOT),
        ("MachineDeletionTemplate", "machinedeletiontemplates", Strategy.DELETE_MACHINE),
    ],
)
async def test_a_template_without_settings_is_taken_and_is_a_step(kind: str, plural: str, strategy: Strategy) -> None:
    (definition,) = documents(f"deploy/crds/{plural}.nodewarden.io.yaml")
    path = f"/apis/nodewarden.io/v1alpha1/namespaces/default/{plural}"
    async with ApiServer() as server, ApiClient(ApiAddress(url=server.url, token="abc"), user_agent="a-person") as person:
        await person.create(path_of(definition), definition)
        for name, template in (("empty", {"spec": {}}), ("emptier", {})):
            created = await person.create(path, {"metadata": {"name": name}, "spec": {"template": template}})
            assert (created["kind"], created["spec"]) == (kind, {"template": template})
        with pytest.raises(ApiError, match="template"):
            await person.create(path, {"metadata": {"name": "none"}, "spec": {}})
    reference = {"apiVersion": "nodewarden.io/v1alpha1", "kind": kind, "namespace": "default", "name": "empty"}
    check = parse(check_object(remediationTemplate=reference))
    (step,) = ladder_of(check, Body(has_node=True))
    assert step.strategy is strategy
