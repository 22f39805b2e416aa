"""`FenceConfig`: which one holds for a node, what it means, and that its schema says the same."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from policy.fence.config import FenceConfig, shown_config, shown_parameters
from policy.fence.kdump import KdumpRule
from policy.fence.plan import Act, CredentialKind, CredentialRef, CutStorage, Freeing
from policy.fence.plan_compiler import compile_config
from policy.fence.template_reader import (
    CREDENTIAL_FIELDS,
    DEVICE_FIELDS,
    KDUMP_FIELDS,
    METHOD_FIELDS,
    NODE_FIELDS,
    SECRET_FIELDS,
    SPEC_FIELDS,
    STORAGE_FIELDS,
    FenceConfigReader,
    FenceConfigs,
)
from policy.values.errors import PolicyError
from tests.documents import document, encoded
from tests.policy.builders import node

EC2 = "aws:///us-east-1a/i-0123456789abcdef0"

BMC: dict[str, Any] = {
    "driver": "ipmi",
    "parameters": {"ip": "{{ .NodeName }}.bmc"},
    "secretRef": {"name": "bmc-{{ .NodeName }}", "namespace": "nodewarden"},
}
PDU: dict[str, Any] = {
    "name": "supply-a",
    "driver": "fence-eaton-snmp",
    "parameters": {"ip": "10.0.0.9"},
    "nodeParameters": {"n1": {"plug": 3}},
}
SWITCH: dict[str, Any] = {"driver": "fence_brocade", "parameters": {"ip": "10.0.0.8"}, "nodeParameters": {"n1": {"plug": 2}}}


def an_object(name: str = "all", **spec: object) -> dict[str, object]:
    return {
        "apiVersion": "nodewarden.io/v1alpha1",
        "kind": "FenceConfig",
        "metadata": {"name": name},
        "spec": {"power": [BMC]} | spec,
    }


def the_config(**spec: object) -> FenceConfig:
    wanted = {"power": [BMC]} | spec
    found = an_object() | {"spec": {key: value for key, value in wanted.items() if value is not None}}
    return FenceConfigReader(found).of(node(provider_id=EC2))


def bmc(**fields: object) -> dict[str, object]:
    return {"power": [BMC | fields]}


def first(**method: object) -> dict[str, object]:
    """The only method of the isolation."""
    return {"isolation": [method]}


ALL = an_object("all")
OF_TYPE = an_object("compute", nodeSelector={"matchLabels": {"type": "compute"}})
OF_NODE = an_object("n1", nodeName="n1")


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ([ALL, OF_TYPE, OF_NODE], "n1"),
        ([ALL, OF_TYPE], "compute"),
        ([ALL], "all"),
        ([an_object("n2", nodeName="n2")], None),
        ([], None),
    ],
)
def test_the_most_specific_one_holds_as_a_whole(objects: list[dict[str, Any]], expected: str | None) -> None:
    """S11."""
    found = FenceConfigs(objects).holding(node(type="compute"))
    assert (found and found.name) == expected


@pytest.mark.parametrize(
    ("objects", "problem"),
    [
        ([ALL, an_object("other")], "Node/n1: FenceConfig: several of the same rank are about it: all, other; expected one"),
        (
            [OF_NODE, an_object("bad", nodeSelector={"matchLabel": {}})],
            "FenceConfig/bad: spec.nodeSelector.matchLabel: is not a known",
        ),
        ([an_object("bad", nodeName="n1", nodeSelector={})], "FenceConfig/bad: spec.nodeSelector: nodeName is written, too"),
        ([an_object("bad", nodeName=7)], "FenceConfig/bad: spec.nodeName: expected a non-empty string"),
    ],
)
def test_where_it_cannot_be_told_which_holds_nothing_does(objects: list[dict[str, Any]], problem: str) -> None:
    with pytest.raises(PolicyError) as refusal:
        FenceConfigs(objects).holding(node())
    assert problem in str(refusal.value)


def test_it_means_what_the_other_spellings_mean() -> None:
    """Omitted isolation and recovery are empty steps, as in a ConfigMap."""
    found = the_config()
    assert (found.errors, found.isolation, found.recovery) == ((), (), ())
    shown = encoded(shown_config(found))
    assert (shown["config"], shown["source"]) == ("all", "FenceConfig")
    assert shown["steps"]["power-management"] == [
        {
            "method": "ipmi",
            "template": "",
            "driver": "ipmi",
            "action": "reboot",
            "parameters": {
                "ip": "n1.bmc",
                "username": "secret:nodewarden/bmc-n1#username",
                "password": "secret:nodewarden/bmc-n1#password",
            },
            "level": 1,
        }
    ]


def test_levels_of_devices_and_everything_else_reaches_the_plan() -> None:
    """S4: all of a level."""
    plan = compile_config(
        the_config(
            power=None,
            powerLevels=[
                {"devices": [BMC | {"delay": "5s", "timeout": "90s"}]},
                {"devices": [PDU, PDU | {"nodeParameters": {"n1": {"plug": "4"}}}]},
            ],
            isolation=[
                {"method": "mark-unschedulable"},
                {"method": "taint", "parameters": {"key": "example.org/fenced", "effect": "NoSchedule"}, "tries": 2},
                SWITCH | {"name": "cut", "action": "off", "timeout": "20s", "storage": {"drivers": ["iscsi.csi"]}},
                {"method": "free-pods"},
            ],
            recovery=[SWITCH | {"name": "mend", "action": "on"}, {"method": "mark-schedulable"}],
            kdump={"window": "30s", "trusted": True},
            freeing="deletion",
            waitBeforeIsolation="10s",
            tries=4,
            restarts=2,
        ),
        after_health_check=False,
    )
    assert [[device.endpoint for device in level] for level in plan.levels] == [
        ["ipmi://n1.bmc:623"],
        ["fence_eaton_snmp://10.0.0.9:161/3", "fence_eaton_snmp://10.0.0.9:161/4"],
    ]
    first = plan.devices[0]
    assert (first.delay, first.off_timeout) == (timedelta(seconds=5), timedelta(seconds=90))
    assert [(method.name, method.act, method.tries) for method in plan.isolation] == [
        ("mark-unschedulable", Act.CORDON, None),
        ("taint", Act.TAINT, 2),
        ("cut", Act.CUT_PATH, None),
        ("free-pods", Act.FREE_CUT_PODS, None),
    ]
    assert [(method.name, method.act) for method in plan.recovery] == [
        ("mend", Act.RESTORE_PATH),
        ("mark-schedulable", Act.UNCORDON),
    ]
    assert plan.isolation[2].storage == CutStorage(drivers=("iscsi.csi",))
    assert plan.kdump == KdumpRule(window=timedelta(seconds=30), trusted=True)
    assert (plan.freeing, plan.delete_node, plan.power_on) == (Freeing.DELETION, False, True)
    assert (plan.wait_before_isolation, plan.tries, plan.restarts) == (timedelta(seconds=10), 4, 2)


def test_the_node_is_deleted_where_nothing_else_needs_its_mark() -> None:
    assert compile_config(the_config(deleteNode=True)).delete_node


def test_a_cloud_machine_needs_no_parameters() -> None:
    found = the_config(power={"driver": "ec2"}, terminateInstance=True)
    plan = compile_config(found)
    assert plan.devices[0].endpoint == "ec2://us-east-1/i-0123456789abcdef0"
    assert (plan.terminate_instance, plan.power_on) == (True, False)


def test_a_path_that_is_cut_may_be_all_there_is() -> None:
    found = the_config(power=None, isolation=[{"method": "detach-volumes"}, {"method": "free-pods"}])
    assert found.errors == ()
    assert compile_config(found).isolation[0].device is not None


def test_credentials_may_be_anywhere() -> None:
    """S12."""
    credentials = [
        {"name": "agents", "namespace": "nodewarden"},
        {"kind": "file", "keys": {"password": "{{ .NodeName }}/password"}},
    ]
    (method,) = the_config(
        power=[PDU | {"credentials": credentials, "secretRef": {"name": "s", "namespace": "x", "keys": {"password": "p"}}}]
    ).power_management
    assert method.device is not None
    assert method.device.credentials == (
        CredentialRef(name="agents", namespace="nodewarden"),
        CredentialRef(kind=CredentialKind.FILE, keys={"password": "n1/password"}),
        CredentialRef(name="s", namespace="x", keys={"password": "p"}),
    )
    assert shown_parameters(method) == {
        "ip": "10.0.0.9",
        "plug": "3",
        "*": "secret:nodewarden/agents",
        "password": "secret:x/s#p",
    }


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"power": None}, "spec.power: expected at least one power device: nothing executed is never success"),
        ({"powerLevels": [{"devices": [BMC]}]}, "spec.powerLevels: power is written, too"),
        ({"power": [SWITCH]}, "spec.power[0].driver: fence_brocade cuts a path"),
        (bmc(parameters={"ip": "10.0.0.1"}), "spec.power[0].nodeParameters.n1: nothing identifies the device"),
        ({"power": [{"driver": "ec2", "nodeParameters": {"n1": {"instance": "i-0000"}}}]}, "contradicts the providerID of node"),
        (bmc(secretRef={"name": "s"}), "spec.power[0].secretRef.namespace: expected a non-empty string, got nothing"),
        (bmc(credentials=[{"kind": "vault"}]), "spec.power[0].credentials[0].kind: expected one of Secret, ConfigMap"),
        (bmc(credentials=[{"kind": "env"}]), "spec.power[0].credentials[0].keys: expected a parameter"),
        (first(method="uncordon"), "spec.isolation[0].method: expected one of mark-unschedulable, cordon"),
        (first(method="cordon", site="x"), "spec.isolation[0].site: cordon acts on the cluster's objects"),
        (first(method="cordon", action="off"), "spec.isolation[0].action: cordon is an action of its own"),
        (first(method="taint"), "spec.isolation[0].parameters: taint needs key, effect"),
        # S1: NoExecute frees before anything is proven.
        (first(method="taint", parameters={"key": "k", "effect": "NoExecute"}), "effect: expected one of NoSchedule, Prefer"),
        (first(method="drain", parameters={"force": "maybe"}), "parameters.force: expected yes or no, got 'maybe'"),
        (first(), "spec.isolation[0].method: expected a method of ours, or the driver of a device"),
        (first(**BMC, action="off"), "spec.isolation[0].driver: ipmi switches power: expected it in power"),
        (first(**SWITCH), "spec.isolation[0].action: expected a non-empty string"),
        (first(method="quarantine"), "spec.isolation[0].parameters: quarantine needs quarantine-group"),
        ({"tries": 0}, "spec.tries: expected a whole number of at least 1 and at most 10, got 0"),
        ({"colour": "red"}, "spec.colour: is not a known field"),
        ({"powerOn": "yes"}, "spec.powerOn: expected true or false, got 'yes'"),
        ({"powerOn": True, "terminateInstance": True}, "terminate-instance: what is given up can't be switched on again"),
    ],
)
def test_whatever_is_doubtful_is_refused_with_object_field_and_expectation(spec: dict[str, object], problem: str) -> None:
    """S1, S7, S9, S10."""
    errors = the_config(**spec).errors
    assert any(problem in error and error.startswith("FenceConfig/all: ") for error in errors), errors


def schema(kind: str) -> dict[str, Any]:
    (version,) = document(f"deploy/crds/{kind}.nodewarden.io.yaml")["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


def test_the_schema_and_the_reader_know_the_same_fields() -> None:
    fields = schema("fenceconfigs")["properties"]
    device = fields["power"]["items"]["properties"]
    assert set(fields) == {*NODE_FIELDS, *SPEC_FIELDS}
    assert set(device) == set(DEVICE_FIELDS)
    assert set(device["secretRef"]["properties"]) == set(SECRET_FIELDS)
    assert set(device["credentials"]["items"]["properties"]) == set(CREDENTIAL_FIELDS)
    assert set(fields["isolation"]["items"]["properties"]) == set(METHOD_FIELDS)
    assert set(fields["isolation"]["items"]["properties"]["storage"]["properties"]) == set(STORAGE_FIELDS)
    assert set(fields["kdump"]["properties"]) == set(KDUMP_FIELDS)


@pytest.mark.parametrize("step", ["isolation", "recovery"])
def test_the_api_server_fills_in_no_field_of_a_method(step: str) -> None:
    """A method of ours is refused with a device's field: with a default, no template with a cordon could be read back."""
    properties = schema("fenceconfigs")["properties"][step]["items"]["properties"]
    assert [name for name, each in properties.items() if "default" in each] == []


def test_both_kinds_say_the_same() -> None:
    """All but who is meant, where Secrets live, and what is done where isolation and recovery are left out."""

    def without_words(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: without_words(each) for key, each in value.items() if key != "description"}
        return value

    own = without_words(schema("fenceconfigs")["properties"])
    template = without_words(schema("fencingtemplates")["properties"]["template"]["properties"]["spec"]["properties"])
    for field in NODE_FIELDS:
        own.pop(field)
    text = str(own).replace("['name', 'namespace']", "['name']")
    assert text == str(template)
