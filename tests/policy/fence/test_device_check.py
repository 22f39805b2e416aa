"""What a reading of a fence device means, what is remembered and what is told."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from policy.fence.credential_hosts import destinations
from policy.fence.device_check import (
    CheckedNode,
    DeviceAnswer,
    DeviceClaims,
    DeviceMemory,
    DeviceNotice,
    DeviceReport,
    DeviceRow,
    DeviceToCheck,
    NodeToCheck,
    Reachability,
    Remembered,
    acted_on,
    checked,
    devices_of,
    hosts_met,
    report_of,
    row_of,
)
from policy.fence.drivers import same_device
from policy.fence.plan import Act, CredentialKind, CredentialRef, FencingPlan, PlannedMethod, PowerDevice
from policy.fence.power import PowerState, system_of

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
NODE = NodeToCheck(node="node-1", uid="uid-1", ready=True, publishes=True)
BMC = PowerDevice(driver="ipmi", endpoint="ipmi://a:623")


def answer(kind: Reachability = Reachability.ANSWERS, *, hour: float = 0, state: PowerState = PowerState.ON) -> DeviceAnswer:
    at = NOON + timedelta(hours=hour)
    if kind is not Reachability.ANSWERS:
        return DeviceAnswer(endpoint=BMC.endpoint, answer=kind, at=at, problem="no answer")
    return DeviceAnswer(endpoint=BMC.endpoint, answer=kind, at=at, state=state, latency=timedelta(milliseconds=99.6))


def page(node: NodeToCheck, *answers: DeviceAnswer) -> CheckedNode:
    """As its page leaves it: with these answers of its BMC, else with its own devices unread."""
    if answers:
        return checked(replace(node, devices=(DeviceToCheck(device=BMC),)), answers)
    unread = [DeviceAnswer(endpoint=each.device.endpoint, answer=Reachability.UNREAD, at=NOON) for each in node.devices]
    return checked(node, unread)


def heard_of(remembered: Remembered, node: NodeToCheck, each: DeviceAnswer) -> DeviceNotice | None:
    found = page(node, each)
    return remembered.note_answer(found, *found.rows)


def told(remembered: Remembered, *answers: DeviceAnswer, node: NodeToCheck = NODE) -> list[DeviceNotice]:
    """What is told of these answers, one after the other."""
    found = []
    for each in answers:
        if (heard := heard_of(remembered, node, each)) is not None:
            remembered.mark_published(heard)
            found.append(heard)
    return found


def test_only_a_change_is_told() -> None:
    silent, ok, unread = answer(Reachability.SILENT, hour=1), answer(), answer(Reachability.UNREAD)
    found = told(Remembered(DeviceMemory()), ok, ok, silent, unread, silent, silent, unread, ok, ok)
    assert [each.reason.value for each in found] == ["FenceDeviceSilent", "FenceDeviceAnswers"]
    assert {each.since for each in found} == {NOON}
    assert (
        found[0].message == "the node could not be fenced by ipmi://a:623: no answer; its last answer was at 2026-11-21T12:00:00Z"
    )
    assert found[1].message == "ipmi://a:623 answers again; its last answer was at 2026-11-21T12:00:00Z"


def test_a_device_that_has_never_answered_is_told_where_it_was_configured() -> None:
    (first,) = told(Remembered(DeviceMemory()), answer(Reachability.SILENT), answer(Reachability.SILENT))
    assert (first.since, first.message.endswith("; it has not answered before")) == (None, True)
    assert told(Remembered(DeviceMemory()), answer(), answer(Reachability.SILENT), node=replace(NODE, publishes=False)) == []


def test_an_open_episode_keeps_silence_to_itself_and_a_success_is_remembered_all_the_same() -> None:
    remembered, held = Remembered(DeviceMemory()), replace(NODE, held="incident-1")
    assert told(remembered, answer(Reachability.SILENT), answer(hour=2), node=held) == []
    assert remembered.last_successes("node-1").get(BMC.endpoint) == NOON + timedelta(hours=2)


def test_untold_tidings_are_there_again_and_equal_tidings_have_one_identity() -> None:
    remembered = Remembered(DeviceMemory())
    first, second = (heard_of(remembered, NODE, answer(Reachability.SILENT, hour=hour)) for hour in (1, 2))
    assert first is not None
    assert second is not None
    assert first.identity == second.identity


def test_what_is_carried_is_what_is_known() -> None:
    remembered = Remembered(DeviceMemory())
    told(remembered, answer(), answer(Reachability.SILENT))
    carried = remembered.carried()
    assert carried == DeviceMemory(answered={"node-1": {BMC.endpoint: int(NOON.timestamp())}}, silent=(("node-1", BMC.endpoint),))
    assert told(Remembered(carried), answer(Reachability.SILENT, hour=3)) == []
    assert [each.reason.value for each in told(Remembered(carried), answer(hour=3))] == ["FenceDeviceAnswers"]


def test_what_is_carried_is_bounded_and_never_forgets_what_was_told() -> None:
    remembered = Remembered(DeviceMemory(silent=(("node-9", "ipmi://z:623"),)))
    for number in range(50):
        heard_of(remembered, NodeToCheck(node=f"node-{number:02}"), answer())
    carried = remembered.carried(most=500)
    assert 0 < len(carried.answered) < 20
    assert carried.silent == (("node-9", "ipmi://z:623"),)
    assert len(remembered.carried().answered) == 50


def sent_to(host: str, *, node: str = "node-7", named: str = "bmc") -> NodeToCheck:
    """A node whose BMC is at that address, with a Secret of that name."""
    reference = CredentialRef(name=named, namespace="nodewarden")
    device = PowerDevice(driver="ipmi", endpoint=f"ipmi://{host}:623", parameters={"ip": host}, credentials=(reference,))
    return NodeToCheck(node=node, devices=(DeviceToCheck(device=device),))


def test_s40_a_credential_goes_where_the_first_check_of_all_devices_has_met_it() -> None:
    """And an address that comes later is a person's to admit, whichever node it is of and however long it was configured for
    none. A file or a variable goes to named hosts only, and is none of these."""
    remembered, secret = Remembered(DeviceMemory()), "Secret/nodewarden/bmc"
    remembered.keep_hosts(hosts_met([sent_to("10.0.0.7")]), admits=True)
    assert remembered.hosts == {}  # nothing is known of it, and it may go anywhere: a first answer must not shut out the others
    remembered.keep_hosts(hosts_met([sent_to("10.0.0.7"), sent_to("10.0.0.8", node="node-8")]))
    remembered.keep_hosts(hosts_met([]))
    remembered.keep_hosts(hosts_met([sent_to("10.6.6.6"), sent_to("10.0.0.9", named="another")]))
    assert remembered.hosts == {secret: ("10.0.0.7", "10.0.0.8"), "Secret/nodewarden/another": ("10.0.0.9",)}
    remembered = Remembered(remembered.carried(most=0))
    remembered.keep_hosts(hosts_met([sent_to("10.0.0.10")]), admits=True)
    assert remembered.hosts[secret] == ("10.0.0.10", "10.0.0.7", "10.0.0.8")
    on_the_worker = CredentialRef(kind=CredentialKind.ENVIRONMENT, keys={"password": "BMC"})
    assert destinations(PowerDevice(driver="ipmi", endpoint="e", credentials=(on_the_worker,))) == {}


def test_what_left_is_forgotten() -> None:
    remembered = Remembered(
        DeviceMemory(answered={"node-1": {"a": 1, "b": 2}, "gone": {"c": 3}}, silent=(("node-1", "b"), ("gone", "c")))
    )
    remembered.keep_devices("node-1", ["a"])
    remembered.keep_devices("unknown", [])
    remembered.keep_nodes({"node-1"})
    assert remembered.carried() == DeviceMemory(answered={"node-1": {"a": 1}})


@pytest.mark.parametrize(
    ("state", "path", "node", "warning"),
    [
        (PowerState.ON, False, NODE, ""),
        (PowerState.OFF, False, NODE, "off although the node is Ready: is it the right machine?"),
        (PowerState.OFF, True, NODE, "cut although the node is Ready"),
        (PowerState.OFF, False, replace(NODE, ready=False), ""),
        (PowerState.OFF, False, replace(NODE, held="i-1"), "incident i-1 is open"),
    ],
)
def test_what_looks_wrong_although_the_device_answers(state: PowerState, path: bool, node: NodeToCheck, warning: str) -> None:
    """S9: an off that the node does not know of may be somebody else's machine."""
    row = row_of(node, DeviceToCheck(device=BMC, path=path), answer(state=state))
    assert (row.warning, row.problem, row.latency_ms) == (warning, "", 100)


def test_a_plans_devices_are_those_of_power_and_of_paths_each_once() -> None:
    other, port = (
        replace(BMC, endpoint="ipmi://b:623"),
        PowerDevice(driver="fence_brocade", endpoint="brocade://s/4", site="oslo"),
    )
    plan = FencingPlan(
        source="test",
        levels=((BMC, other), (BMC,)),
        isolation=(
            PlannedMethod(name="cordon", act=Act.CORDON),
            PlannedMethod(name="fc-off", act=Act.CUT_PATH, device=port),
            PlannedMethod(name="detach", act=Act.DETACH_VOLUMES, device=BMC),
        ),
        recovery=(PlannedMethod(name="fc-on", act=Act.RESTORE_PATH, device=port),),
        act_deadline=timedelta(seconds=7),
    )
    found = [(each.device.endpoint, each.path, each.deadline) for each in devices_of(plan)]
    seven = timedelta(seconds=7)
    assert found == [("ipmi://a:623", False, seven), ("ipmi://b:623", False, seven), ("brocade://s/4", True, seven)]


def test_a_report_has_its_problems_first_and_is_bounded() -> None:
    rows = [
        DeviceRow(node="node-10", endpoint="e", answer=Reachability.ANSWERS),
        DeviceRow(node="node-2", endpoint="e", answer=Reachability.ANSWERS),
        DeviceRow(node="node-3", endpoint="e", answer=Reachability.ANSWERS, warning="off"),
        DeviceRow(node="node-4", problem="no configuration"),
        DeviceRow(node="node-1", endpoint="e", answer=Reachability.SILENT, problem="no answer"),
    ]
    whole = report_of("prod", rows, began=NOON, ended=NOON, nodes=5)
    assert [row.node for row in whole.rows] == ["node-1", "node-4", "node-3", "node-2", "node-10"]
    assert (whole.devices, whole.answering, whole.problems, whole.left_out) == (4, 3, 2, 0)
    part = report_of("prod", rows, began=NOON, ended=NOON, nodes=5, most=2)
    assert ([row.node for row in part.rows], part.left_out, part.problems) == (["node-1", "node-4"], 3, 2)


def shared_by(*nodes: str, publishes: bool = True) -> DeviceClaims:
    claims = DeviceClaims()
    claims.add(*(page(replace(NODE, node=node, publishes=publishes, devices=(DeviceToCheck(device=BMC),))) for node in nodes))
    return claims


def test_a_device_of_two_nodes_is_a_problem_of_both_and_told_once_on_both() -> None:
    """S39: whichever of them fails, the other one's machine may be switched off."""
    remembered, claims = Remembered(DeviceMemory()), shared_by("node-1", "node-2")
    notices = remembered.note_claims(claims)
    assert [(each.node, each.reason.value) for each in notices] == [
        ("node-1", "FenceDeviceShared"),
        ("node-2", "FenceDeviceShared"),
    ]
    for each in notices:
        assert ("Node/node-1" in each.message, "Node/node-2" in each.message) == (True, True)
        remembered.mark_published(each)
    rows = [row_of(replace(NODE, node=node), DeviceToCheck(device=BMC), answer()) for node in ("node-1", "node-2", "node-3")]
    assert [bool(row.problem) for row in claims.noted([*rows[:2], replace(rows[2], endpoint="ipmi://b:623")])] == [
        True,
        True,
        False,
    ]
    again = Remembered(remembered.carried())
    assert again.note_claims(claims) == []
    assert again.note_claims(shared_by("node-1")) == []
    assert len(again.note_claims(claims)) == 2


def test_one_nodes_own_devices_and_unasked_ones_are_not_reported() -> None:
    assert Remembered(DeviceMemory()).note_claims(shared_by("node-1")) == []
    assert Remembered(DeviceMemory()).note_claims(shared_by("node-1", "node-2", publishes=False)) == []


def test_a_device_that_says_it_serves_another_machine_is_a_problem() -> None:
    """S39: found before the day on which it is needed."""
    ours, another = "4c4c4544-0042-3510-8051-b4c04f4d3132", "4c4c4544-0042-3510-8051-b4c04f4d3133"
    node = replace(NODE, system_uuid=ours)
    said = [replace(answer(), serves=(system_of(each),)) for each in (ours, another)]
    problems = [row_of(node, DeviceToCheck(device=BMC), each).problem for each in said]
    assert (problems[0], another in problems[1]) == ("", True)


def test_looks_hear_of_every_shared_device_in_every_history() -> None:
    """S39: an Event that can't be written, or a node that nobody has asked to be looked after, licenses no destruction."""
    claims = shared_by("node-1")
    claims.add(page(replace(NODE, node="node-2", publishes=False, devices=(DeviceToCheck(device=BMC),))))
    remembered = Remembered(DeviceMemory())
    assert [each.node for each in remembered.note_claims(claims)] == ["node-1"]
    both = {("node-1", BMC.endpoint), ("node-2", BMC.endpoint)}
    assert set(remembered.claimed) == both
    again = Remembered(remembered.carried())
    assert set(again.claimed) == both
    assert len(again.note_claims(claims)) == 1, "nobody has been told"
    assert set(Remembered(DeviceMemory(shared=(("node-1", "a"),))).claimed) == {("node-1", "a")}, "of an earlier build"
    assert again.note_claims(shared_by("node-1")) == []
    assert Remembered(again.carried()).claimed == ()


@pytest.mark.parametrize("theirs", ["fence_ilo5://a:623", "fence_ilo4_ssh://a:22", "redfish://a:443/redfish/v1/Systems/1"])
def test_a_bmc_is_shared_whichever_driver_speaks_to_it(theirs: str) -> None:
    """S39: two nodes whose configuration was written for two systems."""
    claims = shared_by("node-1")
    agents = PowerDevice(driver=theirs.partition("://")[0], endpoint=theirs)
    claims.add(page(replace(NODE, node="node-2", devices=(DeviceToCheck(device=agents),))))
    assert "Node/node-2" in claims.problem("node-1", BMC.endpoint)
    assert "Node/node-1" in claims.problem("node-2", agents.endpoint)
    assert {node for node, device in claims.shared if same_device(device, BMC.endpoint)} == {"node-1", "node-2"}


def test_the_systems_of_one_service_are_a_device_each_and_one_node_may_have_its_bmc_by_two_drivers() -> None:
    """S39: a chassis, and a level that is tried where the first one fails."""
    claims = DeviceClaims()
    for number in (1, 2):
        endpoints = (
            f"redfish://a:443/redfish/v1/Systems/{number}",
            f"fence_redfish://a:443?systems_uri=%2Fredfish%2Fv1%2FSystems%2F{number}",
        )
        devices = tuple(DeviceToCheck(device=PowerDevice(driver="redfish", endpoint=each)) for each in endpoints)
        claims.add(page(replace(NODE, node=f"node-{number}", devices=devices)))
    assert (claims.shared, claims.notices()) == ((), [])


def test_a_device_that_does_not_obey_is_told_from_one_whose_name_begins_like_it() -> None:
    """S44: outlets 1 and 12 of one strip."""
    one, twelve = (
        DeviceRow(node="node-1", endpoint=f"fence_apc://pdu/{outlet}", answer=Reachability.ANSWERS) for outlet in (1, 12)
    )
    report = DeviceReport(cluster="prod", began=NOON, ended=NOON, rows=(one, twelve))
    found = acted_on(report, {"node-1": f"off is not proven within 20 s: {twelve.endpoint}: says on"})
    assert [each.endpoint for each in found.rows if each.problem] == [twelve.endpoint]
