"""The security groups of an instance's network interfaces: replaced by one, and given back exactly as they were.

Several requests, of which any may be lost. So the instance's own tags remember what each interface had, from before the first
change until after the last one back, and whoever comes again goes on where it ended: with the tag of an interface that is shut
already, which is never overwritten; with the groups of one that is not, whatever an old tag says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from activities.errors import ErrorType
from activities.power.driver import Deadline, PowerError, invalid
from activities.power.ec2.calls import Ec2Api
from policy.fence.power import InterfaceGroups, Quarantine

TAG = "nodewarden.io/former-groups/"
"""And the interface. Removed when its groups are back. One tag holds 256 characters, an interface up to 16 groups of 20: what is
too long goes on in a tag with `/2` behind it."""

TAG_LENGTH = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class _Instance:
    """What one question tells: the groups of each interface now, and the tags that remember."""

    groups: Mapping[str, frozenset[str]]
    tags: Mapping[str, str]
    gone: bool
    """Terminated: EC2 forgets its tags by itself."""

    def remembered(self, interface: str) -> frozenset[str]:
        """What the tags say; empty where they say nothing."""
        text = " ".join(self.tags.get(key, "") for key in _keys(interface))
        return frozenset(text.split())


async def shut_off(api: Ec2Api, instance: str, group: str, deadline: Deadline) -> Quarantine:
    """Replace the groups of every interface by `group`. Answers what is to be given back."""
    act = "quarantine"
    found = await _look(api, act, instance, deadline)
    if not found.groups:
        raise PowerError(ErrorType.NOT_SUPPORTED, f"{api.device}: {act!r}: the instance has no network interface: nothing to cut")
    shut = frozenset({group})
    to_change = {interface: groups for interface, groups in found.groups.items() if groups != shut}
    # Nothing is written for those that are shut already: EC2 shows tags late, and a write would replace what ours remember.
    tags = _tags_of({name: groups for name, groups in to_change.items() if groups != found.remembered(name)}, found.tags)
    if tags:
        await api.command(act, "create_tags", deadline, Resources=[instance], Tags=tags)
    await _set_groups(api, act, dict.fromkeys(to_change, shut), deadline)
    former = {name: to_change.get(name) or found.remembered(name) or groups for name, groups in found.groups.items()}
    return Quarantine(group=group, former=_listed(former), at=datetime.now(UTC))


async def give_back(
    api: Ec2Api, instance: str, group: str, quarantine: Quarantine | None, deadline: Deadline
) -> tuple[InterfaceGroups, ...]:
    """Undo `shut_off`: by what it answered, else by what the instance remembers. Answers the groups that are then in force."""
    act = "lift-quarantine"
    found = await _look(api, act, instance, deadline)
    shut = frozenset({group})
    recorded = {entry.interface: frozenset(entry.groups) for entry in quarantine.former} if quarantine is not None else {}
    if quarantine is None and not found.tags and found.groups and set(found.groups.values()) == {shut}:
        raise invalid(f"{api.device}: {act!r}: the instance does not remember which groups it had before {group}")
    # A record of the group itself was made when the tags did not show yet, or says that it always was so.
    former = {name: groups for name, groups in recorded.items() if groups and groups != shut}
    for name in {_interface(key) for key in found.tags} - former.keys():
        former[name] = found.remembered(name)
    # One that was detached meanwhile is not the instance's any more, and still shut.
    now = {**found.groups, **await _groups_of(api, act, former.keys() - found.groups.keys(), deadline)}
    back = {name: groups for name, groups in former.items() if groups and now.get(name) == shut}
    await _set_groups(api, act, back, deadline)
    if found.tags and not found.gone:
        keys = [{"Key": key} for key in sorted(found.tags)]
        await api.command(act, "delete_tags", deadline, Resources=[instance], Tags=keys)
    return _listed({**now, **back})


async def _look(api: Ec2Api, act: str, instance: str, deadline: Deadline) -> _Instance:
    known = await api.instance(act, instance, deadline)
    return _Instance(
        groups=_groups(known.get("NetworkInterfaces", ())),
        tags={tag["Key"]: tag["Value"] for tag in known.get("Tags", ()) if tag["Key"].startswith(TAG)},
        gone=known.get("State", {}).get("Name") == "terminated",
    )


async def _groups_of(api: Ec2Api, act: str, interfaces: Iterable[str], deadline: Deadline) -> dict[str, frozenset[str]]:
    """Asked by a filter, which leaves out those that are gone instead of refusing them all."""
    wanted = sorted(interfaces)
    if not wanted:
        return {}
    by_name = [{"Name": "network-interface-id", "Values": wanted}]
    answer = await api.ask(act, "describe_network_interfaces", deadline, Filters=by_name)
    return _groups(answer.get("NetworkInterfaces", ()))


async def _set_groups(api: Ec2Api, act: str, wanted: Mapping[str, frozenset[str]], deadline: Deadline) -> None:
    """One command per interface, one after the other. What fails after the first is Ambiguous: part of it is carried out."""
    done: list[str] = []
    for interface, groups in sorted(wanted.items()):
        try:
            await api.command(
                act, "modify_network_interface_attribute", deadline, NetworkInterfaceId=interface, Groups=sorted(groups)
            )
        except PowerError as error:
            if not done:
                raise
            text = f"{error}; of {len(wanted)} interfaces only {', '.join(done)} is changed for certain"
            raise PowerError(ErrorType.AMBIGUOUS, text) from None
        done.append(interface)


def _tags_of(former: Mapping[str, frozenset[str]], there: Mapping[str, str]) -> list[dict[str, str]]:
    tags = []
    for interface, groups in sorted(former.items()):
        parts = ["", ""]
        for group in sorted(groups):
            part = 0 if len(parts[0]) + 1 + len(group) <= TAG_LENGTH else 1
            parts[part] = f"{parts[part]} {group}".strip()
        # An empty one overwrites what an earlier quarantine had to say there.
        tags += [{"Key": key, "Value": part} for key, part in zip(_keys(interface), parts, strict=True) if part or key in there]
    return tags


def _keys(interface: str) -> Sequence[str]:
    return (f"{TAG}{interface}", f"{TAG}{interface}/2")


def _interface(key: str) -> str:
    return key.removeprefix(TAG).removesuffix("/2")


def _groups(interfaces: Iterable[Mapping[str, Any]]) -> dict[str, frozenset[str]]:
    return {
        interface["NetworkInterfaceId"]: frozenset(group["GroupId"] for group in interface.get("Groups", ()))
        for interface in interfaces
    }


def _listed(groups: Mapping[str, frozenset[str]]) -> tuple[InterfaceGroups, ...]:
    return tuple(InterfaceGroups(interface=name, groups=tuple(sorted(found))) for name, found in sorted(groups.items()))
