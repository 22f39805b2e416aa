"""When people are told that Kubernetes is about to take volumes from a node that nobody has proven off (S36)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.objects.marks import Mark
from policy.objects.nodes import MARK_ANNOTATION, OUT_OF_SERVICE_TAINT, Condition, NodeView, Taint
from policy.scan.data_at_risk import FORCE_DETACH_AFTER, DataAtRisk, PodStay, deadline, patience_of, vouched_off
from policy.scan.scan_report import MAXIMUM_AT_RISK
from tests.policy.builders import confirmed

T0 = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
MARGIN = timedelta(minutes=1)
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
OUR_TAINT = Taint(key=OUT_OF_SERVICE_TAINT, effect="NoExecute", value="nodeshutdown")


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerates:
    key: str = ""
    operator: str = "Exists"
    value: str = ""
    effect: str = "NoExecute"
    toleration_seconds: int | None = None


def node(
    name: str = "node-7", *, ready: str = "Unknown", since: datetime | None = T0, uid: str = "uid-7", **fields: object
) -> NodeView:
    fields.setdefault("labels", confirmed(fields.get("annotations", {})))
    return NodeView(name=name, uid=uid, conditions=(Condition(type="Ready", status=ready, since=since),), **fields)  # type: ignore[arg-type]


def marked(**fields: object) -> dict[str, str]:
    return {MARK_ANNOTATION: Mark(incident="i", kind="Fencing", workflow_id="w", **fields).to_json()}  # type: ignore[arg-type]


def with_one_down(**options: object) -> DataAtRisk:
    risks = DataAtRisk(margin=MARGIN, **options)  # type: ignore[arg-type]
    risks.put_attachment("va-1", "node-7", T0)
    risks.put_node(node(), T0)
    return risks


SHARED = frozenset({"default/data"})


def pod(uid: str, **fields: object) -> PodStay:
    return PodStay(uid=uid, **({"volumes": frozenset({uid})} | fields))  # type: ignore[arg-type]


def looked(risks: DataAtRisk, *pods: PodStay, at: datetime = T0) -> None:
    assert risks.to_look_at(at, 9) == ["node-7"]
    risks.looked("node-7", pods, at)


class TestPatience:
    @pytest.mark.parametrize(
        ("tolerations", "expected"),
        [
            ((), 300),
            ((Tolerates(key=NOT_READY, toleration_seconds=300), Tolerates(key=UNREACHABLE, toleration_seconds=30)), 30),
            ((Tolerates(key=NOT_READY, toleration_seconds=0), Tolerates(key=UNREACHABLE)), 0),
            ((Tolerates(key=NOT_READY, toleration_seconds=-5), Tolerates(key=UNREACHABLE)), 0),
            ((Tolerates(key=NOT_READY), Tolerates(key=UNREACHABLE)), None),
            ((Tolerates(),), None),
            ((Tolerates(effect=""),), None),
            ((Tolerates(effect="NoSchedule"),), 300),
            ((Tolerates(toleration_seconds=60),), 60),
            ((Tolerates(key=NOT_READY, operator="Equal"), Tolerates(key=UNREACHABLE, operator="")), None),
            ((Tolerates(key=NOT_READY, operator="Equal", value="other"), Tolerates(key=UNREACHABLE)), 300),
            ((Tolerates(key=NOT_READY), Tolerates(key=NOT_READY, toleration_seconds=9), Tolerates(key=UNREACHABLE)), None),
            ((Tolerates(key="other", toleration_seconds=1),), 300),
        ],
    )
    def test_a_pod_stays_as_long_as_its_tolerations_say(self, tolerations: tuple[Tolerates, ...], expected: int | None) -> None:
        """S36, K01: the shorter of the two taints' counts, the first that matches each, none for ever."""
        assert patience_of(tolerations) == (None if expected is None else seconds(expected))


@pytest.mark.parametrize(
    ("requested", "patience", "expected"),
    [
        (None, 300, 300 + 360 - 60),
        (None, 0, 360 - 60),
        (None, None, None),
        (100, None, 100 + 360 - 60),
        (100, 300, 100 + 360 - 60),
        (500, 300, 300 + 360 - 60),
        (-3600, 300, -3600 + 360 - 60),
    ],
)
def test_the_deadline_is_the_earliest_way_to_a_forced_detachment(
    requested: int | None, patience: int | None, expected: int | None
) -> None:
    """S36: the earlier of deletion and toleration, six minutes more, the margin less."""
    asked = None if requested is None else T0 + seconds(requested)
    found = deadline(T0, asked, None if patience is None else seconds(patience), margin=MARGIN)
    assert found == (None if expected is None else T0 + seconds(expected))


def test_at_the_end_of_the_calendar_there_is_still_a_deadline() -> None:
    end = datetime.max.replace(tzinfo=UTC)
    assert deadline(end, None, seconds(300), margin=MARGIN) == end


class TestTelling:
    def test_people_are_told_at_the_deadline_and_not_before(self) -> None:
        risks = with_one_down()
        looked(risks, pod("a"))
        due = T0 + seconds(600)
        assert risks.due_notifications(due - seconds(1), 9) == []
        assert risks.report().nearest[0].due == T0 + seconds(660), "one moment of detachment, wherever it is read"
        (warned,) = risks.due_notifications(due, 9)
        assert (warned.node, warned.uid, warned.since, warned.volumes) == ("node-7", "uid-7", T0, 1)
        assert warned.detached_at == T0 + seconds(660)

    def test_a_node_that_was_down_long_before_we_looked_is_told_at_once(self) -> None:
        """S36: already past, when a worker starts late."""
        risks, late = DataAtRisk(margin=MARGIN), T0 + timedelta(hours=2)
        risks.put_node(node(), late)
        risks.put_attachment("va-1", "node-7", late)
        looked(risks, pod("a"), at=late)
        assert [each.node for each in risks.due_notifications(late, 9)] == ["node-7"]

    def test_once_per_incident_and_again_after_the_time_that_is_set(self) -> None:
        risks, due = with_one_down(repeat=timedelta(minutes=30)), T0 + seconds(600)
        looked(risks, pod("a"))
        assert risks.due_notifications(due, 9)
        risks.notified("node-7", due)
        assert risks.due_notifications(due + timedelta(minutes=29), 9) == []
        assert risks.to_look_at(due + timedelta(minutes=29), 9) == []
        assert risks.next_due == due + timedelta(minutes=30)
        assert risks.due_notifications(due + timedelta(minutes=30), 9)

    def test_what_could_not_be_told_is_told_soon_and_says_that_it_was_counted(self) -> None:
        risks, due = with_one_down(), T0 + seconds(600)
        looked(risks, pod("a"))
        (first,) = risks.due_notifications(due, 9)
        risks.not_notified("node-7", due)
        (second,) = risks.due_notifications(due + seconds(30), 9)
        assert (first.counted, second.counted) == (False, True)

    def test_what_is_in_hand_is_neither_handed_out_twice_nor_waited_for(self) -> None:
        risks = with_one_down()
        assert risks.to_look_at(T0, 9) == ["node-7"]
        assert risks.to_look_at(T0, 9) == []
        assert risks.next_due is None

    def test_of_many_only_so_many_at_once(self) -> None:
        risks = DataAtRisk(margin=MARGIN)
        for number in range(40):
            risks.put_node(node(f"node-{number}"), T0)
            risks.put_attachment(f"va-{number}", f"node-{number}", T0)
        rounds = []
        while found := risks.to_look_at(T0, 8):
            rounds.append(len(found))
            for name in found:
                risks.looked(name, [pod(name)], T0)
        assert rounds == [8] * 5
        report = risks.report()
        assert (report.nodes, report.unread, len(report.nearest)) == (40, 0, MAXIMUM_AT_RISK)


class TestCancelling:
    @pytest.mark.parametrize("ready", [True, False])
    def test_nothing_is_told_of_a_node_that_is_ready_again_or_gone(self, ready: bool) -> None:
        risks = with_one_down()
        looked(risks, pod("a"))
        if ready:
            risks.put_node(node(ready="True"), T0 + seconds(500))
        else:
            risks.put_node(node(provider_id="aws:///zone-a/i-1"), T0 + seconds(500))
            risks.delete_node("node-7", T0 + seconds(500))
        assert risks.next_due is None
        assert risks.due_notifications(T0 + seconds(600), 9) == []
        assert risks.report().nodes == 0

    @pytest.mark.parametrize("provider_id", ["", "k3s://node-7"])
    @pytest.mark.parametrize("patience", [None, seconds(3600)], ids=["its pods stay", "they stay for an hour"])
    def test_a_node_that_no_cloud_knows_is_deleted_by_hand_and_its_machine_may_run_on(
        self, patience: timedelta | None, provider_id: str
    ) -> None:
        """S36: its pods go with it at once, and its volumes six minutes later, whatever the machine does."""
        risks = with_one_down()
        risks.put_node(node(provider_id=provider_id), T0)
        looked(risks, pod("a", patience=patience))
        risks.delete_node("node-7", T0 + seconds(100))
        assert due_of(risks) == 400
        (told,) = risks.due_notifications(T0 + seconds(400), 9)
        assert told.detached_at == T0 + seconds(460)
        risks.notified("node-7", T0 + seconds(400))
        risks.remove_attachment("va-1")
        assert (risks.report().nodes, risks.next_due) == (0, None)
        risks.put_attachment("va-2", "node-7", T0 + seconds(900))
        assert risks.report().nodes == 0

    def test_a_node_that_registers_anew_after_it_was_deleted_is_another_incident(self) -> None:
        risks = with_one_down()
        looked(risks, pod("a"))
        risks.delete_node("node-7", T0 + seconds(100))
        risks.put_node(node(ready="True", uid="uid-8"), T0 + seconds(120))
        assert risks.report().nodes == 0

    def test_nothing_is_told_once_nothing_is_attached(self) -> None:
        risks = with_one_down()
        risks.put_attachment("va-2", "node-7", T0)
        looked(risks, pod("a"))
        risks.remove_attachment("va-1")
        assert risks.report().nearest[0].volumes == 1
        risks.remove_attachment("va-2")
        assert risks.due_notifications(T0 + seconds(600), 9) == []

    @pytest.mark.parametrize(
        ("annotations", "taints", "off"),
        [
            (marked(off_proven="2026-11-21T12:03:00Z"), (), True),
            (marked(out_of_service=True), (OUR_TAINT,), True),
            (marked(out_of_service=True), (), False),
            (marked(), (OUR_TAINT,), False),
            ({}, (OUR_TAINT,), False),
            ({MARK_ANNOTATION: "not a mark"}, (OUR_TAINT,), False),
            (marked(cordoned=True), (), False),
        ],
    )
    def test_only_our_proof_of_off_ends_it(self, annotations: dict[str, str], taints: tuple[Taint, ...], off: bool) -> None:
        """S36, S2: neither an attempt nor a stranger's taint nor a mark that nobody can read."""
        risks = with_one_down()
        looked(risks, pod("a"))
        view = node(annotations=annotations, taints=taints)
        risks.put_node(view, T0 + seconds(400))
        assert vouched_off(view) is off
        assert len(risks.due_notifications(T0 + seconds(600), 9)) == (0 if off else 1)

    def test_a_proof_that_has_ended_is_none_any_more(self) -> None:
        """S6: power came back and the node did not."""
        risks = with_one_down()
        looked(risks, pod("a"))
        risks.put_node(node(annotations=marked(off_proven="2026-11-21T12:03:00Z")), T0 + seconds(200))
        assert risks.report().nodes == 0
        risks.put_node(node(annotations=marked()), T0 + seconds(700))
        looked(risks, pod("a"), at=T0 + seconds(700))
        assert risks.due_notifications(T0 + seconds(700), 9)

    def test_a_node_of_the_same_name_is_another_incident(self) -> None:
        risks = with_one_down()
        looked(risks, pod("a"))
        risks.put_node(node(uid="uid-8", since=T0 + seconds(500)), T0 + seconds(500))
        assert risks.due_notifications(T0 + seconds(600), 9) == []
        looked(risks, pod("b"), at=T0 + seconds(600))
        assert risks.report().nearest[0].since == T0 + seconds(500)

    def test_a_node_that_cannot_be_read_is_as_it_was(self) -> None:
        """S18: it is no reason to think that it is well."""
        risks = with_one_down()
        risks.put_node(NodeView(name="node-7", uid="uid-7", unreadable="not a Node"), T0)
        assert risks.report().nodes == 1

    def test_where_kubernetes_never_forces_nothing_is_at_risk(self) -> None:
        risks = with_one_down(forced=False)
        assert risks.report().nodes == 0
        assert risks.next_due is None


def due_of(risks: DataAtRisk) -> float | None:
    """Seconds after the beginning at which people are told of the nearest."""
    due = risks.report().nearest[0].due
    return None if due is None else (due - MARGIN - T0).total_seconds()


class TestLooking:
    @pytest.mark.parametrize(
        ("attached", "pods", "due"),
        [
            pytest.param(1, [], 300, id="no pod wants its volumes"),
            pytest.param(1, [pod("a")], 600, id="a pod goes after its patience"),
            pytest.param(1, [pod("a", patience=None)], None, id="a pod stays for ever"),
            pytest.param(2, [pod("a", patience=None)], 300, id="more is attached than its pods have"),
            pytest.param(2, [pod("a", volumes=SHARED, patience=None), pod("b", volumes=SHARED, patience=None)], 300, id="shared"),
        ],
    )
    def test_volumes_that_no_pod_wants_have_been_unwanted_since_the_node_went_down(
        self, attached: int, pods: list[PodStay], due: float | None
    ) -> None:
        """A claim that two pods share is one."""
        risks = with_one_down()
        for number in range(1, attached):
            risks.put_attachment(f"va-{number + 1}", "node-7", T0)
        looked(risks, *pods)
        assert due_of(risks) == due

    def test_what_is_unwanted_is_known_in_time_though_a_pod_has_a_claim_that_nothing_attaches(self) -> None:
        """S36: a look takes place when it is due at the latest, and each attachment is asked for once."""
        risks, due = with_one_down(), T0 + seconds(300)
        risks.put_attachment("va-2", "node-7", T0)
        stays = (pod("a", patience=None), pod("nfs", patience=None))
        looked(risks, *stays, at=T0 + seconds(100))
        assert risks.to_trace("node-7", T0 + seconds(100)) == ()
        assert (risks.next_due, due_of(risks)) == (due, None)
        looked(risks, *stays, at=due)
        assert risks.to_trace("node-7", due) == ("va-1", "va-2")
        risks.traced("node-7", {"va-1": True, "va-2": True})
        assert due_of(risks) is None
        risks.put_attachment("va-3", "node-7", due)
        looked(risks, *stays, pod("b", patience=None), at=due + seconds(300))
        assert risks.to_trace("node-7", due + seconds(300)) == ("va-3",)
        risks.put_attachment("va-4", "node-7", due)
        risks.traced("node-7", {"va-3": False})
        assert due_of(risks) == 300
        assert risks.to_trace("node-7", due + seconds(300)) == (), "people are warned already"

    def test_an_attachment_that_has_gone_meanwhile_is_at_no_risk(self) -> None:
        risks, late = with_one_down(), T0 + seconds(900)
        risks.put_attachment("va-2", "node-7", T0)
        looked(risks, pod("a", patience=None), pod("nfs", patience=None), at=late)
        risks.remove_attachment("va-2")
        risks.traced("node-7", {"va-1": True, "va-2": False})
        assert due_of(risks) is None

    def test_a_deletion_that_was_seen_is_never_forgotten(self) -> None:
        """Though the pod is gone by the next look, and nobody could be told meanwhile."""
        risks = with_one_down()
        looked(risks, pod("a", patience=None, requested=T0 - seconds(100)))
        assert risks.due_notifications(T0 + seconds(200), 9)
        risks.not_notified("node-7", T0 + seconds(290))
        looked(risks, at=T0 + seconds(300))
        assert due_of(risks) == 200

    def test_where_the_pods_cannot_be_read_the_default_is_taken_and_they_are_asked_for_again(self) -> None:
        risks = with_one_down()
        assert risks.to_look_at(T0, 9)
        risks.not_looked("node-7", T0)
        assert due_of(risks) == 600
        assert risks.next_due == T0 + seconds(30)
        looked(risks, pod("a", patience=seconds(0)), at=T0 + seconds(30))
        assert due_of(risks) == 300

    def test_a_flapping_node_leaves_no_pile_behind(self) -> None:
        risks = with_one_down()
        for number in range(5000):
            risks.put_node(node(ready="True"), T0)
            risks.put_node(node(since=T0 + seconds(number)), T0 + seconds(number))
            looked(risks, pod("a"), at=T0 + seconds(number))
        assert len(risks._looks) + len(risks._notifications) == 2


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["delete", "vanish", "wait", "flap"]),
        st.integers(min_value=0, max_value=3),
        st.integers(min_value=1, max_value=240),
    ),
    max_size=12,
)


@given(steps=STEPS, patience=st.sampled_from([None, 0, 30, 300, 3600]), beside=st.booleans())
def test_no_forced_detachment_comes_unannounced(steps: list[tuple[str, int, int]], patience: int | None, beside: bool) -> None:
    """S36, whatever happens to the pods between our looks: a simulated attach-detach controller never gets ahead of the warning.

    Time goes by second; what is due is done at its moment, as the long poll does. beside: two pods stay for ever, with claims of
    what nothing attaches.
    """
    stay = None if patience is None else seconds(patience)
    pods = {f"pod-{number}": pod(f"pod-{number}", patience=stay) for number in range(4)}
    risks, now = with_one_down(), T0
    for number in range(3):
        risks.put_attachment(f"va-of-{number}", "node-7", T0)
    owners = {"va-1": "pod-3"} | {f"va-of-{number}": f"pod-{number}" for number in range(3)}
    agents = [pod(f"agent-{number}", patience=None) for number in range(2 * beside)]
    unwanted: list[datetime] = [] if stay is None else [T0 + stay]
    told = False
    for action, number, pause in [*steps, ("wait", 0, 700)]:
        name = f"pod-{number}"
        if action == "delete" and name in pods and pods[name].requested is None:
            pods[name] = pod(name, requested=now, patience=stay)
            unwanted.append(now)
        elif action == "vanish" and pods.pop(name, None) is not None:
            unwanted.append(now)
        elif action == "flap":
            risks.put_node(node(ready="False", since=now), now)
        for _ in range(pause):
            if (due := risks.next_due) is not None and due <= now:
                for each in risks.to_look_at(now, 8):
                    risks.looked(each, [*pods.values(), *agents], now)
                    risks.traced(each, {name: owners[name] in pods for name in risks.to_trace(each, now)})
                for warned in risks.due_notifications(now, 8):
                    risks.notified(warned.node, now)
                    told = True
            if unwanted and min(unwanted) + FORCE_DETACH_AFTER <= now:
                assert told
                return
            now += seconds(1)
