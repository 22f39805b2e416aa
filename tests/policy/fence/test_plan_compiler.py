"""The plan that a configuration becomes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from policy.fence.config import FenceConfig, acts_in_order, shown_parameters
from policy.fence.configmap_methods import Found, LookupKind, ObjectLookup, ObjectName
from policy.fence.configmaps import read_config_maps
from policy.fence.kdump import KdumpRule
from policy.fence.plan import CORDON, UNCORDON, Act, CutStorage, FencingPlan, Freeing, begins_with_cordon
from policy.fence.plan_compiler import compile_config
from policy.values.errors import PolicyError
from tests.policy.builders import NODE, PDU, SWITCH, config, ipmi, lines, lookup, node, of_node, only, read

EC2 = "aws:///us-east-1a/i-0123456789abcdef0"
TEMPLATES = {"fence-method-template-pdu": PDU, "fence-method-template-switch": SWITCH}


def plan(isolation: str = "", power: str = "off on", recovery: str = "", cluster: str = "", **methods: str) -> FencingPlan:
    data = {f"fence-config-{NODE}": config(isolation, power, recovery, **methods)} | TEMPLATES
    if cluster:
        data["fence-cluster-config"] = {"config.properties": cluster}
    return compile_config(read(data, of=node(provider_id=EC2)))


def plug(number: int, action: str, **more: str) -> str:
    return lines(template="pdu", plug=str(number), action=action, **more)


def test_nothing_configured_is_the_default_of_a_plan() -> None:
    found = compile_config(read({}, of=node(provider_id=EC2)))
    assert found.devices[0].endpoint == "ec2://us-east-1/i-0123456789abcdef0"
    assert found == FencingPlan(
        source="the default fence configuration", levels=((found.devices[0],),), isolation=(CORDON,), recovery=(UNCORDON,)
    )


def test_both_supplies_of_one_level_are_one_proof() -> None:
    """S4."""
    found = plan(power="a b c d", a=plug(1, "off"), b=plug(2, "off"), c=plug(1, "on"), d=plug(2, "on"))
    assert [[device.parameters["plug"] for device in level] for level in found.levels] == [["1", "2"]]
    assert found.power_on


def test_a_cordon_at_once_is_one_that_comes_first_and_waits_for_nothing() -> None:
    later, drain = replace(CORDON, delay=timedelta(seconds=1)), replace(CORDON, act=Act.DRAIN)
    for isolation, at_once in [((CORDON, drain), True), ((later,), False), ((drain, CORDON), False), ((), False)]:
        assert begins_with_cordon(FencingPlan(source="", levels=(), isolation=isolation)) is at_once


def test_levels_are_tried_in_their_order() -> None:
    found = plan(power="pdu off", pdu=plug(1, "reboot", level="2"), off=ipmi(action="reboot"))
    assert [[device.driver for device in level] for level in found.levels] == [["ipmi"], ["fence_eaton_snmp"]]


def order(isolation: str = "", power: str = "off on", recovery: str = "", **methods: str) -> list[str]:
    """What is shown of them, in words."""
    data = {f"fence-config-{NODE}": config(isolation, power, recovery, **methods)} | TEMPLATES
    return [each.does for each in acts_in_order(read(data, of=node(provider_id=EC2)))]


def test_a_plan_is_shown_in_the_order_of_a_fencing_whatever_is_listed_first() -> None:
    """Level by level, with what is waited for, and nothing freed before off is proven (S1)."""
    shown = order(
        "cordon", "late off kdump on free-pods delete-node", "uncordon", late=plug(1, "reboot", level="2"), kdump="trusted=yes"
    )
    off = "power off by {}, and read it until off is proven"
    assert shown == [
        "cordon",
        "delete the pods while the node says that its kernel dumps",
        "wait until 5m after the node stopped being Ready; a person's fencing of a Ready node does not wait",
        "wait while the node writes its crash dump",
        off.format("ipmi"),
        off.format("fence_eaton_snmp") + " (level 2: only where none before it is proven off)",
        "wait until the API server says that the node is not Ready",
        "delete the pods, and the volume attachments that none of them needs any more",
        "delete the Node",
        "power on by fence_eaton_snmp (level 2: only if it was switched off)",
        "power on by ipmi",
        "wait until the node is Ready with a new boot id, at most 10m",
        "uncordon",
    ]


@pytest.mark.parametrize(
    ("power", "last"),
    [
        ("off", ["leave the machine off", "uncordon"]),
        ("off terminate-instance", ["give the machine up for good by ec2", "uncordon"]),
    ],
)
def test_a_machine_that_stays_off_is_not_waited_for(power: str, last: list[str]) -> None:
    assert order("cordon", power, "uncordon", off="agent_name=ec2\naction=off")[-2:] == last


def test_two_offs_of_one_plug_are_one_device() -> None:
    found = plan(power="off again on", again=ipmi(action="off"))
    assert len(found.devices) == 1


def test_without_an_on_the_machine_is_left_off() -> None:
    assert not plan(power="off").power_on


def test_what_a_method_is_told_about_time_reaches_its_device() -> None:
    (device,) = plan(power="bmc", bmc=ipmi(action="reboot", delay="5", timeout="90", site="rack-4")).devices
    assert (device.delay, device.off_timeout, device.site) == (timedelta(seconds=5), timedelta(seconds=90), "rack-4")


def test_isolation_and_recovery_keep_their_order_and_their_names() -> None:
    isolation = {
        "cut": lines(template="switch", plug="2", action="off"),
        "gently": "agent_name=drain\nignore_daemonsets=yes\ntries=2\ntimeout=60",
    }
    found = plan(
        "cordon gently cut free-pods",
        "off on",
        "mend uncordon",
        **isolation,
        mend=lines(template="switch", plug="2", action="on"),
    )
    assert [(each.name, each.act) for each in found.isolation] == [
        ("cordon", Act.CORDON),
        ("gently", Act.DRAIN),
        ("cut", Act.CUT_PATH),
        ("free-pods", Act.FREE_CUT_PODS),
    ]
    drain, cut = found.isolation[1:3]
    assert (drain.parameters, drain.tries, drain.timeout) == ({"ignore-daemonsets": "yes"}, 2, timedelta(seconds=60))
    assert cut.device is not None
    assert [(each.name, each.act) for each in found.recovery] == [("mend", Act.RESTORE_PATH), ("uncordon", Act.UNCORDON)]
    assert found.recovery[0].device is not None
    assert found.recovery[0].device.endpoint == cut.device.endpoint


def test_what_lies_behind_a_path_is_what_may_be_freed_for_it() -> None:
    cut = lines(
        template="switch", plug="2", action="off", storage_classes="fast slow", csi_drivers="iscsi.csi", volume_handles="v-1"
    )
    mend = lines(template="switch", plug="2", action="on")
    found = plan("cut free-pods", "", "mend", cut=cut, mend=mend)
    assert found.isolation[0].storage == CutStorage(classes=("fast", "slow"), drivers=("iscsi.csi",), handles=("v-1",))
    assert found.warnings == ()


def test_a_quarantine_is_lifted_with_what_it_was_imposed_with() -> None:
    found = plan("quarantine", recovery="lift-quarantine", quarantine="quarantine-group=sg-0123456789abcdef0")
    assert found.recovery[0].device == found.isolation[0].device


@pytest.mark.parametrize(
    ("consequences", "freeing"),
    [
        ("", Freeing.AUTOMATIC),
        ("clean-pods", Freeing.DELETION),
        ("free-pods release-volumes", Freeing.DELETION),
        ("out-of-service-taint", Freeing.OUT_OF_SERVICE_TAINT),
        ("out-of-service-taint free-pods", Freeing.AUTOMATIC),
    ],
)
def test_consequences_say_how_workloads_are_freed(consequences: str, freeing: Freeing) -> None:
    assert plan(power=f"off {consequences} on").freeing is freeing


def test_what_may_only_follow_a_proof_is_noted() -> None:
    assert plan(power="off delete-node").delete_node
    found = plan(power="off terminate-instance", off="agent_name=ec2\naction=off")
    assert (found.terminate_instance, found.power_on) == (True, False)


def test_a_crash_dump_is_waited_for() -> None:
    assert plan("kdump").kdump == KdumpRule()
    assert plan("kdump", kdump="window=30\nlongest=90\ntrusted=yes").kdump == KdumpRule(
        window=timedelta(seconds=30), longest=timedelta(seconds=90), trusted=True
    )
    assert plan("kdump").isolation == ()


def test_a_message_about_a_crash_dump_without_an_effect_is_reported() -> None:
    """S1: no plan promises to free pods on datagrams."""
    assert plan("kdump").warnings == plan("kdump", kdump="trusted=no").warnings
    assert any("can have its pods freed while it runs" in each for each in plan("kdump", kdump="trusted=yes").warnings)


def test_the_clusters_configuration_says_how_long_and_how_often() -> None:
    """N03: three retries are four tries. A health check has waited already, a person has not."""
    cluster = "grace_timeout=10\ngiveup_retries=3\nrestarts=2\npower_management_wait=60\npolicies=max-fence-limit other"
    objects = {"fence-cluster-config": {"config.properties": cluster}}
    found = read(objects, of=node(provider_id=EC2))
    after_check, by_hand = (compile_config(found, after_health_check=each) for each in (True, False))
    assert (after_check.tries, after_check.restarts, after_check.wait_before_power) == (4, 2, timedelta(seconds=60))
    assert (after_check.wait_before_isolation, by_hand.wait_before_isolation) == (timedelta(0), timedelta(seconds=10))


def test_a_configuration_with_an_error_in_it_never_becomes_a_plan() -> None:
    """Never a fallback to defaults, never half of it."""
    with pytest.raises(PolicyError, match="1 errors, the first"):
        compile_config(of_node("cordon", "off nonsense"))


# Which object holds for a node, and whose value holds inside it (S11).

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
