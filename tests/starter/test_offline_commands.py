"""`evaluate` and `explain` from files: what people and programs get without any cluster or server."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from policy.checks.health_check import Overlap
from policy.preservation.requests import read_policy
from policy.remediation.ladder import NAMES
from starter.commands.explain import from_files
from starter.output.explanation import as_text, conclusion
from tests.starter.builders import nodewarden

NOW = "2026-11-21T12:00:00Z"
TEMPLATE = "{apiVersion: nodewarden.io/v1alpha1, kind: FencingTemplate, name: bmc, namespace: nodewarden}"
CHECKS = f"""
apiVersion: remediation.medik8s.io/v1alpha1
kind: NodeHealthCheck
metadata: {{name: workers}}
spec:
  minHealthy: 51%
  selector: {{matchLabels: {{role: worker}}}}
  remediationTemplate: {TEMPLATE}
---
apiVersion: remediation.medik8s.io/v1alpha1
kind: NodeHealthCheck
metadata: {{name: gpu}}
spec:
  maxUnhealthy: 1
  selector: {{matchLabels: {{gpu: present}}}}
  unhealthyConditions: [{{type: Ready, status: Unknown, duration: 120s}}]
  remediationTemplate: {TEMPLATE}
"""
NODES = [("node-1", "Unknown", "11:50:00", True), ("node-2", "True", "01:00:00", False), ("node-3", "False", "11:57:00", True)]
NODES += [("node-4", "True", "01:00:00", False), ("node-5", "True", "01:00:00", False)]


def nodes() -> dict[str, Any]:
    """A typed list, whose items do not repeat what they are."""
    items = [
        {
            "metadata": {"name": name, "labels": {"role": "worker"} | ({"gpu": "present"} if gpu else {})},
            "status": {"conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": f"2026-11-21T{since}Z"}]},
        }
        for name, ready, since, gpu in NODES
    ]
    return {"apiVersion": "v1", "kind": "NodeList", "items": items}


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """The health checks as YAML, the nodes as kubectl prints JSON."""
    (tmp_path / "checks.yaml").write_text(CHECKS)
    (tmp_path / "nodes.json").write_text(json.dumps(nodes()))
    return ["-f", str(tmp_path / "checks.yaml"), "-f", str(tmp_path / "nodes.json"), "--now", NOW]


async def evaluated(*arguments: str) -> dict[str, Any]:
    result = await nodewarden("evaluate", *arguments, "-o", "json")
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def verdicts(check: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {each["target"]: (each["verdict"], each["action"]) for each in check["verdicts"]}


async def test_the_json_has_the_documented_fields(files: list[str]) -> None:
    """docs/semantics.md says which; they are a stable interface."""
    answer = await evaluated(*files)
    assert set(answer) == {"checks", "errors"}
    assert set(answer["checks"][0]) >= {
        *("kind", "apiVersion", "namespace", "name", "dialect", "paused", "targets", "healthy", "unhealthy", "allowed"),
        *("remediationsAllowed", "reason", "message", "nextCheckSeconds", "verdicts"),
    }
    assert set(answer["checks"][0]["verdicts"][0]) >= {
        *("target", "node", "machine", "verdict", "reason", "message", "since", "dueInSeconds", "action"),
    }


async def test_the_strictest_circuit_breaker_of_several_checks_holds_a_node(files: list[str]) -> None:
    gpu, workers = (await evaluated(*files))["checks"]
    assert (gpu["name"], gpu["allowed"], gpu["unhealthy"], gpu["reason"]) == ("gpu", True, 1, "RemediationAllowed")
    assert verdicts(gpu) == {"node-1": ("unhealthy", "fence"), "node-3": ("healthy", "none")}
    assert verdicts(workers)["node-1"] == ("unhealthy", "none"), "gpu's deadline expired first: it gives the remedy"
    assert "NodeHealthCheck/gpu gives the remedy" in workers["verdicts"][0]["heldBy"]
    assert verdicts(workers)["node-3"] == ("soon", "none")
    assert workers["nextCheckSeconds"] == 121
    assert workers["warnings"] == ["its sick targets are covered by NodeHealthCheck/gpu too"]


async def test_an_open_circuit_breaker_of_one_check_holds_the_other_unless_they_are_independent(
    files: list[str], tmp_path: Path
) -> None:
    """S17."""
    closed = CHECKS.replace("maxUnhealthy: 1", "maxUnhealthy: 0")
    (tmp_path / "checks.yaml").write_text(closed)
    gpu, workers = (await evaluated(*files))["checks"]
    assert (gpu["allowed"], verdicts(gpu)["node-1"], verdicts(workers)["node-1"]) == (
        False,
        ("unhealthy", "none"),
        ("unhealthy", "none"),
    )
    assert "NodeHealthCheck/gpu covers it too, and its circuit breaker is open" in workers["verdicts"][0]["heldBy"]
    gpu, workers = (await evaluated(*files, "--overlap", "independent"))["checks"]
    assert verdicts(workers)["node-1"] == ("unhealthy", "fence")


async def test_a_check_of_observed_nodes_is_as_little_allowed_as_in_status(files: list[str], tmp_path: Path) -> None:
    """S52: by labels and annotations. What is set for the cluster is in no file."""
    path, observe = tmp_path / "checks.yaml", {"nodewarden.io/mode": "observe"}
    path.write_text(CHECKS.replace("{name: workers}", '{name: workers, annotations: {nodewarden.io/mode: "observe"}}'))
    gpu, workers = (await evaluated(*files))["checks"]
    assert [(each["allowed"], each["reason"]) for each in (gpu, workers)] == [(True, "RemediationAllowed"), (False, "Observed")]
    assert workers["message"] == "the mode of all its targets is observe; 3 of 5 nodes are healthy, minHealthy 51% needs 3"
    page = " ".join((await nodewarden("evaluate", *files)).stdout.split())
    assert "only observed: the mode of all its targets is observe; 3 of 5 nodes" in page
    told = json.loads((await nodewarden("explain", "node-2", *files, "-o", "json")).stdout)
    assert [each["reason"] for each in told["checks"] if each["name"] == "workers"] == ["Observed"]
    path.write_text(CHECKS)
    labelled = nodes()
    labelled["items"][0]["metadata"]["labels"] |= observe
    (tmp_path / "nodes.json").write_text(json.dumps(labelled))
    _, workers = (await evaluated(*files))["checks"]
    assert workers["allowed"] is True
    some = "only on 4 of 5, the mode of the others is observe; may act: 3 of 5 nodes are healthy"
    assert some in " ".join((await nodewarden("evaluate", *files)).stdout.split())


async def test_an_object_that_cannot_be_used_is_an_error_and_the_rest_is_evaluated(files: list[str], tmp_path: Path) -> None:
    (tmp_path / "checks.yaml").write_text(CHECKS.replace("maxUnhealthy: 1", "maxUnhealthy: many"))
    result = await nodewarden("evaluate", *files, "-o", "json")
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    [error] = answer["errors"]
    assert (error["kind"], error["name"], error["field"]) == ("NodeHealthCheck", "gpu", "spec.maxUnhealthy")
    gpu, workers = answer["checks"]
    assert (gpu["allowed"], gpu["reason"], gpu["verdicts"]) == (False, "InvalidObject", [])
    assert verdicts(workers)["node-1"] == ("unhealthy", "fence")
    table = await nodewarden("evaluate", *files)
    assert "error:" in table.stdout
    assert "NodeHealthCheck/gpu: spec.maxUnhealthy: expected" in table.stdout.replace("\n", " ")


async def test_nodes_are_in_natural_order_within_a_verdict(files: list[str], tmp_path: Path) -> None:
    renamed = (tmp_path / "nodes.json").read_text().replace("node-2", "node-10")
    (tmp_path / "nodes.json").write_text(renamed)
    result = await nodewarden("evaluate", *files)
    assert re.findall(r"^ +(node-[0-9]+) +healthy", result.stdout, re.MULTILINE) == ["node-3", "node-4", "node-5", "node-10"]


async def test_explain_says_what_holds_a_node_back_and_what_would_unblock_it(files: list[str], tmp_path: Path) -> None:
    (tmp_path / "checks.yaml").write_text(CHECKS.replace("maxUnhealthy: 1", "maxUnhealthy: 0"))
    result = await nodewarden("explain", "node-1", *files)
    assert result.exit_code == 0
    page = " ".join(result.stdout.split())
    assert "node-1 Ready is Unknown; unhealthy, and held back under NodeHealthCheck/" in page
    assert "may act no, circuit breaker open (TooManyUnhealthy): 1 of 2 nodes are healthy, maxUnhealthy 0 needs 2" in page
    assert "unblock 1 more of its 2 nodes must become healthy" in page
    assert "unblock NodeHealthCheck/gpu: 1 more of its 2 nodes must become healthy" in page


LEASE = """
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {{name: node-node-1, namespace: {namespace}}}
spec: {{holderIdentity: {holder}, leaseDurationSeconds: {seconds}, renewTime: {renewed}}}
"""


@pytest.mark.parametrize("quoted", [True, False], ids=["a text", "a moment of YAML"])
async def test_explain_names_who_holds_the_lease_of_a_node(files: list[str], tmp_path: Path, quoted: bool) -> None:
    """S20, S44: no last look would let it be touched, whatever the checks say."""
    mine, renewed = tmp_path / "lease.yaml", f'"{NOW}"' if quoted else NOW
    held = {"namespace": "medik8s-leases", "holder": "node-maintenance", "seconds": 600, "renewed": renewed}
    mine.write_text(LEASE.format(**held))
    page = " ".join((await nodewarden("explain", "node-1", *files, "-f", str(mine))).stdout.split())
    assert "unblock the node's lease must be given back, or lapse: it is held by 'node-maintenance' until 2" in page
    for harmless in (
        {"holder": "nodewarden"},
        {"seconds": 0},
        {"renewed": "2020-01-01T00:00:00Z"},
        {"namespace": "kube-node-lease"},
    ):
        mine.write_text(LEASE.format(**{**held, **harmless}))
        found = (await nodewarden("explain", "node-1", *files, "-f", str(mine))).stdout
        assert ("node's lease" in " ".join(found.split())) is (harmless == {"seconds": 0}), harmless


async def test_explain_has_a_countdown_and_names_the_checks_that_do_not_cover_the_node(files: list[str]) -> None:
    result = await nodewarden("explain", "node-3", *files, "-o", "json")
    answer = json.loads(result.stdout)
    gpu, workers = answer["checks"]
    assert (workers["verdict"]["verdict"], workers["verdict"]["dueInSeconds"]) == ("soon", 121)
    assert workers["unblock"] == ["nothing is done until its time-out, in 2m1s"]
    assert gpu["verdict"]["verdict"] == "healthy"
    result = await nodewarden("explain", "node-2", *files, "-o", "json")
    answer = json.loads(result.stdout)
    assert answer["notCovering"] == [{"check": "NodeHealthCheck/gpu", "why": "its selector wants gpu=present", "unusable": False}]


def test_evaluate_needs_neither_a_server_nor_a_kubeconfig(files: list[str], tmp_path: Path) -> None:
    """It is for machines that have neither, such as those of a CI."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "COLUMNS": "120"}
    command = [sys.executable, "-m", "starter.cli", "evaluate", *files]
    root = Path(__file__).parents[2]
    found = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=True)
    assert "NodeHealthCheck/gpu" in found.stdout
    assert found.stderr == ""


def put(path: str, text: str) -> None:
    Path(path).write_text(text)


async def warnings_of(files: list[str], check: str = "workers", *, old: str = "", new: str = "") -> list[str]:
    """What `evaluate` warns of under a check, with these words of its file exchanged; that checks overlap is left out."""
    put(files[1], CHECKS.replace(old, new) if old else CHECKS)
    answer = json.loads((await nodewarden("evaluate", *files, "-o", "json")).stdout)
    (found,) = [each["warnings"] for each in answer["checks"] if each["name"] == check]
    return [words for words in found if "sick targets are covered" not in words]


async def test_what_looks_fine_only_because_it_sees_nothing_is_warned_of(files: list[str]) -> None:
    assert await warnings_of(files) == []
    assert await warnings_of(files, old="role: worker", new="role: wroker") == ["it selects none of the Nodes here"]
    put(files[3], json.dumps(nodes() | {"items": []}))
    assert await warnings_of(files) == ["there is no Node here"]


async def test_a_label_that_does_not_exclude_is_warned_of(files: list[str]) -> None:
    listed = nodes()
    for item, value in zip(listed["items"], ["", "True", "true", "false"], strict=False):
        item["metadata"]["labels"]["remediation.medik8s.io/exclude-from-remediation"] = value
    put(files[3], json.dumps(listed))
    (words,) = await warnings_of(files)
    assert words.endswith("excludes only with the value true: not node-1, node-2, node-4")


async def test_other_controllers_templates_are_due_without_a_warning(files: list[str]) -> None:
    assert await warnings_of(files, "gpu", old="FencingTemplate", new="SelfNodeRemediationTemplate") == []
    page = " ".join((await nodewarden("explain", "node-1", *files)).stdout.split())
    assert "create-remediation is due under NodeHealthCheck/gpu" in page
    assert "step SelfNodeRemediationTemplate/nodewarden/bmc (external)" in page


LADDER = """
  escalatingRemediations:
  - {order: 1, timeout: 5m, remediationTemplate: {apiVersion: s.io/v1, kind: SelfNodeRemediationTemplate, name: a, namespace: b}}
  - order: 2
    timeout: 1h
    remediationTemplate: {apiVersion: nodewarden.io/v1alpha1, kind: FencingTemplate, name: c, namespace: d}
"""
SELF_NODE, OURS = "SelfNodeRemediationTemplate/b/a", "FencingTemplate/d/c"


@pytest.fixture
def climbing(files: list[str]) -> list[str]:
    """The check `workers` with a ladder and rules for retries, and on node-1 the memory of a try that failed."""
    with_ladder = CHECKS.replace(f"  remediationTemplate: {TEMPLATE}\n", LADDER.lstrip("\n"), 1)
    retries = 'metadata: {name: workers, annotations: {nodewarden.io/max-retry: "2", nodewarden.io/retry-period: 1h}}'
    put(files[1], with_ladder.replace("metadata: {name: workers}", retries).replace("duration: 120s", "duration: 1h"))
    memory = {"machine": "node-1", "timestamp": "2026-11-21T11:40:00Z", "retryCount": 0, "failed": [SELF_NODE], "incident": "i7"}
    listed = nodes()
    listed["items"][0]["metadata"]["annotations"] = {"nodewarden.io/last-remediation": json.dumps(memory)}
    put(files[3], json.dumps(listed))
    return files


async def test_explain_tells_the_ladder_what_has_failed_and_until_when_it_is_put_off(climbing: list[str]) -> None:
    """What of it is on the page of docs/remediation.md is held by `test_docs_remediation.py`."""
    page = " ".join((await nodewarden("explain", "node-1", *climbing)).stdout.split())
    why = (
        "retry 1 of 2, not before 2026-11-21T12:40:00Z: node-1 was remediated at 2026-11-21T11:40:00Z, and the retryPeriod is 1h"
    )
    assert f"{OURS} is put off under NodeHealthCheck/workers: {why}" in page
    assert "remembered node-1 was remediated at 2026-11-21T11:40:00Z for the first time (incident i7)" in page
    assert "retries maxRetry 2, retryPeriod 1h, minHealthyPeriod 1h, backoff none" in page
    found = json.loads((await nodewarden("explain", "node-1", *climbing, "-o", "json")).stdout)["remediation"]
    assert [(each["step"]["name"], each["step"]["timeout"], each["failed"], each["next"]) for each in found["steps"]] == [
        (SELF_NODE, "5m", True, False),
        (OURS, "1h", False, True),
    ]
    assert (found["turn"]["retry"], found["turn"]["notBefore"], found["last"]["incident"]) == (1, "2026-11-21T12:40:00Z", "i7")
    well = " ".join((await nodewarden("explain", "node-2", *climbing)).stdout.split())
    assert f"If it failed, by NodeHealthCheck/workers step 1 of 2 {SELF_NODE} (external), at most 5m: is next" in well


async def test_remediate_plan_tells_what_a_person_and_what_the_scanner_would_do(climbing: list[str]) -> None:
    by_hand = ("remediate", "plan", "node-1", "--with", "reboot=10m", "--with", "delete-machine")
    result = await nodewarden(*by_hand, *climbing)
    page = " ".join(result.stdout.split())
    assert result.exit_code == 0
    assert "By hand step 1 of 2 reboot, at most 10m: is next" in page
    assert "step 2 of 2 delete-machine, at most 30m: if it then belongs to a Machine" in page
    assert "due at once, from the first step" in page
    assert f"By the scanner, as NodeHealthCheck/workers says step 1 of 2 {SELF_NODE}" in page
    document = json.loads((await nodewarden(*by_hand, *climbing, "-o", "json")).stdout)
    assert [each["step"]["name"] for each in document["byHand"]["steps"]] == ["reboot", "delete-machine"]
    assert document["byScanner"]["turn"]["retry"] == 1
    assert (await nodewarden("remediate", "plan", "nobody", *climbing)).exit_code == 4
    wrong = await nodewarden("remediate", "plan", "node-1", "--with", "rebot", *climbing)
    assert (wrong.exit_code, f"--with: expected strategies of {', '.join(NAMES)}" in wrong.stderr) == (2, True)


CONTROL_PLANE = """
apiVersion: controlplane.cluster.x-k8s.io/v1beta1
kind: KubeadmControlPlane
metadata: {name: kcp, namespace: capi}
spec: {remediationStrategy: {maxRetry: 5, retryPeriod: 10m}}
---
apiVersion: cluster.x-k8s.io/v1beta1
kind: MachineHealthCheck
metadata: {name: cp, namespace: capi}
spec:
  clusterName: prod
  selector: {matchLabels: {cp: "1"}}
  unhealthyConditions: [{type: Ready, status: Unknown, timeout: 300s}]
---
apiVersion: cluster.x-k8s.io/v1beta1
kind: Machine
metadata:
  name: cp-1
  namespace: capi
  labels: {cp: "1", cluster.x-k8s.io/cluster-name: prod}
  annotations:
    controlplane.cluster.x-k8s.io/remediation-for: '{"machine": "cp-0", "timestamp": "2026-11-21T11:55:00Z", "retryCount": 2}'
  ownerReferences:
  - {apiVersion: controlplane.cluster.x-k8s.io/v1beta1, kind: KubeadmControlPlane, name: kcp, uid: k, controller: true}
spec: {clusterName: prod}
status: {nodeRef: {name: node-1}}
"""


async def test_explain_reads_the_strategy_of_a_control_plane_which_its_owner_carries_out(files: list[str]) -> None:
    put(files[1], CONTROL_PLANE)
    page = " ".join((await nodewarden("explain", "node-1", *files)).stdout.split())
    assert "step request-owner, at most 30m" in page
    assert "machine capi/cp-1, owned by KubeadmControlPlane/kcp" in page
    own = "maxRetry 5, retryPeriod 10m, minHealthyPeriod 1h, backoff none; the next retry 3 of 5, not before 2026-11-21T12:05:00Z"
    assert f"owner KubeadmControlPlane/kcp remediates by its own remediationStrategy: {own}" in page
    put(files[1], CONTROL_PLANE.replace("maxRetry: 5", "maxRetry: many"))
    result = await nodewarden("explain", "node-1", *files)
    assert result.exit_code == 1
    assert "maxRetry: expected a whole number" in " ".join(result.stdout.split())


async def test_a_kind_in_other_letters_is_a_mistake_and_not_no_check(files: list[str]) -> None:
    put(files[1], CHECKS.replace("kind: NodeHealthCheck", "kind: Nodehealthcheck", 1))
    result = await nodewarden("evaluate", *files)
    assert result.exit_code == 1
    assert "kind: expected NodeHealthCheck, got 'Nodehealthcheck'" in " ".join(result.stdout.split())


async def test_explain_says_when_it_is_a_mistake_that_hides_the_answer(files: list[str]) -> None:
    put(files[1], CHECKS.replace("minHealthy", "minHealty").replace("maxUnhealthy", "maxUnhealty"))
    result = await nodewarden("explain", "node-1", *files)
    assert result.exit_code == 1
    assert "no health check that can be used covers it" in " ".join(result.stdout.split())
    put(files[3], json.dumps(nodes()).replace("11:50:00Z", "yesterday"))
    result = await nodewarden("explain", "node-1", *files)
    assert result.exit_code == 4
    assert "node-1 can't be read" in " ".join(result.stdout.split())


@pytest.mark.parametrize("columns", [60, 100, 200])
async def test_no_terminal_is_too_narrow_for_a_name_or_a_reason(
    columns: int, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At night the name of the check in the way is the one thing to know."""
    name = "ip-10-0-1-1.eu-west-1.compute.internal"
    put(files[1], CHECKS.replace("maxUnhealthy: 1", "maxUnhealthy: 0"))
    put(files[3], json.dumps(nodes()).replace("node-1", name))
    monkeypatch.setenv("COLUMNS", str(columns))
    page = (await nodewarden("evaluate", *files)).stdout
    assert "…" not in page
    assert max(map(len, page.splitlines())) <= columns
    assert not any(line.endswith(" ") for line in page.splitlines())
    words = "NodeHealthCheck/gpu covers it too, and its circuit breaker is open: 1 of 2 nodes are healthy, maxUnhealthy 0 needs 2"
    assert name in page.replace("\n", "").replace(" ", "") or name in page
    if columns >= 100:
        assert name in page
    if columns < 130:
        assert words in " ".join(page.split()), "below the table, in whole lines"


def test_explain_does_not_call_due_what_is_paused(files: list[str]) -> None:
    """S44: what keeps everything from being begun is the conclusion, but for a node that needs nothing."""
    paths = [path for path in files if path.endswith((".yaml", ".json"))]
    due, well = (
        replace(from_files(paths, node, NOW, Overlap.INDEPENDENT), halted="paused by ada") for node in ("node-1", "node-2")
    )
    assert conclusion(due) == "nothing is begun for it: paused by ada"
    assert conclusion(replace(due, halted="")) == "fence is due under NodeHealthCheck/gpu"
    assert conclusion(well) == "healthy"


def test_explain_does_not_call_due_what_a_mode_may_forbid(files: list[str]) -> None:
    """S52: of a scanner that runs and does not answer the modes are not known."""
    paths = [path for path in files if path.endswith((".yaml", ".json"))]
    due, well = (replace(from_files(paths, node, NOW, Overlap.INDEPENDENT), scanner_silent=True) for node in ("node-1", "node-2"))
    assert conclusion(due) == "unhealthy, and how far programs may go is not known: the scanner does not answer"
    console = Console(width=200)
    with console.capture() as capture:
        console.print(as_text(due))
    assert "not now: how far programs may go is not known" in capture.get()
    assert conclusion(well) == "healthy"


# `nodewarden preserve plan -f …`: what people and programs get, without any cluster or server.

PAGE = Path(__file__).parents[2] / "docs" / "preservation.md"
PRESERVE = "node.machine.sapcloud.io/preserve"


async def planned(*objects: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """The JSON, and the exit code."""
    text = "\n---\n".join(json.dumps(each) for each in objects)
    result = await nodewarden("preserve", "plan", "-f", "-", "--now", NOW, "-o", "json", text=text)
    found: dict[str, Any] = json.loads(result.stdout)
    return found, result.exit_code


def machine(name: str, phase: str, created: str = "2026-11-01T00:00:00Z", **annotations: str) -> dict[str, Any]:
    return {
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "Machine",
        "metadata": {
            "name": name,
            "namespace": "shoot",
            "labels": {"node": f"node-of-{name}", "pool": "a"},
            "annotations": annotations,
            "creationTimestamp": created,
        },
        "status": {"currentStatus": {"phase": phase}},
    }


def policy(**spec: object) -> dict[str, Any]:
    return {
        "apiVersion": "nodewarden.io/v1alpha1",
        "kind": "PreservationPolicy",
        "metadata": {"name": "a"},
        "spec": {"selector": {"matchLabels": {"pool": "a"}}, **spec},
    }


async def test_what_is_kept_and_what_is_given_up() -> None:
    """Every key is always there: it is an interface."""
    found, code = await planned(
        policy(autoPreserveFailedMax=1),
        machine("w-1", "Failed", "2026-11-01T00:00:00Z"),
        machine("w-2", "Failed", "2026-11-02T00:00:00Z"),
        machine("w-3", "Running", **{PRESERVE: "now", "nodewarden.io/preserve-for": "24h"}),
    )
    reason = "it has failed, and nothing keeps it: its phase is Failed"
    kept = "it has failed, and the pool keeps failed machines; for 72h"
    assert found == {
        "machines": [
            entry("w-1", "Failed", phase="Terminating", action="terminate", reason=reason),
            entry("w-2", "Failed", "auto-preserved", phase="Failed:Preserved", action="preserve", expiry="24", reason=kept),
            entry(
                "w-3",
                "Running",
                "now",
                phase="Running:Preserved",
                action="preserve",
                expiry="22",
                reason="asked for by annotation; for 24h",
            ),
        ],
        "auto": {
            "max": 1,
            "count": 0,
            "selected": ["w-2"],
            "released": [],
            "pools": [{"name": "a", "max": 1, "count": 0, "selected": ["w-2"], "released": []}],
        },
        "scaleDownOrder": ["w-1", "w-2", "w-3"],
        "warnings": [],
        "errors": [],
    }
    assert code == 0


def entry(name: str, was: str, effective: str = "", *, expiry: str = "", **fields: str) -> dict[str, Any]:
    until = f"2026-11-{expiry}T12:00:00Z" if expiry else None
    facts = {"name": name, "namespace": "shoot", "node": f"node-of-{name}", "effective": effective, "was": was}
    return facts | {"expiry": until} | fields


async def test_a_policy_that_cannot_be_used_stops_giving_up_and_nothing_else() -> None:
    """Nobody knows what it would keep. What a person says of a machine is done all the same."""
    found, code = await planned(
        policy(autoPreserveFailedMax=-1),
        machine("w-1", "Failed"),
        machine("w-2", "Failed", **{PRESERVE: "false"}),
        machine("w-3", "Running", **{PRESERVE: "now"}),
    )
    assert code == 1
    expected = "expected a whole number of at least 0 and at most 10000, got -1"
    assert found["errors"] == [f"standard input: PreservationPolicy/a: spec.autoPreserveFailedMax: {expected}"]
    first, second, third = found["machines"]
    assert (first["action"], first["phase"]) == ("none", "Failed")
    assert first["reason"].endswith("but nothing is given up while a pool's configuration can't be used")
    assert [second["action"], third["action"]] == ["terminate", "preserve"]


async def test_a_block_alone_is_a_pool_of_all() -> None:
    text = "machineControllerManager: {autoPreserveFailedMax: 1}\n---\n" + json.dumps(machine("w-1", "Failed"))
    result = await nodewarden("preserve", "plan", "-f", "-", "--now", NOW, "-o", "json", text=text)
    assert json.loads(result.stdout)["auto"]["selected"] == ["w-1"]


async def test_a_value_that_means_nothing_changes_nothing_and_is_told() -> None:
    found, code = await planned(machine("w-1", "Running", **{PRESERVE: "forever"}))
    assert (code, found["machines"][0]["action"]) == (0, "none")
    values = "now, true, when-failed, auto-preserved, false"
    expected = f"w-1: Machine: annotation {PRESERVE}: expected one of {values}, got 'forever'; it changes nothing"
    assert found["warnings"] == [expected]


async def test_people_get_a_table_and_the_reasons() -> None:
    text = "\n---\n".join(json.dumps(each) for each in (policy(machinePreserveMax=1), machine("w-1", "Failed")))
    result = await nodewarden("preserve", "plan", "-f", "-", "--now", NOW, text=text)
    assert result.exit_code == 0
    words = " ".join(result.stdout.split())
    assert "w-1 node-of-w-1 auto-preserved Failed:Preserved preserve 2026-11-24T12:00:00Z" in words
    assert "a: keeps at most 1 failed machines, found 0; begins to keep w-1; releases none" in words


def test_the_policy_shown_in_the_docs_is_accepted_as_it_stands() -> None:
    docs = PAGE.read_text(encoding="utf-8")
    shown, *_ = re.findall(r"```yaml\n(.*?)```", docs, flags=re.DOTALL)
    pool = read_policy(yaml.safe_load(shown))
    assert (pool.cap, pool.timeout, pool.zones, pool.warnings) == (2, timedelta(hours=72), ("a", "b"), ())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "standard input"),
        (json.dumps(machine("w-1", "Failed") | {"status": {"currentStatus": {"phase": 7}}}), "expected a Machine"),
        (
            json.dumps(machine("w-1", "Failed") | {"status": {"currentStatus": {"preserveExpiryTime": "soon"}}}),
            "preserveExpiryTime: expected a moment",
        ),
    ],
)
async def test_what_cannot_be_read_is_code_1_and_the_rest_is_judged(text: str, problem: str) -> None:
    whole = f"{json.dumps(machine('w-2', 'Running'))}\n---\n{text}"
    result = await nodewarden("preserve", "plan", "-f", "-", "--now", NOW, "-o", "json", text=whole)
    found = json.loads(result.stdout)
    assert result.exit_code == 1
    assert len(found["errors"]) == 1
    assert problem in found["errors"][0]
    assert [each["name"] for each in found["machines"]] == ["w-2"]


@pytest.mark.parametrize(("healthy", "selected"), [(1, ["n-2"]), (3, [])])
async def test_of_nodes_that_a_check_calls_failed_the_newest_is_kept_unless_its_circuit_breaker_is_open(
    healthy: int, selected: list[str]
) -> None:
    """As the scanner does it: in a storm nobody is remediated, and so nobody has to be kept (S17)."""
    check = {
        "apiVersion": "remediation.medik8s.io/v1alpha1",
        "kind": "NodeHealthCheck",
        "metadata": {"name": "all"},
        "spec": {
            "selector": {"matchLabels": {"pool": "a"}},
            "minHealthy": healthy,
            "unhealthyConditions": [{"type": "Ready", "status": "Unknown", "duration": "5m"}],
            "remediationTemplate": {
                "apiVersion": "nodewarden.io/v1alpha1",
                "kind": "FencingTemplate",
                "name": "t",
                "namespace": "n",
            },
        },
    }
    nodes = []
    for number, (status, since) in enumerate([("True", "10"), ("Unknown", "09"), ("Unknown", "11"), ("True", "10")]):
        condition = {"type": "Ready", "status": status, "lastTransitionTime": f"2026-11-21T{since}:00:00Z"}
        metadata = {"name": f"n-{number}", "labels": {"pool": "a"}}
        nodes.append({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"conditions": [condition]}})
    found, _ = await planned(check, policy(autoPreserveFailedMax=1), *nodes)
    assert found["auto"]["selected"] == selected
