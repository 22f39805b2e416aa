"""Which object holds for a node, and whose value holds inside it (S11)."""

from __future__ import annotations

import pytest

from policy.fence.config import FenceConfig, shown_parameters
from policy.fence.configmap_methods import Found, LookupKind, ObjectLookup, ObjectName
from policy.fence.configmaps import read_config_maps
from tests.policy.fence.builders import PDU, config, ipmi, lines, lookup, node, only, read

EC2 = "aws:///us-east-1a/i-0123456789abcdef0"

NEWER = {"fence-config-node-n1": config("cordon")}
OLDER = {"fence-config-n1": config("drain")}
TYPE = {"fence-config-type-compute": config("cordon", bmc="", off=ipmi(ip="bmc-{{ .NodeName }}", action="off"))}
DEFAULT = {"fence-config-default": config("drain", off=ipmi(ip="{{ .NodeName }}.bmc", action="off"))}


def names(found: FenceConfig) -> tuple[str, str]:
    return found.name, found.source


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        (NEWER | OLDER | TYPE | DEFAULT, ("fence-config-node-n1", "node")),
        (OLDER | TYPE | DEFAULT, ("fence-config-n1", "node")),
        (TYPE | DEFAULT, ("fence-config-type-compute", "type")),
        (DEFAULT, ("fence-config-default", "default")),
        ({}, ("default", "default")),
    ],
)
def test_the_first_of_node_type_and_default_holds(objects: dict[str, dict[str, object]], expected: tuple[str, str]) -> None:
    """S11."""
    assert names(read(objects, of=node(type="compute", provider_id=EC2))) == expected


def test_the_winning_object_holds_as_a_whole() -> None:
    """S11: nothing is mixed in from an object that did not win, not even what the winner leaves out."""
    objects = {"fence-config-node-n1": {"config.properties": "power_management=off", "fence-method-off": ipmi(action="off")}}
    found = read(objects | {"fence-config-default": config("cordon", "off on", "uncordon")})
    assert (found.isolation, found.recovery, found.errors) == ((), (), ())
    assert [method.name for method in found.power_management] == ["off"]


def test_both_spellings_for_one_node_are_said_aloud() -> None:
    found = read(NEWER | OLDER)
    assert any("fence-config-n1: metadata.name: is not used: fence-config-node-n1 holds" in each for each in found.warnings)


def test_a_node_called_like_a_type_does_not_take_the_types_object() -> None:
    found = read(TYPE, of=node("type-compute", provider_id=EC2))
    assert found.source == "default"
    own = {"fence-config-type-compute": config() | {"config.properties": "node_name=type-compute\npower_management=off on"}}
    assert names(read(own, of=node("type-compute"))) == ("fence-config-type-compute", "node")


def test_a_methods_value_beats_its_templates_whatever_either_calls_it() -> None:
    """S11: shipped once the other way round, which fences the wrong plug. `port` and `plug` are one parameter."""
    method = lines(template="fence-method-template-pdu", plug="2", action="off", snmp__version="1")
    method = method.replace("snmp__", "snmp-")
    found = read({"fence-config-node-n1": config("", "pdu", pdu=method), "fence-method-template-pdu": PDU})
    device = only(found.power_management).device
    assert found.errors == ()
    assert device is not None
    assert device.parameters == {"ip": "10.0.0.9", "plug": "2", "snmp_version": "1"}
    assert only(found.power_management).template == "fence-method-template-pdu"
    assert shown_parameters(only(found.power_management)) == {"ip": "10.0.0.9", "plug": "2", "snmp-version": "1"}


def test_an_action_of_the_method_beats_the_templates() -> None:
    """S11."""
    template = {"template.properties": f"{ipmi()}\naction=on"}
    method = lines(template="fence-template-bmc", ip="10.0.0.1", action="off")
    found = read({"fence-config-node-n1": config("", "bmc", bmc=method), "fence-template-bmc": template})
    assert only(found.power_management).action.value == "off"


def test_parameters_common_to_all_nodes_are_the_first_to_be_overruled() -> None:
    objects = {
        "fence-cluster-config": {"config.properties": "cipher=17\nprivilege=operator"},
        "fence-config-node-n1": config("", "bmc", bmc=lines(template="bmc", ip="10.0.0.1", action="reboot")),
        "fence-method-template-bmc": {"template.properties": f"{ipmi(cipher='3')}"},
    }
    device = only(read(objects).power_management).device
    assert device is not None
    assert device.parameters == {"ip": "10.0.0.1", "cipher": "3", "privilege": "operator"}


def test_a_short_name_that_two_templates_answer_to_is_refused() -> None:
    method = lines(template="pdu", plug="2", action="off")
    objects = {"fence-config-node-n1": config("", "pdu", pdu=method), "fence-method-template-pdu": PDU, "fence-template-pdu": PDU}
    (error,) = read(objects).errors
    assert "expected the whole name of one of ConfigMap/default/fence-method-template-pdu" in error


def test_a_method_may_stand_in_an_object_of_its_own() -> None:
    """As the published demo writes it; what is in it is about one node, whoever lists the method (S10)."""
    objects = {
        "fence-config-type-compute": config("", "bmc"),
        "fence-method-bmc-n1": {"method.properties": ipmi(action="reboot")},
    }
    found = read(objects, of=node(type="compute"))
    assert (found.errors, only(found.power_management).device is not None) == ((), True)


def test_a_method_that_is_defined_twice_is_refused() -> None:
    objects = {"fence-config-node-n1": config(), "fence-method-off-n1": {"method.properties": ipmi(action="off")}}
    (error,) = read(objects).errors
    assert "data[fence-method-off]: is defined here and in ConfigMap/default/fence-method-off-n1" in error


def test_a_reader_asks_by_name_until_it_has_seen_all_it_wants() -> None:
    """Nothing is ever listed: what is missing is named, and asked for again and again until nothing is missing."""
    method = lines(template="fence-template-pdu", plug="2", action="off")
    objects = {"fence-config-node-n1": config("", "pdu", pdu=method), "fence-template-pdu": PDU}
    everything, seen = lookup(objects), dict[ObjectName, Found]()
    for _ in range(5):
        asked = ObjectLookup("default", seen)
        found = read_config_maps(node(), asked)
        if not asked.wanted:
            break
        for name in asked.wanted:
            secret = name.kind is LookupKind.SECRET
            seen[name] = everything.secret_keys(name.name) if secret else everything.config_map(name.name)
    assert not asked.wanted
    assert found == read(objects)
    assert ObjectName(kind=LookupKind.SECRET, name="secret-fence-method-pdu-n1") in seen
    assert len(seen) < 12
