"""The security groups of an EC2 instance: cut to one, and given back exactly, whatever is lost or changed in between."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest

from activities.errors import ErrorType
from activities.power.driver import PowerError
from activities.power.ec2.driver import TAG, TAG_LENGTH, Ec2Driver
from policy.fence.power import InterfaceGroups, PowerCapability, Quarantine
from simulator.cloud.ec2 import Ec2Cloud, MotoServer
from tests.power.conftest import fails, within
from tests.power.ec2.stand import Ec2Stand, stand_in


@pytest.fixture(scope="module")
async def ec2() -> AsyncIterator[Ec2Cloud]:
    async with MotoServer() as moto, Ec2Cloud(moto.url) as cloud:
        yield cloud


@pytest.fixture(scope="module")
async def groups(ec2: Ec2Cloud) -> list[str]:
    return [await ec2.security_group(name) for name in ("shut", "nodes", "extra", "other")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ward:
    """An instance with two interfaces, and what they had."""

    stand: Ec2Stand
    shut: str
    before: dict[str, set[str]]

    @property
    def now(self) -> dict[str, set[str]]:
        return self.stand.ec2.groups(self.stand.instance)

    @property
    def cut(self) -> dict[str, set[str]]:
        return {interface: {self.shut} for interface in self.before}

    @property
    def memory(self) -> dict[str, str]:
        return {key: text for key, text in self.stand.ec2.tags(self.stand.instance).items() if key.startswith(TAG)}

    def driver(self) -> Ec2Driver:
        return self.stand.driver(quarantine_group=self.shut)

    def changes(self) -> list[str]:
        return [request.action for request in self.stand.ec2.log if request.is_command]


@pytest.fixture
async def ward(ec2: Ec2Cloud, groups: list[str]) -> AsyncIterator[Ward]:
    shut, nodes, extra, _ = groups
    async with stand_in(ec2) as stand:
        instance = await ec2.launch("node-1", interfaces=((nodes, extra), (nodes,)))
        yield Ward(stand=replace(stand, instance=instance), shut=shut, before=ec2.groups(instance))


def listed(groups: dict[str, set[str]]) -> tuple[InterfaceGroups, ...]:
    return tuple(InterfaceGroups(interface=name, groups=tuple(sorted(found))) for name, found in sorted(groups.items()))


@pytest.mark.parametrize("remembered", [True, False])
async def test_every_interface_is_cut_and_gets_back_exactly_what_it_had(ward: Ward, remembered: bool) -> None:
    quarantine = await ward.driver().quarantine(within(5))
    assert ward.now == ward.cut
    assert (quarantine.group, quarantine.former) == (ward.shut, listed(ward.before))
    assert len(ward.memory) == 2

    in_force = await ward.driver().lift_quarantine(quarantine if remembered else None, within(5))
    assert in_force == listed(ward.before)
    assert ward.now == ward.before
    assert ward.memory == {}


async def test_each_answer_may_be_lost_and_it_is_done_and_remembered_once(ward: Ward) -> None:
    """S33: what is carried out already is not asked for again, and what was there before is not forgotten over it."""
    ward.stand.ec2.set_faults(drop_answers=True)
    for _ in range(3):
        await fails(ward.driver().quarantine(within(5)), ErrorType.AMBIGUOUS)
    quarantine = await ward.driver().quarantine(within(5))
    assert quarantine.former == listed(ward.before)
    assert ward.now == ward.cut
    assert ward.changes() == ["CreateTags", "ModifyNetworkInterfaceAttribute", "ModifyNetworkInterfaceAttribute"]

    ward.stand.ec2.log.clear()
    for _ in range(3):
        await fails(ward.driver().lift_quarantine(quarantine, within(5)), ErrorType.AMBIGUOUS)
    assert await ward.driver().lift_quarantine(quarantine, within(5)) == listed(ward.before)
    assert ward.now == ward.before
    assert ward.changes() == ["ModifyNetworkInterfaceAttribute", "ModifyNetworkInterfaceAttribute", "DeleteTags"]


async def test_a_quarantine_half_done_is_ambiguous_and_names_what_is_done(ward: Ward, groups: list[str]) -> None:
    first, second = sorted(ward.before)
    driver = ward.driver()
    answered = driver.api.command

    async def refuse_the_second(act: str, operation: str, deadline: object, **parameters: object) -> object:
        if parameters.get("NetworkInterfaceId") == second:
            raise PowerError(ErrorType.RATE_LIMITED, "too many requests")
        return await answered(act, operation, deadline, **parameters)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(driver.api), "command", lambda _, *rest, **named: refuse_the_second(*rest, **named))
        with pytest.raises(PowerError, match=f"too many requests; of 2 interfaces only {first} is changed") as caught:
            await driver.quarantine(within(5))
    assert caught.value.type is ErrorType.AMBIGUOUS
    assert ward.now == {first: {ward.shut}, second: ward.before[second]}
    assert (await driver.quarantine(within(5))).former == listed(ward.before)


async def test_a_memory_that_does_not_show_yet_is_not_overwritten(ward: Ward) -> None:
    """EC2 shows tags late: a record that was made blind says the group itself, and lifting believes the tags instead."""
    await ward.driver().quarantine(within(5))
    blind = Quarantine(group=ward.shut, former=listed(ward.cut), at=(await ward.driver().read(within(5))).at)
    assert await ward.driver().lift_quarantine(blind, within(5)) == listed(ward.before)
    assert ward.now == ward.before


async def test_groups_that_somebody_has_changed_meanwhile_stay(ward: Ward, groups: list[str]) -> None:
    """S28: only what is ours is undone."""
    other = groups[-1]
    first, second = sorted(ward.before)
    quarantine = await ward.driver().quarantine(within(5))
    await by_hand(ward, first, other)
    in_force = await ward.driver().lift_quarantine(quarantine, within(5))
    assert in_force == listed({first: {other}, second: ward.before[second]})
    assert ward.now == {first: {other}, second: ward.before[second]}


async def test_an_interface_that_was_detached_meanwhile_gets_its_groups_back_too(ward: Ward) -> None:
    quarantine = await ward.driver().quarantine(within(5))
    backend = ward.stand.ec2._backend
    second = next(name for name in ward.before if backend.enis[name].device_index == 1)
    backend.detach_network_interface(backend.enis[second].attachment_id)
    assert await ward.driver().lift_quarantine(quarantine, within(5)) == listed(ward.before)
    assert {group.id for group in backend.enis[second].group_set} == ward.before[second]


@pytest.mark.parametrize("fewer_later", [False, True])
async def test_as_many_groups_as_an_interface_can_have_are_remembered(ward: Ward, *, fewer_later: bool) -> None:
    """A tag holds 256 characters. A shorter memory replaces a longer one."""
    many = [await ward.stand.ec2.security_group(f"group-{number}") for number in range(16)]
    first = min(ward.before)
    await by_hand(ward, first, *many)
    await ward.driver().quarantine(within(5))
    assert all(len(text) <= TAG_LENGTH for text in ward.memory.values())
    if fewer_later:
        await by_hand(ward, first, *many[:1])
        await ward.driver().quarantine(within(5))
    await ward.driver().lift_quarantine(None, within(5))
    assert ward.now[first] == set(many[:1] if fewer_later else many)
    assert ward.memory == {}


async def test_what_nobody_remembers_is_said_and_left(ward: Ward) -> None:
    for interface in ward.before:
        await by_hand(ward, interface, ward.shut)
    await fails(ward.driver().lift_quarantine(None, within(5)), ErrorType.INVALID_CONFIG, "does not remember")
    assert ward.now == ward.cut


async def test_without_a_group_there_is_no_quarantine_and_one_in_force_can_be_lifted(ward: Ward) -> None:
    without = ward.stand.driver()
    assert PowerCapability.QUARANTINE not in without.capabilities
    assert PowerCapability.QUARANTINE in ward.driver().capabilities
    for act in (without.quarantine(within(5)), without.lift_quarantine(None, within(5))):
        await fails(act, ErrorType.NOT_SUPPORTED, "quarantine-group")
    quarantine = await ward.driver().quarantine(within(5))
    await without.lift_quarantine(quarantine, within(5))
    assert ward.now == ward.before


async def by_hand(ward: Ward, interface: str, *groups: str) -> None:
    await ward.stand.ec2.set_groups(interface, groups)
