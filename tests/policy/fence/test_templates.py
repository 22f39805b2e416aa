"""FencingTemplate: what becomes of it for one node, and what is refused in which words."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from policy.fence.config import MOST_RESTARTS, MOST_TRIES
from policy.fence.plan import CredentialRef, FencingPlan, Freeing
from policy.fence.template_reader import SPEC_FIELDS
from policy.values.errors import PolicyError
from tests.documents import document
from tests.policy.builders import a_node, plan_of_template
from tests.vectors.objects import VECTORS

DEVICE: dict[str, Any] = {
    "driver": "ipmi",
    "parameters": {"ipport": 6230},
    "nodeParameters": {"node-1": {"ip": "10.0.0.1"}, "node-2": {"ip": "10.0.0.2", "ipport": "7000"}},
    "secretRef": {"name": "bmc-{{ .NodeName }}"},
}


def template(power: object = None, **spec: object) -> dict[str, object]:
    return {
        "apiVersion": "nodewarden.io/v1alpha1",
        "kind": "FencingTemplate",
        "metadata": {"name": "bmc", "namespace": "nodewarden"},
        "spec": {"template": {"spec": {"power": [DEVICE] if power is None else power} | spec}},
    }


def a_plan(power: object = None, node: str = "node-1", **spec: object) -> FencingPlan:
    return plan_of_template(template(power, **spec), a_node(node, provider_id=f"sim:///{node}"))


def test_a_template_that_says_little_takes_the_defaults_of_a_plan() -> None:
    plan = a_plan()
    assert plan == FencingPlan(source="FencingTemplate/nodewarden/bmc", levels=(plan.devices,))


def test_every_field_of_a_template_reaches_the_plan() -> None:
    times = {"waitBeforePower": "0", "retryInterval": "1s", "actDeadline": "30s"}
    times |= {"offTimeout": "2m", "freeTimeout": "3m", "bootTimeout": "4m"}
    plan = a_plan(**times, tries=1, restarts=0, freeing="deletion")
    assert plan == replace(
        a_plan(),
        wait_before_power=timedelta(0),
        retry_interval=timedelta(seconds=1),
        act_deadline=timedelta(seconds=30),
        off_timeout=timedelta(minutes=2),
        free_timeout=timedelta(minutes=3),
        boot_timeout=timedelta(minutes=4),
        tries=1,
        restarts=0,
        freeing=Freeing.DELETION,
    )


def test_a_node_gets_its_own_device_and_the_shared_parameters() -> None:
    """S11: what is nearer to the node beats what is shared, value by value."""
    (device,) = a_plan().devices
    assert device.endpoint == "ipmi://10.0.0.1:6230"
    assert device.parameters == {"ip": "10.0.0.1", "ipport": "6230"}
    assert device.credentials == (
        CredentialRef(name="bmc-node-1", namespace="nodewarden", keys={"username": "username", "password": "password"}),
    )
    assert device.site == "default"
    (other,) = a_plan(node="node-2").devices
    assert other.endpoint == "ipmi://10.0.0.2:7000"


@pytest.mark.parametrize(
    ("where", "references"),
    [
        ("secretRef", {"secretRef": {"name": "s", "namespace": "kube-system"}}),
        ("credentials[0]", {"credentials": [{"name": "s", "namespace": "kube-system", "keys": {"password": "p"}}]}),
        (
            "credentials[0]",
            {"credentials": [{"kind": "ConfigMap", "name": "s", "namespace": "kube-system", "keys": {"username": "u"}}]},
        ),
    ],
)
def test_what_lives_in_another_namespace_than_the_template_is_refused(where: str, references: dict[str, object]) -> None:
    """S40: else whoever may write a template in his own namespace has the fleet's password sent to a device of his choice."""
    with pytest.raises(PolicyError, match="expected the template's own namespace, nodewarden") as refusal:
        a_plan(DEVICE | references)
    assert refusal.value.field.endswith(f"{where}.namespace")


@pytest.mark.parametrize(
    ("parameters", "endpoint"),
    [
        ({"ip": "BMC-{{ .NodeName }}.lan"}, "ipmi://bmc-node-1.lan:623"),
        ({"ip": "bmc-{{.NodeName}}.lan", "ipport": "623"}, "ipmi://bmc-node-1.lan:623"),
        ({"ip": "{{ .ProviderID }}.lan", "ipport": 161}, "ipmi://machine-7.lan:161"),
    ],
)
def test_values_with_the_nodes_name_or_provider_id_identify_its_device(parameters: dict[str, object], endpoint: str) -> None:
    """S10."""
    power = {"driver": "ipmi", "parameters": parameters, "secretRef": {"name": "s"}}
    (device,) = plan_of_template(template(power), a_node("node-1", provider_id="machine-7")).devices
    assert device.endpoint == endpoint


@pytest.mark.parametrize(
    "power",
    [
        {"driver": "ipmi", "parameters": {"ip": "10.0.0.1"}},
        {"driver": "ipmi", "parameters": {"ip": "10.0.0.1"}, "nodeParameters": {"node-2": {"ip": "10.0.0.2"}}},
        {"driver": "ipmi", "parameters": {"ip": "10.0.0.1"}, "nodeParameters": {"node-1": {"cipher": 3}}},
        {"driver": "ipmi", "parameters": {"ip": "10.0.0.1", "cipher": "{{ .NodeName }}"}},
        {"driver": "ipmi", "parameters": {"ip": "10.0.0.1"}, "nodeParameters": {"node-1": None}},
    ],
)
def test_a_device_that_nothing_ties_to_the_node_is_refused(power: dict[str, object]) -> None:
    """S10: a shared address alone would switch off whoever it happens to be."""
    with pytest.raises(PolicyError, match="nothing identifies the device of node node-1") as refusal:
        a_plan(power)
    assert refusal.value.field == ("spec.template.spec.power" + ".nodeParameters.node-1")


@pytest.mark.parametrize(
    ("own", "neighbours", "endpoint"),
    [
        ({"ip": "10.0.0.1"}, {"ip": "10.0.0.1"}, "ipmi://10.0.0.1:6230"),
        ({"ip": "10.0.0.1"}, {"ip": "10.0.0.1", "ipport": "6230"}, "ipmi://10.0.0.1:6230"),
        ({"ip": "bmc-1.lan"}, {"ip": "BMC-1.lan", "ipport": "06230"}, "ipmi://bmc-1.lan:6230"),
        ({"ip": "fd00::7", "ipport": "623"}, {"ip": "FD00:0:0::7", "ipport": "0623"}, "ipmi://[fd00::7]:623"),
        ({"ip": "10.0.0.1", "ipport": "623"}, {"ip": "10.0.0.1", "ipport": "443"}, "ipmi://10.0.0.1:623"),
    ],
)
def test_a_device_that_another_node_has_too_is_refused(own: dict[str, str], neighbours: dict[str, str], endpoint: str) -> None:
    """S9, S10: a copying mistake would switch off the neighbour, however it is spelled."""
    with pytest.raises(PolicyError, match=re.escape(f"{endpoint} is the device of node node-1 too")):
        a_plan(DEVICE | {"nodeParameters": {"node-1": own, "node-2": neighbours}})


def test_a_neighbour_of_the_second_supply_is_found_before_an_entry_that_cant_be_read() -> None:
    """S9, S10."""
    twice = {"node-1": {"ip": "10.0.1.1"}, "node-2": {"ip": "10.0.1.1"}, "node-3": {"ip": ""}}
    with pytest.raises(PolicyError, match=re.escape("power[1].nodeParameters.node-2: ipmi://10.0.1.1:6230 is the device of")):
        a_plan([DEVICE, DEVICE | {"nodeParameters": twice}])
    with pytest.raises(PolicyError, match="expected a non-empty string"):
        a_plan([DEVICE, DEVICE | {"nodeParameters": {**twice, "node-2": {"ip": "10.0.1.2"}}}])


def test_wrong_or_unknown_parameters_of_a_neighbour_hold_up_no_other() -> None:
    others = {"node-1": {"ip": "10.0.0.1"}, "node-2": {"ip": "{{ .ProviderID }}"}, "node-3": {"ipport": "x"}}
    assert len(a_plan(DEVICE | {"nodeParameters": others}).devices) == 1


def test_two_supplies_are_two_devices_and_one_of_them_twice_is_refused() -> None:
    """S4: proof needs OFF from each of k devices, so none may be counted twice."""
    second = DEVICE | {"nodeParameters": {"node-1": {"ip": "10.0.1.1"}}}
    assert len(a_plan([DEVICE, second]).devices) == 2
    with pytest.raises(PolicyError, match="listed twice"):
        a_plan([DEVICE, DEVICE])
    shouted = DEVICE | {"nodeParameters": {"node-1": {"ip": "BMC.lan"}}}
    with pytest.raises(PolicyError, match="listed twice"):
        a_plan([DEVICE | {"nodeParameters": {"node-1": {"ip": "bmc.lan", "ipport": "06230"}}}, shouted])


@pytest.mark.parametrize("driver", ["fence_ipmilan", "redfish", "fence_ilo4_ssh"])
def test_one_bmc_by_two_drivers_is_no_second_supply(driver: str) -> None:
    """S4: both would say off, and the other supply feed the machine on."""
    own = {"nodeParameters": {"node-1": {"ip": "10.0.0.7"}}}
    by_agent = DEVICE | own | {"driver": driver, "parameters": {}}
    with pytest.raises(PolicyError, match=r"the same device as ipmi://10.0.0.7:623, which is listed for node node-1"):
        a_plan([DEVICE | own | {"parameters": {}}, by_agent])


def test_one_outlet_by_two_agents_is_no_second_supply() -> None:
    """S4: the strip answers both, by telnet and by SNMP."""
    outlets = [
        {"driver": f"fence_apc{kind}", "parameters": {"ip": "pdu"}, "nodeParameters": {"node-1": {"plug": plug}}}
        for kind, plug in (("", "3"), ("_snmp", "3"), ("_snmp", "12"))
    ]
    with pytest.raises(PolicyError, match=r"fence_apc_snmp://pdu:161/3 is the same device as fence_apc://pdu:23/3, which is"):
        a_plan(outlets[:2])
    assert len(a_plan([outlets[0], outlets[2]]).devices) == 2


@pytest.mark.parametrize("where", ["parameters", "nodeParameters"])
@pytest.mark.parametrize(
    "key", ["password", "passwd", "username", "login", "User", "snmp-priv-passwd", "api_key", "token", "kg", "community"]
)
def test_a_credential_in_the_template_is_refused_without_being_repeated(where: str, key: str) -> None:
    """S12."""
    values = {key: "s3cr3t"}
    power = DEVICE | ({"parameters": values} if where == "parameters" else {"nodeParameters": {"node-1": {"ip": "a"} | values}})
    with pytest.raises(PolicyError) as refusal:
        a_plan(power)
    assert "secretRef" in str(refusal.value)
    assert "s3cr3t" not in str(refusal.value)


def bmc(**fields: object) -> dict[str, Any]:
    """The device with these fields instead of its own; None takes one away."""
    return {"power": [{key: value for key, value in (DEVICE | fields).items() if value is not None}]}


def of_node_1(**parameters: object) -> dict[str, Any]:
    return bmc(nodeParameters={"node-1": parameters})


def of_all(**parameters: object) -> dict[str, Any]:
    return bmc(parameters=parameters)


@pytest.mark.parametrize(
    ("spec", "field", "problem"),
    [
        *(({"tries": tries}, "tries", "whole number of at least 1") for tries in VECTORS["A05"]["retries"]),
        ({"tries": 11}, "tries", "at most 10, got 11"),
        ({"restarts": 6}, "restarts", "at most 5, got 6"),
        ({"waitBeforePower": "24h1s"}, "waitBeforePower", "at most 24h"),
        ({"retryInterval": "601s"}, "retryInterval", "at most 10m"),
        ({"offTimeout": "601s"}, "offTimeout", "at most 10m"),
        ({"freeTimeout": "31m"}, "freeTimeout", "at most 30m"),
        ({"bootTimeout": "121m"}, "bootTimeout", "at most 2h"),
        ({"actDeadline": "31s"}, "actDeadline", "at most 30s"),
        ({"actDeadline": "0s"}, "actDeadline", "at least 1s"),
        ({"freeing": "both"}, "freeing", "automatic, out-of-service-taint, deletion, none"),
        ({"waitBeforPower": "5m"}, "waitBeforPower", "is not a known field"),
        ({"power": []}, "power", "at least one power device"),
        (bmc(driver="IPMI!"), "power[0].driver", "lower-case"),
        (bmc(driver=None), "power[0].driver", "non-empty string"),
        (bmc(driver="drac"), "power[0].driver", "got 'drac'"),
        (bmc(paramters={}), "power[0].paramters", "is not a known field"),
        (bmc(site="a.b"), "power[0].site", "lower-case"),
        (bmc(secretRef={}), "power[0].secretRef.name", "non-empty string"),
        (bmc(secretRef=None), "power[0].secretRef", "which ipmi needs"),
        (of_all(lanplus=True), "power[0].parameters.lanplus", "quote it"),
        (of_all(lanplus="1"), "power[0].parameters.lanplus", "expected one of ip, ipport, cipher, privilege"),
        (of_all(ipport=65536), "power[0].parameters.ipport", "from 1 to 65535"),
        (bmc(nodeParameters=None, parameters={"ip": "{{ .Zone }}-{{ .NodeName }}"}), "power[0].parameters.ip", "{{ .Zone }}"),
        (bmc(nodeParameters=None, parameters={"ip": "{{ .NodeName }}{{"}), "power[0].parameters.ip", "expected variables like"),
        (of_node_1(ipport=1), "power[0].parameters.ip", "expected the address or name of the BMC"),
        (of_node_1(ip=""), "power[0].nodeParameters.node-1.ip", "non-empty"),
        (of_node_1(ip="a", plug="7"), "power[0].nodeParameters.node-1.plug", "is not a parameter of ipmi"),
        (of_node_1(ip="[fd00::7]"), "power[0].nodeParameters.node-1.ip", "expected an IP address or a host name"),
    ],
)
def test_whatever_is_doubtful_is_refused_with_object_field_and_expectation(
    spec: dict[str, Any], field: str, problem: str
) -> None:
    """S7, A05, and never a fallback to defaults for a bad fence configuration."""
    with pytest.raises(PolicyError) as refusal:
        plan_of_template(template(**spec), a_node("node-1"))
    assert (refusal.value.subject, refusal.value.field) == ("FencingTemplate/nodewarden/bmc", f"spec.template.spec.{field}")
    assert problem in refusal.value.problem


def test_a_provider_id_that_the_node_has_not_is_refused() -> None:
    power = {"driver": "ipmi", "parameters": {"ip": "{{ .ProviderID }}"}}
    with pytest.raises(PolicyError, match="the node has none"):
        plan_of_template(template(power), a_node(provider_id=""))


def test_the_taint_is_refused_where_no_controller_would_act_on_it() -> None:
    obj = template(freeing="out-of-service-taint")
    assert plan_of_template(obj, a_node()).taint_honoured
    with pytest.raises(PolicyError, match="do not act on the out-of-service taint"):
        plan_of_template(obj, a_node(), taint_honoured=False)
    assert not plan_of_template(template(), a_node(), taint_honoured=False).taint_honoured


def schema() -> dict[str, Any]:
    (version,) = document("deploy/crds/fencingtemplates.nodewarden.io.yaml")["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return found


def plan_schema() -> dict[str, Any]:
    found: dict[str, Any] = schema()["properties"]["spec"]["properties"]["template"]["properties"]["spec"]
    return found


def test_the_defaults_of_the_schema_are_those_of_a_plan() -> None:
    defaults = {name: field["default"] for name, field in plan_schema()["properties"].items() if "default" in field}
    told = {"power", "powerLevels", "powerOn", "isolation", "recovery", "kdump"}
    assert set(defaults) == set(SPEC_FIELDS) - told
    assert a_plan(**defaults) == a_plan()


def test_the_schema_refuses_what_the_reader_refuses() -> None:
    fields = plan_schema()["properties"]
    assert (fields["tries"]["minimum"], fields["restarts"]["minimum"], fields["power"]["minItems"]) == (1, 0, 1)
    assert (fields["tries"]["maximum"], fields["restarts"]["maximum"]) == (MOST_TRIES, MOST_RESTARTS)
    assert fields["freeing"]["enum"] == list(Freeing)
    for name in ("waitBeforePower", "retryInterval", "actDeadline", "offTimeout", "freeTimeout", "bootTimeout"):
        pattern = re.compile(fields[name]["pattern"])
        assert all(pattern.search(text) for text in ("0", "300s", "1h5m30.5s"))
        assert not any(pattern.search(text) for text in ("", "300", "-5m", "soon"))


def walk(name: str, found: dict[str, Any]) -> None:
    """A structural schema gives every field a type, or says that it is an int-or-string; ours also describes them."""
    assert "type" in found or found.get("x-kubernetes-int-or-string"), name
    if name not in {"metadata", "parameter"}:
        assert found.get("description"), f"{name} has no description"
    for child, inner in found.get("properties", {}).items():
        walk(child, inner)
    if "items" in found:
        walk(f"{name}[]", found["items"])
    if isinstance(found.get("additionalProperties"), dict):
        walk("parameter", found["additionalProperties"])


def test_the_schema_is_structural_and_describes_every_field() -> None:
    walk("FencingTemplate", schema())
