"""`nodewarden doctor`: a sound cluster has no problems, and each thing that is broken is found, with what to do about it."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.api.workflowservice.v1 import DescribeTaskQueueResponse, UpdateNamespaceRequest
from temporalio.service import RPCError, RPCStatusCode

from activities.cluster.api.connection import ClusterConnection
from policy.checks.fence_policies import DEFAULT_SOURCE
from policy.fence.device_check import DeviceReport, DeviceRow, Reachability, report_of
from simulator.api.server import ApiServer
from simulator.client import ApiAddress, ApiClient
from starter import doctor
from starter.client import Nodewarden
from starter.deploy.rights import leases, rbac
from starter.doctor import (
    OURS,
    Finding,
    Level,
    credentials,
    definition_name,
    definitions,
    examine,
    health_checks,
    protection,
    rights,
)
from starter.handles.scanners import DeviceCheckHandle
from tests.cluster.builders import CHECKS, DEFINITIONS, NODES, check, definition, node
from tests.cluster.fencing_requests import NAMESPACE as MEDIK8S
from tests.cluster.fencing_requests import leader
from tests.documents import ROOT, documents, path_of
from tests.node_actions import PEOPLE
from tests.starter.builders import nodewarden
from tests.starter.conftest import SETTINGS
from tests.starter.standins import SICK_BMC
from workers.configuration.settings import Settings, load

TOKENS = {"administrator": "admin", "worker": "system:serviceaccount:nodewarden:nodewarden", "nobody": "nobody"}
CRDS = [f"deploy/crds/{path.name}" for path in sorted((ROOT / "deploy/crds").glob("*.yaml"))]
TEMPLATES = "/apis/nodewarden.io/v1alpha1/namespaces/nodewarden/fencingtemplates"
SECRETS = "/api/v1/namespaces/nodewarden/secrets"
DEVICE = {
    "driver": "ipmi",
    "nodeParameters": {f"node-{number}": {"ip": f"10.0.0.{number}"} for number in (1, 2)},
    "secretRef": {"name": "bmc"},
}
BMC_TEMPLATE = {
    "apiVersion": "nodewarden.io/v1alpha1",
    "kind": "FencingTemplate",
    "metadata": {"name": "bmc", "namespace": "nodewarden"},
    "spec": {"template": {"spec": {"power": [DEVICE]}}},
}
NAMED = {"apiVersion": "nodewarden.io/v1alpha1", "kind": "FencingTemplate", "namespace": "nodewarden", "name": "bmc"}
BMC = {"metadata": {"name": "bmc"}, "data": {key: base64.b64encode(b"x").decode() for key in ("username", "password")}}


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    """Two nodes with a BMC each, a health check over them, and the shipped rights."""
    async with ApiServer(tokens=TOKENS) as server:
        async with ApiClient(ApiAddress(url=server.url, token="administrator"), user_agent="administrator") as person:
            for document in (definition(), *documents(*CRDS), *leases(), *rbac()):
                await person.create(path_of(document), document)
            await person.create(TEMPLATES, BMC_TEMPLATE)
            await person.create(SECRETS, BMC)
            for name in ("node-1", "node-2"):
                await person.create(NODES, node(name))
            await person.create(CHECKS, check(remediationTemplate=NAMED))
        yield server


@pytest.fixture
async def worker(api: ApiServer) -> AsyncIterator[ClusterConnection]:
    async with ClusterConnection.to(api.url, token="worker") as connection:
        yield connection


def levels(found: list[Finding]) -> list[Level]:
    return [each.level for each in found]


def only(found: list[Finding], level: Level, *said: str) -> None:
    """One finding of that level, which says all this, and what to do about it."""
    (bad,) = [each for each in found if each.level is level]
    assert all(each in bad.what for each in said), bad
    assert bad.do


async def test_a_sound_cluster_has_no_problem_by_the_shipped_rights(worker: ClusterConnection) -> None:
    found = [
        *await doctor.reached(worker),
        *await doctor.clocks(worker),
        *await definitions(worker, fix=False),
        *await health_checks(Settings(), worker, None),
        *await credentials(worker, None, DEFAULT_SOURCE),
        *await doctor.operators(worker, takeover=False),
    ]
    assert levels(found) == [Level.OK] * 6, found
    granted = await rights(worker)
    assert levels(granted) == [Level.OK], granted


async def test_a_right_that_is_missing_is_named_with_what_needs_it(api: ApiServer, person: ApiClient) -> None:
    """By the one table of rights, each asked of the API server itself."""
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    role = await person.get(f"{roles}/nodewarden")
    role["rules"] = [
        rule for rule in role["rules"] if "pods/eviction" not in rule["resources"] and "policy" not in rule["apiGroups"]
    ]
    await person.put(f"{roles}/nodewarden", role)
    async with ClusterConnection.to(api.url, token="worker") as connection:
        found = await rights(connection)
    only(found, Level.PROBLEM, "may not list poddisruptionbudgets.policy: always needed")
    assert any("create pods/eviction: needed by drain" in each.what for each in found if each.level is Level.WARNING)


def test_every_definition_that_is_shipped_is_looked_for() -> None:
    assert {f"deploy/crds/{definition_name(each)}.yaml" for each in OURS} == set(CRDS)


async def test_missing_definitions_of_ours_are_named_and_made_when_asked(person: ApiClient, worker: ClusterConnection) -> None:
    await person.delete(f"{DEFINITIONS}/reboottemplates.nodewarden.io")
    only(await definitions(worker, fix=False), Level.PROBLEM, "reboottemplates.nodewarden.io is not there")
    async with ClusterConnection.to(worker.url, token="administrator") as administrator:
        (made,) = await definitions(administrator, fix=True)
    assert (made.level, "made reboottemplates.nodewarden.io" in made.what) == (Level.OK, True)


async def test_a_kind_that_is_served_in_no_version_of_ours_is_a_problem(person: ApiClient, worker: ClusterConnection) -> None:
    await person.delete(f"{DEFINITIONS}/nodehealthchecks.remediation.medik8s.io")
    only(await definitions(worker, fix=False), Level.WARNING, "no kind of health check is served")
    future = definition()
    future["spec"]["versions"][0]["name"] = "v9"
    await person.create(DEFINITIONS, future)
    only(await definitions(worker, fix=False), Level.PROBLEM, "nodehealthchecks.remediation.medik8s.io is served as v9")


async def checked(worker: ClusterConnection) -> list[Finding]:
    return await health_checks(Settings(), worker, None)


async def secrets(worker: ClusterConnection) -> list[Finding]:
    return await credentials(worker, None, DEFAULT_SOURCE)


async def test_nodes_that_lack_a_configuration_for_the_same_reason_are_one_finding(
    person: ApiClient, worker: ClusterConnection
) -> None:
    await person.delete(f"{CHECKS}/workers")
    await person.delete(f"{TEMPLATES}/bmc")
    only(await secrets(worker), Level.WARNING, "no fence configuration can be used for node-1, node-2: ")


async def operators(worker: ClusterConnection) -> list[Finding]:
    return await doctor.operators(worker, takeover=False)


async def no_template(person: ApiClient) -> None:
    await person.delete(f"{TEMPLATES}/bmc")


async def no_such_kind(person: ApiClient) -> None:
    named = {"apiVersion": "acme.io/v1", "kind": "AcmeTemplate", "namespace": "nodewarden", "name": "x"}
    await person.patch(f"{CHECKS}/workers", {"spec": {"remediationTemplate": named}})


async def no_node_selected(person: ApiClient) -> None:
    await person.patch(f"{CHECKS}/workers", {"spec": {"selector": {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}}})


async def no_check(person: ApiClient) -> None:
    await person.delete(f"{CHECKS}/workers")


async def no_secret(person: ApiClient) -> None:
    await person.delete(f"{SECRETS}/bmc")


async def no_password(person: ApiClient) -> None:
    await person.patch(f"{SECRETS}/bmc", {"data": {"password": None}})


async def no_right_to_secrets(person: ApiClient) -> None:
    await person.delete("/apis/rbac.authorization.k8s.io/v1/namespaces/nodewarden/rolebindings/nodewarden-credentials")


async def an_operator(person: ApiClient) -> None:
    await person.create("/api/v1/namespaces", {"metadata": {"name": MEDIK8S}})
    await leader(person, "e1f13584.medik8s.io")


Break = Callable[[ApiClient], Awaitable[None]]
Look = Callable[[ClusterConnection], Awaitable[list[Finding]]]


@pytest.mark.parametrize(
    ("broken", "look", "level", "said"),
    [
        (no_template, checked, Level.PROBLEM, "RemediationTemplateNotFound: NodeHealthCheck/workers: it names "),
        (no_such_kind, checked, Level.PROBLEM, "and no such kind is served"),
        (no_node_selected, checked, Level.WARNING, "NodeHealthCheck/workers"),
        (no_check, checked, Level.WARNING, "there is no health check"),
        (no_secret, secrets, Level.PROBLEM, "Secret/nodewarden/bmc does not exist"),
        (no_password, secrets, Level.PROBLEM, "Secret/nodewarden/bmc lacks password"),
        (no_right_to_secrets, secrets, Level.WARNING, "Secret/nodewarden/bmc: this account may not read it"),
        (an_operator, operators, Level.WARNING, "leader Lease medik8s/e1f13584.medik8s.io is renewed by manager-0"),
    ],
)
async def test_what_would_stop_a_fencing_is_found_before_a_node_dies(  # noqa: PLR0917 - pytest passes them by name
    person: ApiClient, worker: ClusterConnection, broken: Break, look: Look, level: Level, said: str
) -> None:
    await broken(person)
    only(await look(worker), level, said)


async def test_a_clock_that_is_wrong_is_told() -> None:
    async with (
        ApiServer(tokens=TOKENS, clock_error=timedelta(minutes=-5)) as late,
        ClusterConnection.to(late.url, token="administrator") as connection,
    ):
        only(await doctor.clocks(connection), Level.PROBLEM, "behind this worker's")


@pytest.mark.parametrize(
    ("flag", "expected", "level"),
    [
        (None, True, Level.WARNING),
        ("--disable-force-detach-on-timeout", False, Level.OK),
        ("--disable-force-detach-on-timeout=true", True, Level.PROBLEM),
        ("--disable-force-detach-on-timeout=false", False, Level.PROBLEM),
        ("--v=2", True, Level.WARNING),
    ],
)
async def test_the_force_detach_flag_is_compared_with_the_setting(
    person: ApiClient, worker: ClusterConnection, flag: str | None, expected: bool, level: Level
) -> None:
    if flag is not None:
        labels = {"component": "kube-controller-manager"}
        container = {"name": "c", "image": "i", "command": ["kube-controller-manager", flag]}
        pod = {"metadata": {"name": "kcm", "labels": labels}, "spec": {"containers": [container]}}
        await person.create("/api/v1/namespaces/kube-system/pods", pod)
    (found,) = await doctor.force_detach(worker, cluster="prod", expected=expected)
    assert found.level is level, found


async def test_the_side_of_temporal_is_looked_at(warden: Nodewarden, cluster: str) -> None:
    """S44: also who has paused it."""
    expected = [Level.OK, Level.OK, Level.PROBLEM]
    async with asyncio.timeout(20):  # a worker that has just been started has not asked yet
        while levels(await doctor.workers(warden, cluster, ["default"])) != expected:
            await asyncio.sleep(0.2)
    only(await doctor.scanner(warden, cluster), Level.PROBLEM, f"no open scanner of {cluster}")
    only(await doctor.devices(warden, cluster), Level.WARNING, "no workflow checks the fence devices regularly")
    await warden.start_scanner(cluster)
    assert levels(await doctor.scanner(warden, cluster)) == [Level.OK]
    only(await doctor.devices(warden, cluster), Level.WARNING, "they have not been checked")
    await warden.check_devices(cluster)
    only(await doctor.devices(warden, cluster), Level.PROBLEM, "node-2: ipmi://10.0.0.2:623: no answer")
    assert {each.node for each in (await warden.status(cluster)).devices} == {"node-2"}, "status says it, too"
    await warden.scanner(cluster).pause(who="amy", reason="drill")
    only(await doctor.scanner(warden, cluster), Level.WARNING, "paused by amy", "drill")
    assert levels(await doctor.search_attributes(warden, fix=False)) == [Level.OK]


@pytest.mark.parametrize(
    ("age", "level", "said"),
    [(60, Level.OK, "it last asked for work 1m00s ago"), (90, Level.PROBLEM, "for 1m30s"), (None, Level.PROBLEM, "lately")],
)
async def test_a_worker_that_does_not_ask_for_work_any_more_serves_nothing(
    warden: Nodewarden, monkeypatch: pytest.MonkeyPatch, age: int | None, level: Level, said: str
) -> None:
    """Temporal lists one that was killed for five minutes."""

    async def described(*_: object, **__: object) -> DescribeTaskQueueResponse:
        found = DescribeTaskQueueResponse()
        if age is not None:
            found.pollers.add().last_access_time.FromDatetime(datetime.now(UTC) - timedelta(seconds=age))
        return found

    monkeypatch.setattr(type(warden.client.workflow_service), "describe_task_queue", described, raising=False)
    found = await doctor.workers(warden, "prod", ["default"])
    assert levels(found) == [level] * 3
    assert ["--site default" in each.do for each in found] == [False, False, level is Level.PROBLEM]
    assert all(said in each.what for each in found), found


async def test_a_check_that_fails_says_where_to_report_it(warden: Nodewarden, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the page that it names says with what."""

    async def unforeseen(*_: object) -> list[Finding]:
        raise KeyError("x")

    monkeypatch.setattr(doctor, "protection", unforeseen)
    monkeypatch.setattr(doctor, "_temporal", nothing_found)
    monkeypatch.setattr(doctor, "_kubernetes", nothing_found)
    (failed,) = (await examine(Settings(), "prod")).findings
    assert failed.what == "this check failed: 'x'"
    (page,) = re.findall(r"docs/\S+\.md", failed.do)
    assert (ROOT / page).read_text(encoding="utf-8").rpartition("\n## ")[2].startswith("Before you report it\n\nOpen an issue")


async def nothing_found(*_: object, **__: object) -> list[Finding]:
    return []


async def test_a_namespace_that_forgets_early_is_named_with_what_is_lost(warden: Nodewarden) -> None:
    """`history` and `compare` answer from what Temporal remembers."""
    service, namespace = warden.client.workflow_service, warden.client.namespace
    found = {}
    for days in (1, 89, 90):
        config = NamespaceConfig()
        config.workflow_execution_retention_ttl.FromTimedelta(timedelta(days=days))
        await service.update_namespace(UpdateNamespaceRequest(namespace=namespace, config=config))
        (found[days],) = await doctor.memory(warden)
    assert found[1].what.startswith("what has ended is remembered for 1 day: `history` and `compare --since` see nothing older")
    assert [found[days].level for days in found] == [Level.WARNING, Level.WARNING, Level.OK]
    assert "--retention 90d" in found[89].do


async def test_a_namespace_that_may_not_be_described_is_no_failure(warden: Nodewarden, monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporal Cloud with a worker's key."""

    async def refused(*_: object) -> None:
        raise RPCError("no", RPCStatusCode.PERMISSION_DENIED, b"")

    monkeypatch.setattr(type(warden.client.workflow_service), "describe_namespace", refused, raising=False)
    (found,) = await doctor.memory(warden)
    assert found.level is Level.WARNING
    assert "can't be read" in found.what


async def test_a_device_that_an_open_episode_could_not_use_is_not_called_well(
    warden: Nodewarden, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S44: it answered when it was read last, or was left to the episode."""
    now = datetime.now(UTC)
    row = DeviceRow(node="sick-1", endpoint=SICK_BMC, answer=Reachability.ANSWERS)
    report = report_of(cluster, [row], began=now, ended=now, nodes=1)

    async def last_report(_: DeviceCheckHandle) -> DeviceReport:
        return report

    monkeypatch.setattr(DeviceCheckHandle, "last_report", last_report)
    assert levels(await doctor.devices(warden, cluster)) == [Level.OK]
    await warden.fence(cluster, "sick-1", reason="smoke", requester="amy")
    async with asyncio.timeout(20):  # until Temporal lists it
        while not (known := await warden.status(cluster)).episodes:
            await asyncio.sleep(0.2)
    assert [each.problem for each in known.devices] == [f"its open fencing: {SICK_BMC}: the BMC refuses our password"]
    only(await doctor.devices(warden, cluster), Level.PROBLEM, f"sick-1: its open fencing: {SICK_BMC}: the BMC refuses")


async def test_a_check_that_fails_hides_no_other(
    keyboard: Path, api: ApiServer, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_args: object, **_kwargs: object) -> list[Finding]:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(doctor, "clocks", broken)
    (keyboard / "token").write_text("worker", encoding="utf-8")
    known = {"server": api.url, "token_file": str(keyboard / "token")}
    (keyboard / SETTINGS).write_text(json.dumps({"clusters": {cluster: known}}), encoding="utf-8")
    found = {each.check: each for each in reversed((await examine(load(), cluster)).findings)}
    assert found["clocks"].what == "this check failed: division by zero"
    assert found["health checks"].level is found["Temporal"].level is Level.OK


async def test_who_is_not_reached_is_one_problem_and_everything_else_is_looked_at(
    keyboard: Path, cluster: str, client: object
) -> None:
    known = f"clusters: {{{cluster}: {{server: 'http://127.0.0.1:1'}}}}"
    (keyboard / SETTINGS).write_text(known, encoding="utf-8")
    result = await nodewarden("doctor", "-c", cluster, "-o", "json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)["findings"]
    assert [(each["check"], each["level"]) for each in found if each["check"] in {"Temporal", "Kubernetes"}] == [
        ("Temporal", "ok"),
        ("Kubernetes", "problem"),
    ]
    told = (await nodewarden("doctor", "-c", cluster)).stdout
    assert f"> `nodewarden scan start -c {cluster}`" in " ".join(told.split())
    assert told.count("scan start") == 1, "the way out is said once"


async def test_what_the_settings_leave_open_is_said_by_name() -> None:
    """Of a default installation, and of one that has closed all of it."""
    closed = {
        "worker": {"credential_hosts": ["10.0.0.0/8"], "insecure_devices": "refuse"},
        "temporal": {"payload_keys_secret": "nodewarden/nodewarden-payload-keys"},
    }
    opened = await protection(Settings(temporal={"insecure": True}))  # type: ignore[arg-type]
    assert opened[0].do == "set worker.credential_hosts: [NETWORK] (docs/security.md)"
    assert [each.what.partition(":")[0] for each in opened] == [
        "worker.credential_hosts",
        "worker.insecure_devices",
        "temporal.payload_keys_secret",
        "temporal.insecure",
    ]
    assert levels(await protection(Settings(**closed))) == [Level.OK]  # type: ignore[arg-type]
    every = Settings(**closed, machine_namespaces=["*"])  # type: ignore[arg-type]
    only(await protection(every), Level.WARNING, "machine_namespaces: ")
    closed["worker"]["commands"] = "any"
    only(await protection(Settings(**closed)), Level.WARNING, "worker.commands: ")  # type: ignore[arg-type]


async def test_a_cluster_that_does_not_check_who_speaks_is_told_of_and_how_it_comes_to(api: ApiServer) -> None:
    """S44: with the shipped settings no word of a person is heard there."""
    async with ClusterConnection.to(api.url, token="administrator") as connection:
        only(await doctor.people(connection, required=True), Level.PROBLEM, "nodewarden deploy people", "is accepted")
        only(await doctor.people(connection, required=False), Level.WARNING, "names are not verified")
        async with ApiClient(ApiAddress(url=api.url, token="administrator"), user_agent="administrator") as person:
            for document in PEOPLE:
                await person.create(path_of(document), document)
    async with ClusterConnection.to(api.url, token="worker") as worker:  # by the shipped rights
        assert levels(await doctor.people(worker, required=True)) == [Level.OK]
