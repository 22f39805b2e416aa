"""A password goes only where the operator of nodewarden wants it to go, whoever writes templates and whatever they name (S40).

The attacker may create FencingTemplates, in a namespace of his own or even in ours, and reads no Secret. His "BMC" is a listener.
Workers run under the shipped rights.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from policy.fence.credential_hosts import HOSTS_ANNOTATION
from policy.fence.device_check import Reachability
from simulator.resources import NAMESPACES, SECRETS
from tests.power.raw_server import Listener, listening
from tests.system.fixtures import Standing
from tests.system.harness import CHECK, CHECKS, TEMPLATES, System
from tests.system.test_api_restarts import under_shipped_rights

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

TENANT, HIS_HOST = "tenant", "127.0.0.2"
LONGEST = "2s"


@pytest.fixture
async def his_bmc() -> AsyncIterator[Listener]:
    async with listening(HIS_HOST) as listener:
        yield listener


@pytest.fixture(scope="module")
async def system(standing: Standing) -> AsyncIterator[System]:
    async with standing(nodes=2, demo_workloads=False) as running:
        await under_shipped_rights(running)
        await running.client.create(NAMESPACES.path(), {"metadata": {"name": TENANT}})
        await running.start_worker()
        await running.apply_policy(plan={"actDeadline": LONGEST})

        async def answers() -> bool:
            return (await running.warden.check_devices(running.cluster_name)).answering == 2

        await running.until(answers, "the worker reads the devices", seconds=60, tolerate=True)
        yield running


def his_template(system: System, his_bmc: Listener, *, namespace: str, secret: dict[str, Any]) -> dict[str, Any]:
    """All nodes are said to be behind his address, over plain HTTP."""
    device = {
        "driver": "redfish",
        "parameters": {"scheme": "http", "ip": HIS_HOST, "ipport": str(his_bmc.port)},
        "nodeParameters": {name: {"system": name} for name in system.cluster.nodes},
        "secretRef": secret,
    }
    template = system.fencing_template({"power": [device], "actDeadline": LONGEST})
    return template | {"metadata": {"name": "mine", "namespace": namespace}}


async def test_a_template_in_an_unnamed_namespace_is_not_followed_and_stops_no_other(system: System, his_bmc: Listener) -> None:
    """Neither while a health check names ours, nor where ours is the only one that counts."""
    namespace, name = system.cluster.bmc_secret
    for secret in ({"name": name, "namespace": namespace}, {"name": name}):
        path = TEMPLATES.path(namespace=TENANT)
        await system.client.create(path, his_template(system, his_bmc, namespace=TENANT, secret=secret))
        named = await system.warden.check_devices(system.cluster_name)
        await system.client.delete(CHECKS.path(CHECK))
        only = await system.warden.check_devices(system.cluster_name)
        await system.client.create(CHECKS.path(), system.health_check())
        await system.client.delete(TEMPLATES.path("mine", namespace=TENANT))
        for report in (named, only):
            assert (report.devices, report.answering, report.problems) == (2, 2, 0), report.rows
    assert his_bmc.heard == []


async def test_a_secret_that_says_for_which_hosts_it_is_goes_to_no_other(system: System, his_bmc: Listener) -> None:
    """Also where the template stands in a namespace that counts."""
    namespace, name = system.cluster.bmc_secret
    await system.client.patch(
        SECRETS.path(name, namespace=namespace), {"metadata": {"annotations": {HOSTS_ANNOTATION: "127.0.0.1"}}}
    )
    well = await system.warden.check_devices(system.cluster_name)
    assert (well.answering, well.problems) == (2, 0), well.rows
    template = his_template(system, his_bmc, namespace=namespace, secret={"name": name})
    await system.client.create(TEMPLATES.path(namespace=namespace), template)
    reference = system.health_check()["spec"]["remediationTemplate"] | {"namespace": namespace, "name": "mine"}
    await system.client.patch(CHECKS.path(CHECK), {"spec": {"remediationTemplate": reference}})
    report = await system.warden.check_devices(system.cluster_name)
    words = f"Secret/{namespace}/{name}: "
    for row in report.rows:
        assert row.answer is not Reachability.ANSWERS
        assert (words in row.problem, f"not for {HIS_HOST}" in row.problem) == (True, True), row.problem
    assert his_bmc.heard == []


@pytest.mark.parametrize(
    ("template_in", "secret_in", "words"),
    [
        (TENANT, "", "templates count in "),
        (TENANT, "nodewarden", "templates count in "),
        ("nodewarden", TENANT, "expected the template's own namespace, nodewarden, or nothing"),
    ],
    ids=["a stranger's template", "that names our Secret", "our template that names a stranger's Secret"],
)
async def test_a_check_has_no_password_sent_by_a_template_or_to_a_secret_of_another_namespace(
    system: System, his_bmc: Listener, template_in: str, secret_in: str, words: str
) -> None:
    """Also where a health check names it: then nothing is read, and the reason is said."""
    secret = {"name": system.cluster.bmc_secret[1], **({"namespace": secret_in} if secret_in else {})}
    path = TEMPLATES.path(namespace=template_in)
    template = his_template(system, his_bmc, namespace=template_in, secret=secret)
    await system.client.create(path, template | {"metadata": {"name": "named", "namespace": template_in}})
    reference = system.health_check()["spec"]["remediationTemplate"] | {"namespace": template_in, "name": "named"}
    await system.client.patch(CHECKS.path(CHECK), {"spec": {"remediationTemplate": reference}})
    report = await system.warden.check_devices(system.cluster_name)
    await system.client.delete(TEMPLATES.path("named", namespace=template_in))
    assert [words in row.problem for row in report.rows] == [True, True], report.rows
    assert his_bmc.heard == []
