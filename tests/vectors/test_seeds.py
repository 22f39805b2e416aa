"""The examples of the three texts that health checks come from, as they were written, and the numbers that the texts give.

What follows from each criterion and each circuit breaker is asked once, of the peers' own cases (`tests/cases`).

`seeds/` holds the YAML of the texts and nothing else: 000 is OpenShift's proposal of machine health checking, 003 Cluster API's
page on configuring a MachineHealthCheck, 004 the NodeHealthCheck proposal. Where a text says something else than what was
shipped, what was shipped holds, and the test says so.
"""

from __future__ import annotations

import copy
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from activities.cluster.watch.offline import ManifestMistake
from policy.checks.health_check import HealthCheck, Overlap, RetryBackoff, RetryRules
from policy.dialects import parse
from starter.output.evaluation import as_model
from starter.plans.cluster_objects import Manifest, Unreadable, read_files, read_text
from tests.documents import encoded
from tests.vectors import objects
from tests.vectors.objects import Json, evaluated, moment, the_check

SEEDS = Path(__file__).with_name("seeds")

UNTIL_SICK = 301
"""All three texts write 300s; that long a condition must have held to be over for certain."""


def text(name: str) -> str:
    return (SEEDS / f"{name}.yaml").read_text(encoding="utf-8")


def the_object(name: str) -> Json:
    """The one object of a file of the texts."""
    (found,) = read_files([str(SEEDS / f"{name}.yaml")])
    assert isinstance(found, Manifest)
    return found.document


def with_spec(check: Json, **fields: object) -> Json:
    """The check with other values of some fields; None takes one away."""
    spec = {key: value for key, value in (check["spec"] | fields).items() if value is not None}
    return copy.deepcopy(check) | {"spec": spec}


def acted_on(check: Json) -> list[str]:
    """Whose remediation would be performed now."""
    return sorted(each["target"] for each in check["verdicts"] if each["action"] != "none" and not each["heldBy"])


def node(name: str, ready: str = "True", age: float = 3600, role: str = "worker") -> Json:
    conditions = [{"type": "Ready", "status": ready, "age_s": age}]
    return objects.node({"name": name, "labels": {f"node-role.kubernetes.io/{role}": ""}, "conditions": conditions})


def in_namespace(namespace: str, found: Json) -> Json:
    return found | {"metadata": found["metadata"] | {"namespace": namespace}}


def names(kind: str, number: int) -> list[str]:
    return [f"{kind}-{index:02}" for index in range(number)]


# 000: OpenShift -------------------------------------------------------------------------------------------------------


def openshift_machine(name: str, *, node_name: str | None = None, role: str = "worker", **more: object) -> Json:
    """A Machine of a MachineSet; without another name its Node is called as itself."""
    given: Json = {"name": name, "node_ref": name if node_name is None else node_name, "labels": {"role": role}}
    given |= {"controller_owner": role == "worker", "phase": "Running"} | more
    return in_namespace("openshift-machine-api", objects.openshift_machine(given))


def openshift_pool(total: int, sick: int, ready: str = "Unknown") -> list[Json]:
    found = []
    for index, name in enumerate(names("machine", total)):
        found += [openshift_machine(name), node(name, ready if index < sick else "True", UNTIL_SICK)]
    return found


OPENSHIFT = the_object("000-machine-health-check")


def test_the_example_of_000_is_read_as_it_is_written() -> None:
    check = parse(OPENSHIFT)
    assert (check.ref.key, str(check.max_unhealthy)) == ("MachineHealthCheck/openshift-machine-api/example", "40%")
    assert [(each.type, each.status, each.duration.seconds) for each in check.conditions] == [
        ("Ready", "Unknown", 300),
        ("Ready", "False", 300),
    ]
    assert check.warnings == ()


def test_every_criterion_of_000_makes_a_machine_unhealthy() -> None:
    """Its list: a condition of the node, no nodeRef (10 minutes), a node that is not found, the phase Failed."""
    machines = [
        openshift_machine("condition"),
        openshift_machine("no-node", node_name="", last_updated_age_s=601),
        openshift_machine("node-gone", node_name="was-here"),
        openshift_machine("failed", phase="Failed", node_name=""),
        openshift_machine("joining", node_name="", last_updated_age_s=599),
        openshift_machine("well"),
    ]
    check = the_check([with_spec(OPENSHIFT, maxUnhealthy=None), *machines, node("condition", "False", 301), node("well")])
    assert {each["target"]: each["reason"] for each in check["verdicts"] if each["verdict"] == "unhealthy"} == {
        "condition": "ReadyFalse",
        "no-node": "NodeStartupTimeout",
        "node-gone": "NodeDeleted",
        "failed": "MachineFailed",
    }
    assert {each["target"]: each["dueInSeconds"] for each in check["verdicts"] if each["verdict"] == "soon"} == {"joining": 2}
    assert acted_on(check) == ["condition", "failed", "no-node", "node-gone"]


def test_of_two_checks_of_one_machine_the_looser_does_not_undercut_the_stricter() -> None:
    """The text warns that it would; here it does only where somebody asked for independent checks."""
    loose = with_spec(OPENSHIFT, maxUnhealthy="100%")
    loose["metadata"]["name"] = "loose"
    found = [OPENSHIFT, loose, *openshift_pool(5, 3)]
    for overlap, acting in ((Overlap.STRICTEST, []), (Overlap.INDEPENDENT, names("machine", 3))):
        strict_check, loose_check = evaluated(found, overlap=overlap)["checks"]
        assert (strict_check["allowed"], loose_check["allowed"]) == (False, True)
        assert (acted_on(strict_check), acted_on(loose_check)) == ([], acting)


@pytest.mark.parametrize(("limit", "told"), [("40%", True), (2, True), ("100%", True), (1, False), (0, False)])
def test_a_check_of_control_plane_and_workers_is_reported(limit: object, told: bool) -> None:
    """S15. The text's exception: where no more than one may be unhealthy."""
    masters = [openshift_machine(name, role="master") for name in names("master", 3)]
    nodes = [node(name, role="master") for name in names("master", 3)]
    check = the_check([with_spec(OPENSHIFT, selector={}, maxUnhealthy=limit), *openshift_pool(3, 0), *masters, *nodes])
    expected = ["it covers control-plane and worker machines: give them a check each, or set maxUnhealthy to 1"]
    assert check["warnings"] == (expected if told else [])


def test_each_pool_of_000_has_criteria_of_its_own() -> None:
    """Also by conditions that a node problem detector reports, on a node that is Ready."""
    deadlock = [{"type": "KernelDeadlock", "status": "True", "timeout": "60s"}]
    workers = with_spec(OPENSHIFT, maxUnhealthy=1)
    databases = with_spec(workers, selector={"matchLabels": {"role": "database"}}, unhealthyConditions=deadlock)
    databases["metadata"]["name"] = "databases"
    pools: list[Json] = []
    for role in ("worker", "database"):
        for what, ready in (("deadlock", "True"), ("silent", "Unknown")):
            name = f"{role}-{what}"
            pools += [openshift_machine(name, labels={"role": role}), node(name, ready, UNTIL_SICK)]
        conditions = pools[-3]["status"]["conditions"]
        conditions.append({"type": "KernelDeadlock", "status": "True", "lastTransitionTime": moment(61)})
    checks = evaluated([workers, databases, *pools])["checks"]
    assert {check["name"]: acted_on(check) for check in checks} == {
        "databases": ["database-deadlock"],
        "example": ["worker-silent"],
    }


@pytest.mark.parametrize(("pets", "cattle", "acting"), [(2, 2, True), (2, 3, False), (0, 4, True), (4, 1, False)])
def test_the_health_of_untouched_pets_decides_about_the_cattle(pets: int, cattle: int, acting: bool) -> None:
    """What the text thought to be impossible without its disruption budget: not while 5 or more are down, pets included."""
    machines: list[Json] = []
    excluded = {"remediation.medik8s.io/exclude-from-remediation": "true"}
    for kind, sick, labels in (("pet", pets, excluded), ("cow", cattle, {})):
        for index, name in enumerate(names(kind, 5)):
            machines += [openshift_machine(name), node(name, "Unknown" if index < sick else "True", UNTIL_SICK)]
            machines[-1]["metadata"]["labels"] |= labels
    check = the_check([with_spec(OPENSHIFT, maxUnhealthy=4), *machines])
    assert (check["targets"], check["allowed"]) == (10, acting)
    assert acted_on(check) == (names("cow", cattle) if acting else [])


def test_the_disruption_budget_that_000_decided_against_is_passed_over() -> None:
    check = the_check([OPENSHIFT, the_object("000-machine-disruption-budget"), *openshift_pool(5, 1)])
    assert acted_on(check) == ["machine-00"]


# 003: Cluster API -----------------------------------------------------------------------------------------------------

WORKERS = the_object("003-workers")
CONTROL_PLANE = the_object("003-control-plane")

AGES: Json = {"control_plane_initialized_age_s": 9000, "infrastructure_ready_age_s": 9000, "paused": False}
CLUSTER = in_namespace("default", objects.workload_cluster(AGES, "capi-quickstart", version="v1beta1"))


def capi_machine(name: str, labels: Json, *, node_name: str | None = None, created: float = 9000) -> Json:
    given: Json = {"name": name, "node_ref": name if node_name is None else node_name, "labels": labels}
    given |= {"cluster": "capi-quickstart", "created_age_s": created}
    return in_namespace("default", objects.cluster_api_machine(given, version="v1beta1"))


POOL = {"nodepool": "nodepool-0"}


def capi_pool(total: int, sick: int) -> list[Json]:
    found = [CLUSTER]
    for index, name in enumerate(names("machine", total)):
        found += [capi_machine(name, POOL), node(name, "Unknown" if index < sick else "True", UNTIL_SICK)]
    return found


def test_the_examples_of_003_are_read_as_they_are_written() -> None:
    workers, control_plane = parse(WORKERS), parse(CONTROL_PLANE)
    assert workers.ref.key == "MachineHealthCheck.cluster.x-k8s.io/default/capi-quickstart-node-unhealthy-5m"
    assert workers.startup_timeout is not None
    assert (str(workers.max_unhealthy), workers.startup_timeout.seconds) == ("40%", 600)
    assert (workers.cluster_name, control_plane.cluster_name) == ("capi-quickstart", "capi-quickstart")
    assert control_plane.selector.matches({"cluster.x-k8s.io/control-plane": ""})
    assert not control_plane.selector.matches(POOL)
    assert (workers.warnings, control_plane.warnings) == ((), ())


@pytest.mark.parametrize("check", [OPENSHIFT, WORKERS], ids=["000", "003"])
def test_a_machine_has_ten_minutes_to_get_a_node_if_nothing_else_is_said_and_for_ever_with_0(check: Json) -> None:
    assert parse(with_spec(check, nodeStartupTimeout=None)).startup_timeout == timedelta(minutes=10)
    assert parse(with_spec(check, nodeStartupTimeout="0")).startup_timeout is None


@pytest.mark.parametrize(
    ("timeout", "age", "verdict", "due"), [("10m", 600, "soon", 1), ("10m", 601, "unhealthy", None), ("0", 9999, "skipped", None)]
)
def test_a_machine_may_be_without_a_node_for_the_startup_timeout(timeout: str, age: float, verdict: str, due: int | None) -> None:
    cluster = copy.deepcopy(CLUSTER)
    cluster["status"]["conditions"][0]["lastTransitionTime"] = moment(99999)
    machines = [capi_machine("new", POOL, node_name="", created=age), capi_machine("old", POOL), node("old")]
    check = the_check([with_spec(WORKERS, nodeStartupTimeout=timeout, maxUnhealthy=1), cluster, *machines])
    (new,) = [each for each in check["verdicts"] if each["target"] == "new"]
    assert (new["verdict"], new["dueInSeconds"]) == (verdict, due)


def control_plane(sick: int) -> list[Json]:
    labels = {"cluster.x-k8s.io/control-plane": ""}
    found: list[Json] = [CLUSTER, *capi_pool(2, 0)[1:]]
    for index, name in enumerate(names("control-plane", 3)):
        found += [capi_machine(name, labels), node(name, "Unknown" if index < sick else "True", UNTIL_SICK, "control-plane")]
    return found


@pytest.mark.parametrize(("sick", "acting"), [(0, 0), (1, 1), (2, 0), (3, 0)])
def test_a_control_plane_is_remediated_only_while_its_quorum_lasts(sick: int, acting: int) -> None:
    """maxUnhealthy 100% leaves it to the owner how many may go; "Remediation MUST preserve etcd quorum"."""
    check = the_check([CONTROL_PLANE, *control_plane(sick)])
    assert (check["targets"], check["unhealthy"], check["allowed"]) == (3, sick, True)
    assert len(acted_on(check)) == acting
    held = [each["heldBy"] for each in check["verdicts"] if each["heldBy"]]
    assert len(held) == sick - acting
    assert all(each.startswith("ControlPlaneGuard: ") for each in held)


def test_each_check_of_003_covers_its_own_machines() -> None:
    control_plane_check, workers_check = evaluated([WORKERS, CONTROL_PLANE, *control_plane(1)])["checks"]
    assert [each["target"] for each in control_plane_check["verdicts"]] == names("control-plane", 3)
    assert [each["target"] for each in workers_check["verdicts"]] == names("machine", 2)
    assert not any("machines" in words for check in (control_plane_check, workers_check) for words in check["warnings"])


def test_the_abridged_control_plane_of_003_is_one_error_that_names_its_line() -> None:
    """Its `...` stands for fields that were left out of the text."""
    (found,) = read_files([str(SEEDS / "003-kubeadm-control-plane.yaml")])
    assert isinstance(found, Unreadable)
    assert found.source.endswith("003-kubeadm-control-plane.yaml, line 7")
    (mended,) = read_text(text("003-kubeadm-control-plane").replace("  ...\n", ""), "mended")
    assert isinstance(mended, Manifest)
    check = the_check([WORKERS, mended.document, *capi_pool(6, 1)])
    assert acted_on(check) == ["machine-00"]


# 004: NodeHealthCheck -------------------------------------------------------------------------------------------------

ORIGINAL = text("004-node-health-check")
MISINDENTED = '   - type: "Ready"\n     status:  "False"\n     duration: "300s"\n'
MENDED = ORIGINAL.replace(MISINDENTED, "".join(f" {line}\n" for line in MISINDENTED.splitlines()))


def mended() -> Json:
    (found,) = read_text(MENDED, "mended")
    assert isinstance(found, Manifest)
    return found.document


def workers(total: int, sick: int, ready: str = "Unknown", age: float = UNTIL_SICK) -> list[Json]:
    return [node(name, ready if index < sick else "True", age) for index, name in enumerate(names("node", total))]


def test_the_example_of_004_is_one_error_that_names_the_misindented_line() -> None:
    (found,) = read_files([str(SEEDS / "004-node-health-check.yaml")])
    assert isinstance(found, Unreadable)
    assert found.source.endswith("004-node-health-check.yaml, line 16")
    assert ORIGINAL.splitlines()[15] == '   - type: "Ready"'
    answer = encoded(as_model((), [ManifestMistake(source=found.source, message=found.problem)]))
    assert [(error["kind"], error["field"]) for error in answer["errors"]] == [(None, None)]


def test_the_mended_example_of_004_is_read_with_its_spellings() -> None:
    """One expression without its list, and the operator in lower case: both are taken, and both are said."""
    check = parse(mended())
    assert (check.ref.key, str(check.max_unhealthy)) == ("NodeHealthCheck/example", "49%")
    assert check.selector.matches({"node-role.kubernetes.io/worker": ""})
    assert not check.selector.matches({})
    assert [(each.type, each.status, each.duration.seconds) for each in check.conditions] == [
        ("Ready", "Unknown", 300),
        ("Ready", "False", 300),
    ]
    assert check.template is not None
    assert (check.template.kind, check.template.name) == ("PoisonPillRemediationTemplate", "M3_REMEDIATION_GROUP")
    assert check.warnings == (
        "spec.selector.matchExpressions.operator 'exists' was read as Exists",
        "spec.selector.matchExpressions was read as a list of one",
    )


def test_a_remediation_object_of_004_is_made_once_and_deleted_when_the_node_is_well() -> None:
    made: Json = {
        "apiVersion": "poison-pill.medik8s.io/v1alphaX",
        "kind": "PoisonPillRemediation",
        "metadata": {"name": "node-00", "ownerReferences": [{"kind": "NodeHealthCheck", "name": "example", "uid": ""}]},
    }
    for sick, action in ((1, "none"), (0, "delete-remediation")):
        check = the_check([mended(), made, *workers(5, sick)])
        assert check["verdicts"][0]["action"] == action


TEMPLATE_ONLY: Json = {
    "apiVersion": "remediation.medik8s.io/v1alpha1",
    "kind": "NodeHealthCheck",
    "metadata": {"name": "defaults"},
    "spec": {"remediationTemplate": {"apiVersion": "a/v1", "kind": "SomeRemediationTemplate", "name": "some"}},
}
DEFAULTS: dict[str, Any] = yaml.safe_load(text("004-defaults"))


def without_names(check: HealthCheck) -> tuple[object, ...]:
    listed = {(each.type, each.status, each.duration) for each in check.conditions}
    return check.selector, listed, check.min_healthy, check.max_unhealthy, check.rungs, check.healthy_delay, check.storm_cooldown


def test_a_template_is_all_that_a_check_needs() -> None:
    check = parse(TEMPLATE_ONLY)
    (requirement,) = check.selector.requirements
    assert (requirement.key, requirement.operator) == ("node-role.kubernetes.io/worker", "Exists")
    assert str(check.max_unhealthy) == "49%"
    assert {(each.type, each.status, each.duration.seconds) for each in check.conditions} == {
        ("Ready", "Unknown", 300),
        ("Ready", "False", 300),
    }
    assert check.warnings == ()


def test_the_defaults_as_004_writes_them_are_those_of_a_check_without_them() -> None:
    """But for the two places where the text is no object: a duration without its name, and an unquoted False."""
    conditions = [DEFAULTS["unhealthyConditions"][0], {"type": "Ready", "status": "False", "duration": "300s"}]
    fields = {"selector": DEFAULTS["selector"], "maxUnhealthy": DEFAULTS["maxUnhealthy"], "unhealthyConditions": conditions}
    written = parse(with_spec(TEMPLATE_ONLY, **fields))
    assert without_names(written) == without_names(parse(TEMPLATE_ONLY))
    assert set(written.warnings) == {
        "spec.selector.matchingExpression was read as matchExpressions",
        "spec.selector.matchingExpression.Key was read as key",
        "spec.selector.matchingExpression was read as a list of one",
        "spec.unhealthyConditions[0].type NotReady was read as Ready",
    }


@pytest.mark.parametrize(
    ("name", "field"),
    [("unhealthyConditions", "spec.unhealthyConditions[1].300s"), ("remediationTemplate", "spec.remediationTemplate")],
)
def test_what_004_only_sketches_is_refused_with_its_place(name: str, field: str) -> None:
    answer = evaluated([with_spec(TEMPLATE_ONLY, **{name: DEFAULTS[name]}), *workers(5, 1)])
    (error,) = answer["errors"]
    assert (error["name"], error["field"]) == ("defaults", field)
    assert [(check["allowed"], check["verdicts"]) for check in answer["checks"]] == [(False, [])]


def test_a_backoff_is_the_pause_between_remediations_up_to_its_limit() -> None:
    backoff = yaml.safe_load(text("004-backoff").partition("# optional\n")[2])["backoff"]
    assert backoff == {"type": "exponential", "limit": "10m"}
    check = parse(with_spec(TEMPLATE_ONLY, backoff=backoff))
    assert check.warnings == ()
    assert check.retry == RetryRules(backoff=RetryBackoff(limit=timedelta(minutes=10)))


# Numbers of all three ---------------------------------------------------------------------------------------------------

NODES_BY_30_PERCENT = with_spec(TEMPLATE_ONLY, **yaml.safe_load(text("004-max-unhealthy"))["spec"])


@pytest.mark.parametrize(
    ("check", "limit", "total", "sick", "allowed"),
    [
        # 000 says "40% or more"; the shipped controller remediates at exactly 40 % (semantics.md).
        (OPENSHIFT, "40%", 5, 2, True),
        (OPENSHIFT, "40%", 5, 3, False),
        (OPENSHIFT, "40%", 10, 4, True),
        (OPENSHIFT, "40%", 10, 5, False),
        # The text: not where of 10 nodes 6 are unhealthy.
        (OPENSHIFT, "50%", 10, 5, True),
        (OPENSHIFT, "50%", 10, 6, False),
        (WORKERS, "40%", 25, 10, True),
        (WORKERS, "40%", 25, 11, False),
        (WORKERS, "40%", 6, 2, True),
        (WORKERS, "40%", 6, 3, False),
        (WORKERS, 2, 10, 2, True),
        (WORKERS, 2, 10, 3, False),
        (WORKERS, "100%", 3, 3, True),
        # Of 5: 2.45, rounded up as shipped.
        (mended(), "49%", 5, 3, True),
        (mended(), "49%", 5, 4, False),
        (NODES_BY_30_PERCENT, "30%", 10, 3, True),
        (NODES_BY_30_PERCENT, "30%", 10, 4, False),
    ],
)
def test_as_many_are_remediated_as_the_texts_say(check: Json, limit: object, total: int, sick: int, allowed: bool) -> None:
    pool, action = {
        "MachineHealthCheck machine.openshift.io/v1beta1": (openshift_pool, "delete-machine"),
        "MachineHealthCheck cluster.x-k8s.io/v1beta1": (capi_pool, "request-owner-remediation"),
        "NodeHealthCheck remediation.medik8s.io/v1alpha1": (workers, "create-remediation"),
    }[f"{check['kind']} {check['apiVersion']}"]
    found = the_check([with_spec(check, maxUnhealthy=limit), *pool(total, sick)])
    assert (found["targets"], found["unhealthy"], found["needRemediation"]) == (total, sick, sick)
    assert (found["allowed"], found["reason"]) == (allowed, "RemediationAllowed" if allowed else "TooManyUnhealthy")
    acted = [(each["target"], each["action"]) for each in found["verdicts"] if each["action"] != "none" and not each["heldBy"]]
    assert acted == ([(each["target"], action) for each in found["verdicts"][:sick]] if allowed else [])


def test_the_objects_of_all_three_texts_are_evaluated_side_by_side() -> None:
    """One directory, as somebody would hand it over: the whole objects are used, each other file is told."""
    found = list(read_files([str(SEEDS)]))
    unreadable = {Path(each.source.partition(", line ")[0]).stem for each in found if isinstance(each, Unreadable)}
    parts = {"004-backoff", "004-conditions", "004-max-unhealthy", "004-defaults"}
    assert unreadable == {"003-kubeadm-control-plane", "004-node-health-check", *parts}
    whole = [each.document for each in found if isinstance(each, Manifest)]
    answer = evaluated([*whole, mended(), *openshift_pool(5, 1), *capi_pool(6, 0)])
    placeholder = "metadata.name: expected a name as an API server takes it, got 'fence-config-[NODE_NAME]'"
    assert {each["message"].removeprefix("expected a ConfigMap: ") for each in answer["errors"]} == {placeholder}
    assert [check["name"] for check in answer["checks"]] == [
        "capi-quickstart-kcp-unhealthy-5m",
        "capi-quickstart-node-unhealthy-5m",
        "example",
        "example",
    ]
    assert json.loads(json.dumps(answer)) == answer
