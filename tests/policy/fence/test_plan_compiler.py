"""The plan that a configuration becomes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from policy.fence.kdump import KdumpRule
from policy.fence.plan import CORDON, UNCORDON, Act, CutStorage, FencingPlan, Freeing
from policy.fence.plan_compiler import compile_config
from policy.values.errors import PolicyError
from tests.policy.fence.builders import NODE, PDU, SWITCH, config, ipmi, lines, node, of_node, read

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


def test_levels_are_tried_in_their_order() -> None:
    found = plan(power="pdu off", pdu=plug(1, "reboot", level="2"), off=ipmi(action="reboot"))
    assert [[device.driver for device in level] for level in found.levels] == [["ipmi"], ["fence_eaton_snmp"]]


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


def test_a_word_about_a_crash_dump_that_nobody_acts_on_is_said() -> None:
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
