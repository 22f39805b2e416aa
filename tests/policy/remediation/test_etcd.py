"""What a change leaves of etcd (S15)."""

from __future__ import annotations

from itertools import product

from policy.remediation.control_plane import EtcdMember, after_removal, while_stopped

KINDS = (
    {"healthy": True},
    {"healthy": False},
    {"healthy": None},
    {"healthy": True, "alarm": "NOSPACE"},
    {"healthy": True, "learner": True},
)


def a_list(*healthy: bool) -> tuple[EtcdMember, ...]:
    return tuple(EtcdMember(name=f"m{index}", healthy=well) for index, well in enumerate(healthy, start=1))


EVERY_LIST = [
    tuple(EtcdMember(name=f"m{index}", **kind) for index, kind in enumerate(kinds, start=1))  # type: ignore[arg-type]
    for size in range(1, 5)
    for kinds in product(KINDS, repeat=size)
]


def test_what_stays_of_a_removal_is_a_quorum_of_those_that_stay() -> None:
    """S15, for every list of up to four members."""
    for members in EVERY_LIST:
        left = [member for member in members if member.name != "m1"]
        well = [member for member in left if member.healthy in {True, None} and not member.alarm]
        majority = len(well) * 2 > len(left)
        all_vote = not any(member.learner for member in left)
        assert after_removal(members, "m1").safe is (majority and all_vote), members


def test_what_is_stopped_goes_on_being_counted() -> None:
    """S15, for every list of up to four members: the voters that are left are a quorum of all that are in the list."""
    for members in EVERY_LIST:
        well = [member for member in members[1:] if member.healthy in {True, None} and not member.alarm]
        majority = len(well) * 2 > len(members)
        all_vote = not any(member.learner for member in members)
        assert while_stopped(members, "m1").safe is (majority and all_vote), members
        if while_stopped(members, "m1").safe:
            assert after_removal(members, "m1").safe, "to remove one is never more dangerous than to stop it"


def test_a_member_that_is_gone_from_the_list_is_missed_by_nobody() -> None:
    only = (EtcdMember(name="m2", healthy=True),)
    assert after_removal(only, "m1").safe
    assert while_stopped(only, "m1").safe


def test_who_is_still_starting_is_waited_for() -> None:
    """One without a name may be anybody's, also that of the member that is to be taken."""
    starting = (*a_list(False, True, True), EtcdMember(name=""))
    after = after_removal(starting, "m1")
    assert (after.safe, "of etcd's 2 voters" in after.why) == (False, True)
    assert not after_removal(starting, "").safe
    assert not while_stopped(starting, "").safe
    assert "1 of its members is no voter yet" in after.why
    assert "one without a name" in after.why
