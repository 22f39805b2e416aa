"""`nodewarden fence plan`, `fence check` and `remediate plan`: what people and programs get before anything is done.

First `fence plan NODE` from files, without any cluster or server.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from temporalio.client import WorkflowExecutionStatus
from temporalio.worker import Worker

from policy.episode.messages import device_check_id
from policy.fence.device_check import DeviceMemory, DeviceReport, DeviceRow, Reachability, report_of
from policy.fence.power import PowerState
from policy.values.object_refs import FENCE_NAMESPACE
from simulator.api.server import ApiServer
from simulator.client import ApiAddress, ApiClient
from starter.client import Nodewarden
from starter.commands import episodes
from starter.errors import RequestError, SilentError
from starter.handles import scanners
from starter.output.status_table import devices_table
from tests.cluster.builders import CHECKS, DEFINITIONS, check, definition, with_template_of
from tests.cluster.machines import OPENSHIFT, machine_of
from tests.starter.builders import NOW, ago, drawn, nodewarden
from tests.starter.conftest import SETTINGS
from tests.starter.standins import DeviceCheckStandIn
from tests.workers.server import SILENT
from workflows.kit.messages import CheckRequest, DeviceCheckInput

EC2 = "aws:///us-east-1a/i-0123456789abcdef0"
SEEDS = Path(__file__).parents[1] / "vectors" / "seeds"


async def planned(node: str, *objects: dict[str, Any] | str) -> tuple[dict[str, Any], int]:
    """The JSON, and the exit code."""
    text = "\n---\n".join(each if isinstance(each, str) else yaml.safe_dump(each) for each in objects)
    result = await nodewarden("fence", "plan", node, "-f", "-", "-o", "json", text=text)
    found: dict[str, Any] = json.loads(result.stdout)
    return found, result.exit_code


def a_node(name: str = "n1", provider_id: str = EC2, **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "uid": f"uid-of-{name}", "labels": labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"providerID": provider_id} if provider_id else {}}


def a_config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": FENCE_NAMESPACE}, "data": data}


async def test_the_default_of_a_node_in_a_cloud() -> None:
    """Every key is always there: it is an interface."""
    assert await planned("n1", a_node()) == (
        {
            "node": "n1",
            "config": "default",
            "source": "default",
            "steps": {
                "isolation": [method("mark-unschedulable", "cluster", "mark-unschedulable")],
                "power-management": [
                    method("restart-instance", "ec2", "restart", region="us-east-1", instance="i-0123456789abcdef0")
                ],
                "recovery": [method("mark-schedulable", "cluster", "mark-schedulable")],
            },
            "warnings": [],
            "errors": [],
            "frees": "automatic",
            "order": [
                act("isolation", "cordon", "mark-unschedulable", "mark-unschedulable"),
                act("power-management", WAIT),
                act("power-management", "power off by ec2, and read it until off is proven", "off", "restart-instance"),
                act("power-management", "wait until the API server says that the node is not Ready"),
                act("power-management", FREED, "out-of-service-taint"),
                act("power-management", "power on by ec2", "on", "restart-instance"),
                act("power-management", "wait until the node is Ready with a new boot id, at most 10m"),
                act("recovery", "uncordon", "mark-schedulable", "mark-schedulable"),
            ],
        },
        0,
    )


WAIT = "wait until 5m after the node stopped being Ready; a person's fencing of a Ready node does not wait"
FREED = (
    "delete the pods and set the out-of-service taint, for which Kubernetes detaches volumes; in a cluster that does not act on "
    "it, delete the volume attachments instead"
)


def act(step: str, does: str, action: str | None = None, method: str = "") -> dict[str, Any]:
    return {"step": step, "does": does, "action": action, "method": method}


def method(name: str, driver: str, action: str, **parameters: str) -> dict[str, Any]:
    level = 0 if driver == "cluster" else 1
    return {"method": name, "template": "", "driver": driver, "action": action, "parameters": parameters, "level": level}


async def test_the_proposals_own_file_with_the_demos_templates() -> None:
    bare_metal = (SEEDS / "002-bare-metal.yaml").read_text(encoding="utf-8").replace("[NODE_NAME]", "n1")
    bare_metal = bare_metal.replace("  metadata:\n", f"  metadata:\n   namespace: {FENCE_NAMESPACE}\n")
    pdu = {"template.properties": "agent_name=fence_eaton_snmp\nipaddr=10.0.0.4\nusername=u\npassword=pa=ss="}
    switch = {"template.properties": "agent_name=fence_brocade\nipaddr=10.0.0.2"}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "secret-fence-method-fc-off-n1", "namespace": FENCE_NAMESPACE},
        "data": {"password": "eA=="},
    }
    found, code = await planned(
        "n1",
        bare_metal,
        a_config_map("fence-method-template-eaton-pdu", **pdu),
        a_config_map("fence-method-template-fc-switch-brocade", **switch),
        secret,
        a_node(provider_id=""),
    )
    assert (code, found["config"], found["source"], found["errors"]) == (0, "fence-config-n1", "node", [])
    off, on = found["steps"]["power-management"]
    assert (off["method"], off["driver"], off["action"], on["action"]) == ("eaton-off", "fence_eaton_snmp", "off", "on")
    assert off["parameters"] == {
        "ipaddr": "10.0.0.4",
        "plug": "1",
        "username": "configmap:nodewarden/fence-method-template-eaton-pdu#template.properties.username",
        "password": "configmap:nodewarden/fence-method-template-eaton-pdu#template.properties.password",
    }
    (cut,) = found["steps"]["isolation"]
    assert cut["parameters"]["password"] == "secret:nodewarden/secret-fence-method-fc-off-n1#password"
    assert "pa=ss=" not in json.dumps(found)


async def test_our_own_kinds_are_named_as_the_source() -> None:
    power = {"driver": "ec2"}
    head = {"apiVersion": "nodewarden.io/v1alpha1"}
    template = head | {
        "kind": "FencingTemplate",
        "metadata": {"name": "cloud", "namespace": "nodewarden"},
        "spec": {"template": {"spec": {"power": power}}},
    }
    config = head | {"kind": "FenceConfig", "metadata": {"name": "mine"}, "spec": {"nodeName": "n1", "power": power}}
    found, code = await planned("n1", a_node(), template)
    assert (code, found["config"], found["source"]) == (0, "cloud", "FencingTemplate")
    assert [each["method"] for each in found["steps"]["isolation"]] == ["mark-unschedulable"]
    found, code = await planned("n1", a_node(), template, config)
    assert (code, found["config"], found["source"]) == (0, "mine", "FenceConfig")
    assert found["steps"]["power-management"][0]["action"] == "reboot"


RESTART = {"config.properties": "power_management=restart-instance"}
BAD = {"config.properties": "isolation=cordon\npower_management=nonsense"}
ELSEWHERE = a_config_map("fence-config-n1", **RESTART)
ELSEWHERE["metadata"]["namespace"] = "kube-system"
FOR_ALL = {
    "apiVersion": "nodewarden.io/v1alpha1",
    "kind": "FenceConfig",
    "metadata": {"name": "all"},
    "spec": {"power": {"driver": "ec2"}},
}
NOT_READ = "ConfigMap/kube-system/fence-config-n1: is not read: the setting fence_namespace is nodewarden"


@pytest.mark.parametrize(
    ("objects", "config", "error", "warning"),
    [
        ([a_config_map("unrelated")], "default", "", "Node/n1: there is no such Node here"),
        ([a_node(provider_id="")], "default", "Node/n1 has no providerID, so nothing says which instance it is", ""),
        ([a_config_map("fence-config-type-compute", **RESTART), a_node(type="compute")], "fence-config-type-compute", "", ""),
        ([a_config_map("fence-config-n1", **BAD), a_node()], "fence-config-n1", "nonsense is not defined", ""),
        ([a_node(), "kind: ["], "default", "standard input, line", ""),
        ([FOR_ALL, a_config_map("fence-config-n1", **RESTART), a_node()], "", "are both about it: keep one of them", ""),
        ([ELSEWHERE, a_node()], "default", "", NOT_READ),
    ],
)
async def test_what_files_lead_to(objects: list[dict[str, Any] | str], config: str, error: str, warning: str) -> None:
    """An error is the exit code, and as much of the plan as is known is shown all the same."""
    found, code = await planned("n1", *objects)
    assert (code, found["config"]) == (1 if error else 0, config)
    assert [error in each for each in found["errors"]] == [True] * bool(error), found["errors"]
    assert [warning in each for each in found["warnings"]][:1] == [True] * bool(warning), found["warnings"]


async def test_the_proposals_file_as_it_is_names_no_node() -> None:
    """Its node would silently get the default."""
    found, code = await planned("n1", (SEEDS / "002-default.yaml").read_text(encoding="utf-8"), a_node())
    assert code == 1
    assert "ConfigMap/fence-config-[NODE_NAME]: metadata.name: expected the name of a node" in found["errors"][0]


async def test_the_namespace_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODEWARDEN_FENCE_NAMESPACE", "kube-system")
    found, _ = await planned("n1", ELSEWHERE, a_node())
    assert (found["config"], found["warnings"]) == ("fence-config-n1", [])


@pytest.mark.parametrize("version", ["machine.openshift.io/v1beta1", "cluster.x-k8s.io/v1beta2", "cluster.x-k8s.io/v1beta1"])
async def test_a_check_of_machines_names_the_template_of_their_nodes(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In whichever version the files were written, and though the Machine is the only one that names the Node."""
    monkeypatch.setenv("NODEWARDEN_TEMPLATE_NAMESPACES", "machines")
    monkeypatch.setenv("NODEWARDEN_MACHINE_NAMESPACES", "machines")

    def of_machines(kind: str, name: str, **more: Any) -> dict[str, Any]:
        metadata = {"name": name, "namespace": "machines", "uid": f"uid-of-{name}", "labels": {"pool": "a"}}
        return {"apiVersion": version, "kind": kind, "metadata": metadata, **more}

    power = {"spec": {"template": {"spec": {"power": {"driver": "ec2"}}}}}
    head: dict[str, Any] = {"apiVersion": "nodewarden.io/v1alpha1", "kind": "FencingTemplate"}
    ours, other = (head | {"metadata": {"name": name, "namespace": "machines"}} | power for name in ("ours", "another"))
    named = head | {"name": "ours", "namespace": "machines"}
    sick, of = {"type": "Ready", "status": "Unknown"}, {"selector": {"matchLabels": {"pool": "a"}}}
    spec = of | {"unhealthyConditions": [sick | {"timeout": "300s"}], "remediationTemplate": named}
    if version.endswith("v1beta2"):
        checks = {"unhealthyNodeConditions": [sick | {"timeoutSeconds": 300}]}
        spec = of | {"checks": checks, "remediation": {"templateRef": named}}
    spec |= {"clusterName": "c"} if version.startswith("cluster") else {}
    check = of_machines("MachineHealthCheck", "mine", spec=spec)
    machine = of_machines("Machine", "m1", spec={"clusterName": "c"}, status={"nodeRef": {"kind": "Node", "name": "n1"}})
    found, code = await planned("n1", a_node(), machine, check, ours, other)
    assert (code, found["config"], found["errors"]) == (0, "ours", [])
    monkeypatch.delenv("NODEWARDEN_MACHINE_NAMESPACES")
    found, _ = await planned("n1", a_node(), machine, check, ours, other)
    ignored = "MachineHealthCheck/machines/mine: it is ignored: the setting machine_namespaces does not name machines"
    assert ignored in found["warnings"], "S46"
    monkeypatch.setenv("NODEWARDEN_MACHINE_NAMESPACES", "machines")
    found, code = await planned("n1", a_node(), check, ours, other)
    assert (code, ["there are several" in each for each in found["errors"]]) == (1, [True])


async def test_a_table_says_the_same_in_the_order_in_which_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal of 80 columns lines end between words."""
    monkeypatch.setenv("COLUMNS", "80")
    result = await nodewarden("fence", "plan", "n1", "-f", "-", text=yaml.safe_dump(a_node()))
    assert (result.exit_code, result.stdout.splitlines()) == (
        0,
        [
            "n1: default (default)",
            "isolation:",
            "  1. cordon [mark-unschedulable]",
            "power-management:",
            "  2. wait until 5m after the node stopped being Ready; a person's fencing of a",
            "     Ready node does not wait",
            "  3. power off by ec2, and read it until off is proven [restart-instance]",
            "     region=us-east-1",
            "     instance=i-0123456789abcdef0",
            "  4. wait until the API server says that the node is not Ready",
            "  5. delete the pods and set the out-of-service taint, for which Kubernetes",
            "     detaches volumes; in a cluster that does not act on it, delete the volume",
            "     attachments instead",
            "  6. power on by ec2 [restart-instance]",
            "  7. wait until the node is Ready with a new boot id, at most 10m",
            "recovery:",
            "  8. uncordon [mark-schedulable]",
        ],
    )


async def test_no_file_and_no_cluster_is_wrong_usage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    result = await nodewarden("fence", "plan", "n1")
    assert (result.exit_code, result.stdout) == (2, "")


@pytest.mark.parametrize(
    "words", [("fence", "node-7", "--help"), ("fence", "--wait", "node-7", "-h"), ("fence", "begin", "plan", "-h")]
)
async def test_what_is_no_command_is_a_node_to_be_fenced(words: tuple[str, ...]) -> None:
    """Also where the node is called like a command, and where options come first."""
    result = await nodewarden(*words)
    assert result.exit_code == 0
    assert "Power-cycle NODE" in result.stdout


async def test_a_live_cluster_is_read_by_name_and_nothing_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("administrator")
    monkeypatch.setenv("NODEWARDEN_CLUSTERS__LAB__TOKEN_FILE", str(tmp_path / "token"))
    async with ApiServer(tokens={"administrator": "admin"}) as server:
        async with ApiClient(ApiAddress(url=server.url, token="administrator"), user_agent="administrator") as person:
            await person.create("/api/v1/nodes", a_node())
            cordon = {"config.properties": "isolation=cordon\npower_management=restart-instance\nrecovery=uncordon"}
            await person.create("/api/v1/namespaces", {"metadata": {"name": FENCE_NAMESPACE}})
            await person.create("/api/v1/namespaces/nodewarden/configmaps", a_config_map("fence-config-n1", **cordon))
        monkeypatch.setenv("NODEWARDEN_CLUSTERS__LAB__SERVER", server.url)
        server.requests.reset()
        result = await nodewarden("fence", "plan", "n1", "-c", "lab", "-o", "json")
        missing = await nodewarden("fence", "plan", "n9", "-c", "lab", "-o", "json")
        unknown = await nodewarden("fence", "plan", "n1", "-c", "another")
        assert server.requests.total("list", "configmaps") == server.requests.total("list", "secrets") == 0
        assert not [verb for verb in ("create", "update", "patch", "delete") if server.requests.total(verb)]
    found = json.loads(result.stdout)
    assert (result.exit_code, found["config"], found["source"], found["errors"]) == (0, "fence-config-n1", "node", [])
    assert (missing.exit_code, missing.stderr) == (4, "nodewarden: n9: there is no such Node or Machine\n")
    assert unknown.exit_code == 2
    assert (await nodewarden("fence", "plan", "n1", "-c", "lab")).exit_code == 5, "nobody answers any more"


# `nodewarden fence check`: what people and programs get of the check of the fence devices.


async def test_a_silent_device_is_shown_first_with_the_age_of_its_last_success(
    keyboard: Path, warden: Nodewarden, cluster: str
) -> None:
    result = await nodewarden("fence", "check")
    head, silent, well, summary = result.stdout.splitlines()
    assert head.split("   ")[0] == "NODE"
    assert " ".join(silent.split()) == "node-2 ipmi://10.0.0.2:623 silent - 2h05m ago ipmi://10.0.0.2:623: no answer from the BMC"
    assert " ".join(well.split()) == "node-1 ipmi://10.0.0.1:623 on 120 ms 0s ago"
    assert summary == "1 of 2 devices of 2 nodes answered, 1 problem"
    assert result.exit_code == 1


async def test_without_a_worker_it_says_so(
    keyboard: Path, warden: Nodewarden, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_NAMESPACE", SILENT)
    monkeypatch.setattr(scanners, "ANSWER_WITHIN", timedelta(seconds=0.5))
    result = await nodewarden("fence", "check")
    assert result.exit_code == 5
    assert "no worker serves the cluster" in result.stderr


async def test_a_cluster_that_does_not_answer_is_another_end_than_one_that_refuses(warden: Nodewarden, cluster: str) -> None:
    with pytest.raises(SilentError, match="can't be read: no answer"):
        await warden.check_devices(cluster, "unreadable")
    with pytest.raises(RequestError, match="nodes is forbidden") as refused:
        await warden.check_devices(cluster, "forbidden")
    assert refused.value.exit_code == 1


async def test_a_caller_that_stops_waiting_gets_its_own_time_out(warden: Nodewarden, cluster: str) -> None:
    """As `ack-off` does before its question, beside a device that hangs: the SDK has an error of its own for a cancelled wait."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2):
            await warden.check_devices(cluster, "endless")


async def test_what_one_run_has_learnt_is_handed_to_the_next(warden: Nodewarden, cluster: str) -> None:
    latencies = []
    for _ in range(3):
        report = await warden.check_devices(cluster, "node-1")
        latencies += [row.latency_ms for row in report.rows]
        await warden.client.get_workflow_handle(device_check_id(cluster)).result()
    assert latencies == [120, 121, 122]


async def test_s40_what_another_queue_s_worker_has_ended_with_begins_no_check(warden: Nodewarden, cluster: str) -> None:
    """S49: places for passwords are remembered so, and a client of Temporal may end the check and begin another of its id."""
    client, theirs, memory = warden.client, f"theirs-{cluster}", DeviceMemory(answered={"runs": {"": 8}})
    async with Worker(client, task_queue=theirs, workflows=[DeviceCheckStandIn]):
        begun = DeviceCheckInput(cluster=cluster, every=None, memory=memory)
        check = await client.start_workflow(DeviceCheckStandIn.run, begun, id=device_check_id(cluster), task_queue=theirs)
        await check.execute_update(DeviceCheckStandIn.check, CheckRequest(node="node-1"))
        assert (await check.result()).memory.answered == {"runs": {"": 9}}
    (row,) = (await warden.check_devices(cluster, "node-1")).rows
    assert row.latency_ms == 120


async def test_it_is_repeated_while_the_scanner_runs(warden: Nodewarden, cluster: str) -> None:
    """Started, changed and stopped with it; a question in between is the same workflow's."""
    check = warden.client.get_workflow_handle(device_check_id(cluster))
    await warden.start_scanner(cluster, check_every=timedelta(minutes=30))
    assert await check.query("every", result_type=timedelta) == timedelta(minutes=30)
    run = (await check.describe()).run_id
    await warden.check_devices(cluster)
    await warden.start_scanner(cluster)
    assert await check.query("every", result_type=timedelta) == timedelta(hours=1)
    assert (await check.describe()).run_id == run
    await warden.stop_scanner(cluster, who="amy", reason="maintenance")
    await check.result()
    await warden.device_check(cluster).stop()  # nothing to stop is no mistake


async def test_it_may_be_switched_off(keyboard: Path, warden: Nodewarden, cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODEWARDEN_FENCE_CHECK__ENABLED", "false")
    check = warden.client.get_workflow_handle(device_check_id(cluster))
    await warden.start_scanner(cluster)
    assert (await nodewarden("scan", "start")).exit_code == 0
    await check.result()
    assert (await check.describe()).status is WorkflowExecutionStatus.COMPLETED
    await warden.stop_scanner(cluster, who="amy", reason="maintenance")


def report(*rows: DeviceRow, nodes: int = 2, most: int = 2000) -> DeviceReport:
    return report_of("prod", rows, began=ago(1), ended=NOW, nodes=nodes, most=most)


def test_every_kind_of_line_has_its_words() -> None:
    answers = DeviceRow(
        node="node-1",
        endpoint="pdu://a/1",
        answer=Reachability.ANSWERS,
        state=PowerState.OFF,
        last_success=NOW,
        warning="off although Ready",
    )
    shown = drawn(
        devices_table(
            report(
                DeviceRow(node="node-3", endpoint="pdu://a/3", problem="no worker"),
                DeviceRow(node="node-2", problem="Node/node-2 has no providerID"),
                answers,
            )
        )
    )
    lines = [" ".join(line.split()) for line in shown]
    assert lines[1:] == [
        "node-2 - not read - - Node/node-2 has no providerID",
        "node-3 pdu://a/3 not read - not known no worker",
        "node-1 pdu://a/1 off - 0s ago off although Ready",
        "1 of 2 devices of 2 nodes answered, 2 problems",
    ]


def test_what_is_left_out_is_counted_and_an_empty_cluster_is_said() -> None:
    rows = [DeviceRow(node=f"node-{number}", endpoint=f"pdu://a/{number}", answer=Reachability.ANSWERS) for number in range(4)]
    assert "… and 2 more lines, no worse than these" in "\n".join(drawn(devices_table(report(*rows, most=2))))
    assert drawn(devices_table(report(nodes=0))) == ["no node in prod"]


# `nodewarden remediate plan` of a live cluster: what there is of the node is looked up, whoever checks its health.

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


async def remediation_plan(node: str, *words: str) -> tuple[int, str]:
    result = await nodewarden("remediate", "plan", node, *words)
    return result.exit_code, " ".join(result.stdout.split()) + result.stderr


async def test_the_machine_of_a_node_is_looked_up(person: ApiClient) -> None:
    """A deletion that nobody would make good is not possible, and the plan says so before anybody asks for it."""
    code, page = await remediation_plan("node-0")
    orphan = "not possible: no controller owns the Machine: nothing would replace it"
    assert code == 0
    assert "step 1 of 2 RebootTemplate/default/a (reboot), at most 5m: is next" in page
    assert f"step 2 of 2 MachineDeletionTemplate/default/a (delete-machine), at most 5m: {orphan}" in page
    assert "retries maxRetry 4, retryPeriod 0s" in page
    owner = {"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet", "name": "set", "uid": "u", "controller": True}
    for machine in (machine_of("node-0"), "never-came"):
        await person.patch(OPENSHIFT.path("machines", machine), {"metadata": {"ownerReferences": [owner]}})
    code, page = await remediation_plan("node-0", "--with", "delete-machine")
    assert (code, "step delete-machine, at most 30m machine" in page, "owned by MachineSet/set" in page) == (0, True, True)
    code, page = await remediation_plan(f"machine/{OPENSHIFT.namespace}/never-came")
    assert code == 0
    assert "By hand step delete-machine, at most 30m" in page
    assert "By the scanner: never, no health check covers it" in page
    assert (await remediation_plan(f"machine/{OPENSHIFT.namespace}/never-came", "--with", "reboot"))[0] == 1
    assert (await remediation_plan("machine/default/nobody"))[0] == 4


async def test_the_steps_are_shown_before_they_are_asked_about(person: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """S44: a healthy node is not power-cycled by a slip of the keyboard."""
    monkeypatch.setattr(episodes, "on_a_terminal", lambda: True)
    result = await nodewarden("remediate", "node-0", "--reason", "smoke", text="n\n")
    shown, _, asked = " ".join(result.stderr.split()).partition("Carry out these steps on node-0")
    assert "step 1 of 2 RebootTemplate/default/a (reboot), at most 5m: is next" in shown
    assert asked.endswith("node-0 is not remediated: you did not say yes")
    assert result.exit_code == 1
    assert (await nodewarden("remediate", "node-0", "-y")).exit_code == 2, "no reason"
