"""What stands for a deployment's keys, and a power worker's guard for tests that ask something else of it."""

from __future__ import annotations

from datetime import datetime, timedelta

from activities.contracts.target import LookRequest, Target
from activities.keyring import Keyring
from activities.licences import DeviceCommand, Levels, Licences, Read
from policy.fence.plan import PowerDevice
from policy.fence.power import PowerAct, Quarantine

LICENCES = Licences(Keyring([b"a key that all workers of these tests have"]))


class Believing(Licences):
    """Takes every request for one of ours (tests/security/test_forged_requests.py is about those that are not)."""

    def __init__(self) -> None:
        super().__init__(Keyring([b"a key that signs nothing that anybody reads"]))

    def require_seal(self, cluster: str, node: str, device: PowerDevice) -> None:
        """Nothing is refused."""

    def sealed_quarantine(self, target: Target, endpoint: str, found: Quarantine) -> Quarantine:
        """As it was found."""
        return found

    def require_quarantine(self, target: Target, endpoint: str, quarantine: Quarantine) -> None:
        """Nothing is refused."""

    def sealed_reading(self, target: Target, reading: Read, now: datetime, levels: Levels = ()) -> Read:
        """As it was read."""
        return reading

    def require_licence(self, request: DeviceCommand, act: PowerAct) -> None:
        """Nothing is refused."""


BELIEVING = Believing()


def licence_of(look: LookRequest, queued: timedelta = timedelta(0)) -> str:
    """What a look of played stories licenses, in words; "" where nothing was asked for. queued: before it began."""
    wanted = look.licenses
    return f"{wanted.act.value} by {(wanted.not_after + queued).isoformat()}" if wanted is not None else ""


def is_licensed(request: DeviceCommand, act: PowerAct) -> bool:
    """Whether a played command carries that of a look for this act, unchanged."""
    return request.not_after is not None and request.licence == f"{act.value} by {request.not_after.isoformat()}"
