"""Which machine a device says that it serves, and whether that is the one which an episode has pinned (S39).

The address of a BMC may be given to another machine's, and a cloud may make a new instance of an old name. Whatever tells its
state tells mostly, too, which machine it is. What is not told, or can't be compared, is no difference: it can only say no.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Protocol

from policy.values.system_uuids import same_system

_AWS_ID = re.compile(r"aws://.*/(i-[0-9a-f]+)")
_AWS_NAMES = (re.compile(r"ip(?:-[0-9]{1,3}){4}"), re.compile(r"i-[0-9a-f]{8,}"))
"""How EC2 names the hosts of its subnets: by their address, or by their id. Other names are somebody's own."""


class MachineIdentity(Protocol):
    """What is known of a Node's machine; "" for what is not."""

    @property
    def node(self) -> str: ...

    @property
    def provider_id(self) -> str: ...

    @property
    def system_uuid(self) -> str: ...

    @property
    def instance_id(self) -> str: ...


def system_of(uuid: str) -> str:
    """A device's word for the machine with that system UUID."""
    return f"system/{uuid}"


def instance_of(number: str) -> str:
    """The same for a cloud's own id, which it gives to no other instance."""
    return f"instance/{number}"


def instance_in(serves: Collection[str]) -> str:
    """Which instance is said to be served, "" where none is."""
    return next((value for kind, _, value in (said.partition("/") for said in serves) if kind == "instance"), "")


def host_of(name: str) -> str:
    """The same for the name that a cloud has given to a host."""
    return f"host/{name}"


def another_machine(serves: Collection[str], pinned: MachineIdentity) -> str:
    """What a device says of its machine that the pinned one is not, in words; "" for nothing. serves: as `Reading` has it."""
    for said in serves:
        kind, _, value = said.partition("/")
        if kind == "system" and same_system(value, pinned.system_uuid) is False:
            return f"it serves the machine with system UUID {value}, and Node/{pinned.node} has {pinned.system_uuid}"
        if kind == "instance" and (own := _instance_like(value, pinned)) not in {"", value}:
            return f"it is the instance {value}, and Node/{pinned.node} is {own}"
        if kind == "host" and _named_otherwise(value, pinned.node):
            return f"its cloud calls it {value}, and the Node is {pinned.node}"
    return ""


def _instance_like(value: str, pinned: MachineIdentity) -> str:
    """The pinned machine's own id, of the kind that was told; "" where it is not known."""
    if value.isdecimal():
        return pinned.instance_id
    found = _AWS_ID.fullmatch(pinned.provider_id)
    return found[1] if found is not None else ""


def _named_otherwise(told: str, node: str) -> bool:
    theirs, ours = told.partition(".")[0].lower(), node.partition(".")[0].lower()
    return any(form.fullmatch(theirs) and form.fullmatch(ours) for form in _AWS_NAMES) and theirs != ours
