"""Bad objects: each is one mistake with object, field and expectation, never a looser threshold, and holds up nothing else.

A table of single mistakes over the three dialects, walked through the whole offline road (loader, rules, JSON); then every
place of a complete object with whatever may stand there. How a file that is no YAML is told is
`tests/starter/test_manifests.py`.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import pytest

from activities.cluster.watch.offline import ClusterSnapshot
from policy.dialects import parse
from policy.scan.evaluation import evaluate
from policy.values.errors import PolicyError, shown
from starter.output.encoding import to_json
from starter.output.evaluation import as_model
from tests.documents import load
from tests.policy.builders import WORKER, check_object
from tests.vectors import objects
from tests.vectors.objects import NAMESPACE, NOW, Json, etcd_budget

ABSENT = object()
"""Instead of a value: the field is taken away."""

BIG = "x" * 1_000_000
LONG, MANY = "x" * 5_000, 2_500
"""Where every place of every object is tried: far beyond any message, and quickly written and read."""
LONGEST_MESSAGE = 500
"""Whatever stands in an object: the sentence about it is for people, and goes into a status and a workflow's history."""

TEMPLATE = {"apiVersion": "self-node-remediation.medik8s.io/v1alpha1", "kind": "SelfNodeRemediationTemplate", "name": "snr"}
OTHER_TEMPLATE = TEMPLATE | {"kind": "FenceAgentsRemediationTemplate", "name": "far"}

NHC, OPENSHIFT, FIRST, SECOND = "NodeHealthCheck", "OpenShift", "v1beta1", "v1beta2"
DIALECTS = (NHC, OPENSHIFT, FIRST, SECOND)


def a_machine_check(dialect: str, name: str) -> Json:
    listed = [{"type": "Ready", "status": status, "timeout_s": 300} for status in ("Unknown", "False")]
    spec: Json = {"selector": {"matchLabels": {"pool": "a"}}, "max_unhealthy": "60%", "node_startup_timeout_s": 600}
    if dialect == OPENSHIFT:
        check = objects.openshift_check(spec | {"unhealthy_conditions": listed})
    else:
        drains = [{"type": "DrainFailed", "status": "True", "timeout_s": 300}]
        spec |= {"cluster_name": "prod", "unhealthy_node_conditions": listed, "unhealthy_machine_conditions": drains}
        check = objects.cluster_api_check(spec, version=dialect)
    check["metadata"] |= {"name": name, "uid": f"uid-of-{name}", "generation": 1}
    return check


def a_good_check(dialect: str, name: str = "good") -> Json:
    """One that acts on the one sick target of `a_world`."""
    if dialect == NHC:
        return check_object(name, remediationTemplate=TEMPLATE)
    return a_machine_check(dialect, name)


def changed(obj: Json, changes: Mapping[str, object]) -> Json:
    """The object with other values at these paths; a number is an index of a list."""
    found = copy.deepcopy(obj)
    for path, value in changes.items():
        *steps, last = [int(step) if step.isdigit() else step for step in path.split(" ")]
        place: Any = found
        for step in steps:
            place = place[step]
        if value is ABSENT:
            del place[last]
        else:
            place[last] = value
    return found


def a_node_object(name: str, *, ready: str = "True") -> Json:
    conditions = [{"type": "Ready", "status": ready, "age_s": 3600}]
    return objects.node({"name": name, "labels": {WORKER: ""}, "conditions": conditions})


def a_machine_object(dialect: str, name: str) -> Json:
    """The Machine of the Node of the same name."""
    given = {"name": name, "labels": {"pool": "a"}, "node_ref": name, "cluster": "prod", "controller_owner": True}
    if dialect == OPENSHIFT:
        return objects.openshift_machine(given | {"last_updated_age_s": 9999})
    return objects.cluster_api_machine(given | {"created_age_s": 9999}, version=dialect)


def a_cluster_object(dialect: str) -> Json:
    ages = {"control_plane_initialized_age_s": 9999, "infrastructure_ready_age_s": 9999}
    return objects.workload_cluster(ages | {"paused": False}, "prod", version=dialect)


def a_world(dialect: str) -> list[Json]:
    """Three targets, of which one is sick."""
    found = [a_node_object("n1", ready="Unknown"), a_node_object("n2"), a_node_object("n3")]
    if dialect != NHC:
        found += [a_machine_object(dialect, name) for name in ("n1", "n2", "n3")]
    if dialect in {FIRST, SECOND}:
        found.append(a_cluster_object(dialect))
    return found


ACTIONS = {NHC: "create-remediation", OPENSHIFT: "delete-machine", FIRST: "request-owner-remediation"}
ACTIONS[SECOND] = ACTIONS[FIRST]


def loaded(found: list[Json]) -> ClusterSnapshot:
    return load([(obj, "cluster.yaml") for obj in found], NOW)


def answer_of(cluster: ClusterSnapshot) -> Json:
    return json.loads(to_json(as_model(evaluate(cluster.ledger.known(NOW)), cluster.mistakes)))


def assert_still_evaluated(answer: Json, dialect: str, check: str = "good") -> None:
    """The good check of the same file says what it would say alone."""
    (good,) = [each for each in answer["checks"] if each["name"] == check]
    assert (good["targets"], good["healthy"], good["allowed"]) == (3, 2, True)
    verdicts = {each["target"]: (each["verdict"], each["action"], each["heldBy"]) for each in good["verdicts"]}
    assert verdicts == {
        "n1": ("unhealthy", ACTIONS[dialect], None),
        "n2": ("healthy", "none", None),
        "n3": ("healthy", "none", None),
    }


@dataclass(frozen=True, kw_only=True)
class Bad:
    """One mistake. changes: paths (steps apart by blanks) with what stands there. name: what the error calls the object."""

    dialect: str
    changes: Mapping[str, object]
    field: str
    expectation: str
    name: str

    @property
    def obj(self) -> Json:
        return changed(a_good_check(self.dialect, "bad"), self.changes)


Listed = tuple[Mapping[str, object], str] | tuple[Mapping[str, object], str, str]


def rows(dialects: Iterable[str], *listed: Listed, name: str = "bad") -> list[Bad]:
    """Of each of these dialects: changes, what the error expects, and its field where that is not the last change's path."""
    return [
        Bad(dialect=dialect, changes=changes, field=at[0] if at else dotted([*changes][-1]), expectation=expectation, name=name)
        for dialect in dialects
        for changes, expectation, *at in listed
    ]


def dotted(path: str) -> str:
    """A path as errors write it."""
    return re.sub(r"\.(\d+)", r"[\1]", path.replace(" ", "."))


SELECTOR = "spec selector"
EXPRESSIONS = "spec selector matchExpressions"
LABELS = "spec selector matchLabels"
CONDITIONS = "spec unhealthyConditions"
RUNG = {"order": 1, "timeout": "60s", "remediationTemplate": TEMPLATE}
OTHER_RUNG = {"order": 2, "timeout": "60s", "remediationTemplate": OTHER_TEMPLATE}
DELETES = TEMPLATE | {"kind": "MachineDeletionRemediationTemplate"}
OURS = {"apiVersion": "nodewarden.io/v1alpha1", "kind": "FencingTemplate", "name": "bmc"}


def expression(**fields: object) -> dict[str, object]:
    return {EXPRESSIONS: [fields]}


def ladder(*rungs: object) -> dict[str, object]:
    return {"spec remediationTemplate": ABSENT, "spec escalatingRemediations": list(rungs)}


FIRST_EXPRESSION = dotted(f"{EXPRESSIONS} 0")
FIRST_RUNG, SECOND_RUNG = "spec.escalatingRemediations[0]", "spec.escalatingRemediations[1]"

OF_EVERY_DIALECT = [
    *rows(
        DIALECTS,
        ({"spec": ABSENT}, "expected an object, got nothing"),
        ({"specs": {}}, "is not a known field; expected one of apiVersion, kind, metadata, spec, status"),
        ({"spec selectors": None}, "is not a known field; expected one of "),
        ({SELECTOR: {"pool": "a"}}, "is not a known field; expected one of match", "spec.selector.pool"),
        ({f"{LABELS} a": True}, "expected a string (quote it)"),
        ({LABELS: {"a b": "c"}}, "expected a label key", "spec.selector.matchLabels.a b"),
        (expression(key="a", operator="Is"), "expected one of In, NotIn", f"{FIRST_EXPRESSION}.operator"),
        (expression(operator="Exists"), "expected a non-empty string", f"{FIRST_EXPRESSION}.key"),
        (expression(key="not a key", operator="DoesNotExist"), "expected a label key", f"{FIRST_EXPRESSION}.key"),
        (expression(key="a", operator="In"), "at least one", f"{FIRST_EXPRESSION}.values"),
        (expression(key="a", operator="DoesNotExist", values=["b"]), "expected none with", f"{FIRST_EXPRESSION}.values"),
        ({"metadata generation": -1}, "expected a whole number of at least 0, got -1"),
    ),
    *rows(DIALECTS, ({"metadata": ABSENT}, "expected an object, got nothing"), name=""),
    *rows(DIALECTS, ({"metadata name": ABSENT}, "expected a non-empty string, got nothing"), name=""),
    *rows(DIALECTS, ({"metadata name": ["bad"]}, "expected a non-empty string, got ['bad']"), name="['bad']"),
]

TIMED = [  # where durations are text
    bad
    for dialect, name in ((NHC, "duration"), (OPENSHIFT, "timeout"), (FIRST, "timeout"))
    for bad in rows(
        [dialect],
        ({CONDITIONS: [{}] * 101}, "at most 100 entries, got 101"),
        ({f"{CONDITIONS} 0 type": ""}, "expected a non-empty string, got ''"),
        ({f"{CONDITIONS} 0 timeouts": "5m"}, "is not a known field"),
        ({f"{CONDITIONS} 0 {name}": ABSENT}, 'expected a duration such as "300s", of at least 0s, got nothing'),
        ({f"{CONDITIONS} 0 {name}": "5 minutes"}, "expected a duration with units"),
        ({f"{CONDITIONS} 0 {name}": "-5m"}, "expected a duration of at least 0s, got '-5m'"),
        ({f"{CONDITIONS} 0 {name}": "1" * 65 + "s"}, 'expected a duration such as "300s"'),
    )
]

OF_NODES = rows(
    [NHC],
    ({"apiVersion": "remediation.medik8s.io/v2"}, "expected remediation.medik8s.io/v1alpha1, got "),
    ({SELECTOR: {}}, "expected matchLabels or matchExpressions"),
    ({SELECTOR: {"matchLabels": {}, "matchExpressions": []}}, "an empty selector would take every node"),
    (
        {SELECTOR: {"matchingExpression": {"key": "a", "operator": "Exists"}, "matchExpressions": []}},
        *("expected only one of matchExpressions and matchingExpression", "spec.selector.matchingExpression"),
    ),
    ({CONDITIONS: []}, "expected at least one condition"),
    ({"spec maxUnhealthy": 1}, "expected only one of minHealthy and maxUnhealthy, got both"),
    ({"spec minHealthy": ABSENT, "spec maxUnhealthy": -1}, "got -1"),
    ({"spec minHealthy": -1}, "must not be negative"),
    ({"spec minHealthy": "101%"}, 'a percentage from "0%" to "100%", got \'101%\''),
    ({"spec minHealthy": 10**9}, "got 1000000000"),
    ({"spec remediationTemplate": DELETES, "spec minHealthy": ABSENT}, "maxUnhealthy can't be used"),
    ({"spec remediationTemplate": DELETES, "spec maxUnhealthy": 1, "spec minHealthy": ABSENT}, "maxUnhealthy can't be used"),
    ({"spec remediationTemplate": ABSENT}, "expected, or escalatingRemediations"),
    # A namespace that was misspelt is one that was not given: the template would be looked for elsewhere.
    ({"spec remediationTemplate namespcae": "remediators"}, "is not a known field"),
    ({"spec remediationTemplate": OURS}, "the namespace of the FencingTemplate", "spec.remediationTemplate.namespace"),
    (
        {"spec remediationTemplate": TEMPLATE | {"kind": "Metal3RemediationTemplate"}},
        *("expected openshift-machine-api for a Metal3RemediationTemplate", "spec.remediationTemplate.namespace"),
    ),
    ({"spec escalatingRemediations": [RUNG]}, "expected only one of remediationTemplate"),
    (ladder(), "one of template and escalating remediations is mandatory", "spec.remediationTemplate"),
    (ladder(RUNG, OTHER_RUNG | {"order": 1}), "got 1 twice", f"{SECOND_RUNG}.order"),
    (ladder(RUNG | {"timeout": "59s"}), "of at least 1m, got '59s'", f"{FIRST_RUNG}.timeout"),
    (ladder(RUNG | {"retries": 3}), "is not a known field", f"{FIRST_RUNG}.retries"),
    (
        ladder(RUNG, OTHER_RUNG | {"remediationTemplate": TEMPLATE}),
        "expected every kind once, or another template of it, got SelfNodeRemediationTemplate snr twice",
        f"{SECOND_RUNG}.remediationTemplate.kind",
    ),
    ({"spec healthyDelay": "876001h"}, "at most 876000h, got '876001h'"),
    ({"spec stormCooldownDuration": "-1s"}, "of at least 0s, got '-1s'"),
    ({"spec stormTerminationDelay": "5m"}, "is not a known field"),
    ({"spec backoff": {"type": "linear"}}, "expected exponential or none, got 'linear'", "spec.backoff.type"),
    ({"spec backoff": {"type": "exponential", "limit": "10"}}, "with units", "spec.backoff.limit"),
    ({"spec backoff": {"type": "exponential", "max": "10m"}}, "is not a known field", "spec.backoff.max"),
)

OF_MACHINES = [
    bad
    for dialect in (OPENSHIFT, FIRST, SECOND)
    for template in ["spec remediation templateRef" if dialect == SECOND else "spec remediationTemplate"]
    for bad in rows(
        [dialect],
        ({"metadata namespace": ""}, "expected a non-empty string, got ''"),
        ({template: TEMPLATE | {"nmae": "x"}}, "is not a known field", dotted(f"{template} nmae")),
        ({template: {"kind": "T", "name": "t"}}, "expected a non-empty string, got nothing", dotted(f"{template} apiVersion")),
        (
            {template: TEMPLATE | {"namespace": "x"}},
            "expected the check's own namespace, got 'x'",
            dotted(f"{template} namespace"),
        ),
    )
]

OF_OPENSHIFT = rows(
    [OPENSHIFT],
    ({"apiVersion": "machine.openshift.io/v1"}, "expected machine.openshift.io/v1beta1, got "),
    (expression(key="a", operator="EXISTS"), "expected one of In", f"{FIRST_EXPRESSION}.operator"),
    ({CONDITIONS: []}, "expected at least one condition"),
    ({"spec maxUnhealthy": "many"}, "expected a whole number of at least 0"),
    ({"spec maxUnhealthy": "101%"}, "got '101%'"),
    ({"spec minHealthy": 1}, "is not a known field"),
    ({"spec nodeStartupTimeout": "-10m"}, "of at least 0s, got '-10m'"),
)

OF_CLUSTER_API = rows(
    [FIRST, SECOND],
    ({"apiVersion": "cluster.x-k8s.io/v1"}, "expected cluster.x-k8s.io/v1beta1 or cluster.x-k8s.io/v"),
    ({"spec clusterName": ABSENT}, "expected a non-empty string, got nothing"),
    ({SELECTOR: {}}, "an empty selector is refused"),
    ({f"{LABELS} cluster.x-k8s.io/cluster-name": "test"}, "expected spec.clusterName 'prod', got 'test'"),
)

RANGES = ["[5-3]", "3-5", "[3,5]", "[3-5", "[a-b]", "[-1-3]", "[3-]", "[3 - 5]", "[3-5000000000]", "", 5, [3, 5]]
NOT_OF_MACHINES = ("Ready", "Available", "HealthCheckSucceeded", "OwnerRemediated", "ExternallyRemediated")
"""What Cluster API writes itself is no condition that a check may ask for."""

OF_FIRST = rows(
    [FIRST],
    ({"spec maxUnhealthy": "10"}, "a number must not be quoted, got '10'"),
    ({"spec maxUnhealthy": "101%"}, "got '101%'"),
    ({"spec nodeStartupTimeout": "29s"}, "expected 0 or at least 30s, got '29s'"),
    ({"spec nodeStartupTimeout": "1ns"}, "expected 0 or at least 30s, got '1ns'"),
    ({"spec nodeStartupTimeout": "-30s"}, "of at least 0s, got '-30s'"),
    ({"spec checks": {}}, "is not a known field"),
    *(({"spec unhealthyRange": written}, "expected ") for written in RANGES),
    *(({"spec unhealthyMachineConditions 0 type": kind}, f", got '{kind}'") for kind in NOT_OF_MACHINES),
    ({"spec unhealthyMachineConditions 0 status": "true"}, "expected one of True, False, Unknown, got 'true'"),
)

OF_NODE, OF_MACHINE = "spec checks unhealthyNodeConditions", "spec checks unhealthyMachineConditions"
STARTUP = "spec checks nodeStartupTimeoutSeconds"
TRIGGER = "spec remediation triggerIf"
OF_SECOND = rows(
    [SECOND],
    ({"spec maxUnhealthy": "40%"}, "expected one of checks, clusterName, remediation, selector"),
    ({f"{TRIGGER} range": "[1-2]"}, "is not a known field"),
    ({f"{TRIGGER} unhealthyLessThanOrEqualTo": "10"}, "a number must not be quoted"),
    ({f"{TRIGGER} unhealthyLessThanOrEqualTo": "200%"}, "got '200%'"),
    *(({f"{TRIGGER} unhealthyInRange": written}, "expected ") for written in RANGES),
    ({STARTUP: 29}, "expected 0 or at least 30, got 29"),
    ({STARTUP: 1}, "expected 0 or at least 30, got 1"),
    ({STARTUP: -30}, "at least 0 and at most 2147483647, got -30"),
    ({STARTUP: 2**31}, "at most 2147483647, got 2147483648"),
    ({OF_NODE: []}, "at least one condition"),
    ({OF_MACHINE: []}, "at least one"),
    ({f"{OF_NODE} 0 timeoutSeconds": ABSENT}, "expected a whole number of at least 0 and at most 2147483647, got nothing"),
    ({f"{OF_NODE} 0 timeoutSeconds": -1}, "got -1"),
    ({f"{OF_NODE} 0 timeoutSeconds": 2**31}, "got 2147483648"),
    *(({f"{OF_MACHINE} 0 type": kind}, f"{', '.join(NOT_OF_MACHINES)}, got '{kind}'") for kind in NOT_OF_MACHINES),
)

TABLE = [*OF_EVERY_DIALECT, *TIMED, *OF_NODES, *OF_MACHINES, *OF_OPENSHIFT, *OF_CLUSTER_API, *OF_FIRST, *OF_SECOND]


@pytest.mark.parametrize("dialect", sorted({bad.dialect for bad in TABLE}))
def test_one_mistake_is_one_refusal_that_names_object_field_and_expectation(dialect: str) -> None:
    """A check that nobody can read must be seen among the others, with no verdict that somebody could take for its own. It may
    not act, and the good one goes on.
    """
    for bad in (each for each in TABLE if each.dialect == dialect):
        answer = answer_of(loaded([bad.obj, a_good_check(dialect), *a_world(dialect)]))
        (error,) = answer["errors"]
        assert (error["kind"], error["name"], error["field"]) == (bad.obj["kind"], bad.name, bad.field)
        assert (error["apiVersion"], error["source"]) == (bad.obj["apiVersion"], "cluster.yaml")
        assert error["message"].startswith(f"{bad.field}: ")
        assert bad.expectation in error["message"]
        assert len(error["message"]) < LONGEST_MESSAGE
        assert len(answer["checks"]) == 2, bad
        (listed,) = [each for each in answer["checks"] if each["name"] != "good"]
        assert (listed["name"], listed["allowed"], listed["reason"]) == (bad.name, False, "InvalidObject")
        assert (listed["verdicts"], listed["targets"], listed["remediationsAllowed"]) == ([], 0, 0), bad
        assert listed["message"] == error["message"]
        assert_still_evaluated(answer, dialect)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_check_that_becomes_bad_admits_no_node_any_more(dialect: str) -> None:
    """Its last good version must not go on acting behind the back of the person who has changed it."""
    good, world = a_good_check(dialect, "bad"), a_world(dialect)
    assert [each.node for each in loaded([good, *world]).ledger.report_parts(NOW).candidates] == ["n1"]
    cluster = loaded([good, *world, changed(good, {SELECTOR: 7})])
    assert cluster.ledger.report_parts(NOW).candidates == ()
    answer = answer_of(cluster)
    assert [(each["name"], each["allowed"], each["verdicts"]) for each in answer["checks"]] == [("bad", False, [])]
    assert len(answer["errors"]) == 1


STORM = [
    {"type": kind, "status": "True", "lastTransitionTime": "2026-03-01T11:00:00Z"}
    for kind in ("StormActive", "StormCooldownActive")
]


def complete(dialect: str) -> Json:
    """A good check in which every kind of field occurs."""
    check = a_good_check(dialect, "whole")
    spec = check["spec"]
    spec["selector"]["matchExpressions"] = [
        {"key": "a", "operator": "NotIn", "values": ["b"]},
        {"key": "c", "operator": "DoesNotExist"},
    ]
    check["metadata"]["annotations"] = {"a": "b"}
    match dialect:
        case "NodeHealthCheck":
            del spec["remediationTemplate"]
            spec |= {"escalatingRemediations": [RUNG, OTHER_RUNG], "pauseRequests": ["me"], "healthyDelay": "5m"}
            spec |= {"stormCooldownDuration": "5m", "backoff": {"type": "exponential", "limit": "10m"}}
            check["status"] = {"conditions": STORM, "unhealthyNodes": []}
        case "OpenShift":
            spec["remediationTemplate"] = TEMPLATE | {"namespace": NAMESPACE}
        case "v1beta1":
            spec |= {"remediationTemplate": TEMPLATE | {"namespace": NAMESPACE}, "unhealthyRange": "[3-5]"}
        case _:
            spec["remediation"]["templateRef"] = TEMPLATE
            spec["remediation"]["triggerIf"]["unhealthyInRange"] = "[3-5]"
    return copy.deepcopy(check)


def places(value: object, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Every path of an object but the root's and that of its kind, by which it is recognised."""
    steps: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in steps:
        if (*path, str(step)) not in {("apiVersion",), ("kind",)}:
            yield " ".join((*path, str(step)))
            yield from places(inner, (*path, str(step)))


EVERY_PLACE = [(dialect, path) for dialect in DIALECTS for path in places(complete(dialect))]

WRONG: list[Any] = [None, True, 0, -1, 7, 1.5, "", "text", "2026-03-01T11:00:00Z", [], ["text"], [[]], {}, {"a": {}}, [{"a": []}]]


def refusal_of(obj: Json) -> PolicyError | None:
    try:
        parse(obj)
    except PolicyError as error:
        return error
    return None


TOO_MUCH: list[Any] = [LONG, [LONG], {"a": LONG}, {"type": LONG, "status": LONG}, [0] * MANY]


NUMBER_OR_TEXT = {"spec minHealthy", "spec maxUnhealthy", "spec remediation triggerIf unhealthyLessThanOrEqualTo"}
OF_OTHERS = ("status", "metadata annotations a")
"""What other programs write, and annotations that say nothing to us."""


def kind_of(value: object) -> str:
    return "number" if type(value) in {int, float} else type(value).__name__


@pytest.mark.parametrize("dialect", sorted({dialect for dialect, _ in EVERY_PLACE}))
def test_whatever_stands_somewhere_is_taken_or_is_one_refusal_in_a_few_words(dialect: str) -> None:
    """What is of another type than belongs there is never taken: the refusal names its place, or the list that it stands in."""
    assert refusal_of(complete(dialect)) is None
    for path in (path for of, path in EVERY_PLACE if of == dialect):
        there: Any = complete(dialect)
        for step in path.split(" "):
            there = there[int(step) if step.isdigit() else step]
        types = {kind_of(None), kind_of(there)} | ({"number", "str"} if path in NUMBER_OR_TEXT else set())
        for value in (*WRONG, *TOO_MUCH):
            obj = changed(complete(dialect), {path: value})
            error = refusal_of(obj)
            if kind_of(value) not in types and not path.startswith(OF_OTHERS):
                assert error is not None, (path, value)
                assert error.field.startswith(re.sub(r"\[\d+\]$", "", dotted(path))), (path, value)
            if error is not None:
                assert error.field, (path, value)
                assert len(str(error)) < LONGEST_MESSAGE, (path, value)
                if value in TOO_MUCH:
                    (told,) = answer_of(loaded([obj]))["errors"]
                    assert len(told["message"]) < LONGEST_MESSAGE, (path, value)


UNBOUNDED: dict[str, tuple[str, dict[str, object]]] = {
    "a field": (NHC, {f"spec {BIG}": 1}),
    "a label": (NHC, {SELECTOR: {"matchLabels": {BIG: "a"}}}),
    "a version": (NHC, {"apiVersion": f"remediation.medik8s.io/{BIG}"}),
    "a kind that occurs twice": (
        NHC,
        ladder(*(RUNG | {"order": order, "remediationTemplate": TEMPLATE | {"kind": BIG}} for order in (1, 2))),
    ),
    "the name of the object": (NHC, {"metadata name": BIG, SELECTOR: 7}),
}


@pytest.mark.parametrize("case", UNBOUNDED)
def test_a_megabyte_as_a_name_is_told_in_a_few_words(case: str) -> None:
    dialect, changes = UNBOUNDED[case]
    error = refusal_of(changed(a_good_check(dialect, "bad"), changes))
    assert error is not None
    assert len(str(error)) < LONGEST_MESSAGE


ODD: list[Any] = [10**20, float("nan"), float("-inf"), b"51%", {"51%"}]


@pytest.mark.parametrize("value", ODD)
def test_what_only_yaml_can_say_is_a_mistake_of_its_field_and_never_the_default(value: object) -> None:
    """Numbers beyond 64 bits, `.nan` and `.inf`, `!!binary` and `!!set`. A threshold that can't be read must not become one that
    nobody has written."""
    bad = changed(a_good_check(NHC, "bad"), {"spec minHealthy": value})
    answer = answer_of(loaded([bad, a_good_check(NHC), *a_world(NHC)]))
    (error,) = answer["errors"]
    assert (error["name"], error["field"]) == ("bad", "spec.minHealthy")
    assert [(each["name"], each["allowed"]) for each in answer["checks"]] == [("bad", False), ("good", True)]


def test_a_check_that_is_nested_as_deep_as_json_is_read_holds_up_no_other() -> None:
    """How deep that is differs from process to process."""
    deep = changed(a_good_check(NHC, "worse"), {"status": orjson.loads("[" * 1000 + "]" * 1000)})
    assert_still_evaluated(answer_of(loaded([deep, a_good_check(NHC), *a_world(NHC)])), NHC)


STATUSES: list[Any] = [
    "fine",
    {"conditions": ["StormActive"]},
    {"conditions": [{"type": "StormActive", "status": "True"}]},
    {"conditions": [{"type": "StormActive", "status": "True", "lastTransitionTime": "noon"}]},
    {"conditions": [{"type": 7, "status": "True", "lastTransitionTime": 7}], "unhealthyNodes": 7},
]


@pytest.mark.parametrize("status", STATUSES)
def test_a_status_that_can_not_be_read_makes_no_bad_check(status: object) -> None:
    """A status is no configuration: another program wrote it, and whoever wrote the check can't mend it."""
    answer = answer_of(loaded([a_good_check(NHC) | {"status": status}, *a_world(NHC)]))
    assert answer["errors"] == []
    assert_still_evaluated(answer, NHC)


def test_a_storm_without_a_moment_goes_on() -> None:
    """The stricter of the two readings."""
    stormy = changed(a_good_check(NHC), {"spec stormCooldownDuration": "5m"}) | {"status": STATUSES[2]}
    (check,) = answer_of(loaded([stormy, *a_world(NHC)]))["checks"]
    assert (check["allowed"], check["reason"]) == (False, "StormActive")


BAD_NODES: list[tuple[dict[str, object], str]] = [
    ({"metadata": ABSENT}, "metadata.name"),
    ({"metadata name": 7}, "$.metadata.name"),
    ({"metadata labels": {"a": True}}, "$.metadata.labels"),
    ({"spec": "x"}, "$.spec"),
    ({"status conditions": {"type": "Ready"}}, "$.status.conditions"),
    ({"status conditions": ["Ready"]}, "$.status.conditions[0]"),
]
BAD_NODES_ONLY: list[tuple[dict[str, object], str]] = [
    ({"status conditions 0 status": True}, "$.status.conditions[0].status"),
    ({"status conditions 0 lastTransitionTime": "2026-02-30T00:00:00Z"}, "$.status.conditions[0].lastTransitionTime"),
]
BAD_MACHINES_ONLY: list[tuple[dict[str, object], str]] = [
    ({"metadata creationTimestamp": "yesterday"}, "$.metadata.creationTimestamp"),
    ({"status nodeRef": "n4"}, "$.status.nodeRef"),
]


def bad_targets() -> list[Any]:
    rows: list[tuple[str, str, dict[str, object], str]] = [(NHC, "Node", *each) for each in (*BAD_NODES, *BAD_NODES_ONLY)]
    for dialect in (OPENSHIFT, FIRST, SECOND):
        rows += [(dialect, "Machine", *each) for each in (*BAD_NODES, *BAD_MACHINES_ONLY)]
    return [pytest.param(*each, id=f"{each[0]}-{each[1]}-{next(iter(each[2]))}-{index}") for index, each in enumerate(rows)]


@pytest.mark.parametrize(("dialect", "kind", "changes", "where"), bad_targets())
def test_a_bad_target_is_one_mistake_and_holds_up_no_other(
    dialect: str, kind: str, changes: dict[str, object], where: str
) -> None:
    good = a_node_object("n4", ready="Unknown") if kind == "Node" else a_machine_object(dialect, "n4")
    good["status"].setdefault("conditions", [])
    bad = changed(good, changes)
    answer = answer_of(loaded([bad, a_good_check(dialect), *a_world(dialect)]))
    (error,) = answer["errors"]
    metadata = bad["metadata"] if isinstance(bad.get("metadata"), dict) else {}
    name = metadata.get("name", "")
    assert (error["kind"], error["name"], error["field"]) == (kind, name if isinstance(name, str) else shown(name), None)
    assert error["message"].startswith(f"expected a {kind}: ")
    assert where in error["message"]
    assert len(error["message"]) < LONGEST_MESSAGE
    assert len(answer["checks"]) == 1
    assert_still_evaluated(answer, dialect)


EDGES = ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"]
"""Moments that every API server stores, and that can't be added to or written in UTC."""


SICK = a_node_object("n4", ready="Unknown")
AT_THE_EDGE = [
    *(pytest.param(NHC, changed(SICK, {"status conditions 0 lastTransitionTime": each}), id=f"a Node {each}") for each in EDGES),
    *(
        pytest.param(dialect, changed(a_machine_object(dialect, "n4"), {field: EDGES[0], "status nodeRef": None}), id=field)
        for dialect, field in ((SECOND, "metadata creationTimestamp"), (OPENSHIFT, "status lastUpdated"))
    ),
]


@pytest.mark.parametrize(("dialect", "edge"), AT_THE_EDGE)
def test_what_is_at_the_edge_of_the_calendar_holds_up_no_other(dialect: str, edge: Json) -> None:
    """Whoever may write a Node's status must not be able to silence the watch over all others."""
    others = a_good_check(dialect)
    if dialect == NHC:
        others["spec"]["minHealthy"] = 2
    answer = answer_of(loaded([others, edge, *a_world(dialect)]))
    (good,) = [check for check in answer["checks"] if check["name"] == "good"]
    assert {each["target"]: each["action"] for each in good["verdicts"]}["n1"] == ACTIONS[dialect]


def test_a_storm_at_the_edge_of_the_calendar_holds_up_no_other() -> None:
    edge = changed(complete(NHC), {"status conditions 1 lastTransitionTime": EDGES[0]})
    answer = answer_of(loaded([edge, a_good_check(NHC), *a_world(NHC)]))
    assert {check["name"] for check in answer["checks"]} == {"good", "whole"}


def test_a_bad_budget_is_one_mistake_and_not_that_of_the_next_one() -> None:
    bad = changed(etcd_budget(0, 1), {"status disruptionsAllowed": "some"})
    answer = answer_of(loaded([bad, etcd_budget(1, 1), a_good_check(NHC), *a_world(NHC)]))
    assert [error["name"] for error in answer["errors"]] == ["etcd-guard-pdb-0"]
