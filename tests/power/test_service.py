"""What is checked of a request before a device is spoken to, whatever its driver (S9, S16, S20)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import cast
from uuid import UUID

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.contracts.power import CommandResult, LiftRequest, PowerRequest, VolumeRequest
from activities.errors import ErrorType, error_type
from activities.licences import Licences
from activities.power.cloud_call import CloudCall, HttpRequest, NotSentError
from activities.power.driver import Deadline, DeviceCredentials, PowerDriver, PowerError
from activities.power.service import PowerService
from policy.episode.messages import Reading
from policy.fence.plan import PowerDevice
from policy.fence.power import InterfaceGroups, PowerCapability, PowerState, Quarantine, instance_of, system_of
from tests.licensing import BELIEVING, Believing
from tests.power.conftest import within
from tests.power.raw_server import raw_server, saying
from tests.power.targets import target_with

DEVICE = PowerDevice(driver="ipmi", endpoint="ipmi://10.0.0.7:623")
TARGET = target_with(DEVICE)


class Plug:
    """A device that does as it is told, and keeps what that was."""

    endpoint = DEVICE.endpoint
    capabilities = frozenset({PowerCapability.READ, PowerCapability.OFF, PowerCapability.ON})

    def __init__(self) -> None:
        self.state = PowerState.ON
        self.told: list[str] = []
        self.sessions = 0
        self.slow = 0
        """How often it is read as before a command once that was sent."""
        self.silent_after = False
        self.serves: tuple[str, ...] = ()
        self.serves_after: tuple[str, ...] | None = None
        self._to_be: PowerState | None = None

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Plug]:
        self.sessions += 1
        yield self

    async def read(self, deadline: Deadline) -> Reading:
        self.told.append("read")
        if self._to_be is not None and self.silent_after:
            raise PowerError(ErrorType.UNREACHABLE, "no answer")
        if self._to_be is not None and self.slow <= 0:
            self.state = self._to_be
        self.slow -= self._to_be is not None
        serves = self.serves_after if self._to_be is not None and self.serves_after is not None else self.serves
        return Reading(endpoint=self.endpoint, state=self.state, at=datetime.now(UTC), serves=serves)

    async def off(self, deadline: Deadline) -> None:
        self.told.append("off")
        self._to_be = PowerState.OFF

    async def on(self, deadline: Deadline) -> None:
        self.told.append("on")
        self._to_be = PowerState.ON


class NoCredentials:
    """A device that wants none."""

    async def read(self, cluster: str, device: PowerDevice) -> DeviceCredentials:
        return DeviceCredentials(values={})


class NobodyAsks:
    """What is refused is refused before credentials are read."""

    async def read(self, cluster: str, device: PowerDevice) -> DeviceCredentials:
        raise AssertionError("credentials were read")


@pytest.fixture
def plug() -> Plug:
    return Plug()


@pytest.fixture
def service(plug: Plug) -> PowerService:
    return PowerService(NoCredentials(), BELIEVING, drivers=lambda _device, _credentials: cast("PowerDriver", plug))


def request(endpoint: str = DEVICE.endpoint, **fields: object) -> PowerRequest:
    whole = PowerRequest(target=TARGET, device=replace(DEVICE, endpoint=endpoint), deadline=timedelta(seconds=5))
    return replace(whole, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("act", ["read_power", "power_off", "power_on", "cut_path", "restore_path"])
@pytest.mark.parametrize(
    "endpoint",
    ["ipmi://10.0.0.8:623", "ipmi://10.0.0.7:624", "redfish://10.0.0.7:623", "ipmi://10.0.0.70:623", "ipmi://10.0.0.7:623/1", ""],
)
async def test_a_device_that_was_not_pinned_is_not_spoken_to(service: PowerService, plug: Plug, act: str, endpoint: str) -> None:
    """S9: the whole endpoint is compared, not only how it is spoken to."""
    with pytest.raises(ApplicationError) as refused:
        await ActivityEnvironment().run(getattr(service, act), request(endpoint))
    assert error_type(refused.value) is ErrorType.TARGET_CHANGED
    assert plug.told == []


@pytest.mark.parametrize("act", ["power_off", "cut_path", "quarantine", "detach_volume", "terminate"])
async def test_a_worker_refuses_to_act_on_its_own_node_before_anything_is_sent(plug: Plug, act: str) -> None:
    """S16: another one takes the step over."""
    service = PowerService(
        NobodyAsks(), BELIEVING, own_node="node-7", drivers=lambda _device, _credentials: cast("PowerDriver", plug)
    )
    volume = VolumeRequest(target=TARGET, device=DEVICE, volume="vol-a", deadline=timedelta(seconds=10))
    with pytest.raises(ApplicationError) as refused:
        await getattr(service, act)(volume if act == "detach_volume" else request())
    assert error_type(refused.value) is ErrorType.OWN_NODE
    assert plug.told == []


async def test_the_pinned_one_is(service: PowerService, plug: Plug) -> None:
    result: CommandResult = await ActivityEnvironment().run(service.power_off, request())
    assert (result.sent, result.before, plug.told) == (True, PowerState.ON, ["read", "off"])


@pytest.mark.parametrize(("act", "state"), [("power_off", PowerState.OFF), ("power_on", PowerState.ON)])
async def test_a_command_is_read_back_after_its_end_until_it_has_worked(
    service: PowerService, plug: Plug, act: str, state: PowerState
) -> None:
    """S1, S2: what is said counts as asked for after the command had ended, and never before it."""
    plug.state, plug.slow = PowerState.UNKNOWN, 1
    result: CommandResult = await ActivityEnvironment().run(getattr(service, act), request(read_back=timedelta(seconds=5)))
    assert plug.told == ["read", act.removeprefix("power_"), "read", "read"]
    assert plug.sessions == 1
    assert result.after is not None
    assert result.after.state is state


async def test_a_device_that_does_not_do_it_is_not_waited_for_longer_than_asked(service: PowerService, plug: Plug) -> None:
    """S3: its last word is what it says, and never off."""
    plug.slow = 1000
    result: CommandResult = await ActivityEnvironment().run(service.power_off, request(read_back=timedelta(seconds=0.5)))
    assert plug.told[:2] == ["read", "off"]
    assert 2 <= len(plug.told) - 2 <= 3
    assert result.after is not None
    assert result.after.state is PowerState.ON


async def test_a_device_that_falls_silent_after_a_command_takes_nothing_of_it_back(service: PowerService, plug: Plug) -> None:
    """S3, S33: the command has ended, and that is known; what came of it is not."""
    plug.silent_after = True
    result: CommandResult = await ActivityEnvironment().run(service.power_off, request(read_back=timedelta(seconds=5)))
    assert (result.sent, result.after) == (True, None)


@pytest.mark.parametrize("act", ["power_off", "power_on"])
async def test_a_worker_whose_clock_is_behind_sends_nothing_late(service: PowerService, plug: Plug, act: str) -> None:
    """S20, S45: Temporal has given the act out two minutes after its window, by the one clock that made it."""
    plug.state = PowerState.OFF if act == "power_on" else PowerState.ON
    environment, now = ActivityEnvironment(), datetime.now(UTC)
    environment.info = replace(environment.info, started_time=now + timedelta(minutes=2))
    with pytest.raises(ApplicationError) as refused:
        await environment.run(getattr(service, act), request(not_after=now + timedelta(seconds=15)))
    assert error_type(refused.value) is ErrorType.EXPIRED
    assert plug.told in ([], ["read"])


OURS, ANOTHER = "4c4c4544-0042-3510-8051-b4c04f4d3132", "4c4c4544-0042-3510-8051-b4c04f4d3133"
OF_SYSTEM = replace(TARGET, pinned=replace(TARGET.pinned, system_uuid=OURS, instance_id="1"))


@pytest.mark.parametrize("act", ["read_power", "power_off", "power_on", "cut_path", "restore_path"])
async def test_a_device_that_serves_another_machine_is_not_commanded_and_proves_nothing(
    service: PowerService, plug: Plug, act: str
) -> None:
    """S39: its address was given to another one's BMC."""
    plug.serves, plug.state = (system_of(ANOTHER),), PowerState.OFF
    with pytest.raises(ApplicationError) as refused:
        await ActivityEnvironment().run(getattr(service, act), request(target=OF_SYSTEM))
    assert error_type(refused.value) is ErrorType.TARGET_CHANGED
    assert (ANOTHER in str(refused.value), OURS in str(refused.value)) == (True, True)
    assert plug.told == ["read"]


@pytest.mark.parametrize("serves", [(), (system_of(OURS),), (system_of(str(UUID(bytes=UUID(OURS).bytes_le))),)])
async def test_one_that_serves_the_pinned_machine_or_does_not_say_is_commanded(
    service: PowerService, plug: Plug, serves: tuple[str, ...]
) -> None:
    plug.serves = serves
    result: CommandResult = await ActivityEnvironment().run(service.power_off, request(target=OF_SYSTEM))
    assert (result.sent, plug.told) == (True, ["read", "off"])


async def test_what_another_machine_says_after_a_command_is_not_heard(service: PowerService, plug: Plug) -> None:
    """S2, S39."""
    plug.serves, plug.serves_after = (system_of(OURS),), (system_of(ANOTHER),)
    wanted = request(target=OF_SYSTEM, read_back=timedelta(seconds=5))
    result: CommandResult = await ActivityEnvironment().run(service.power_off, wanted)
    assert (result.sent, result.after) == (True, None)


class Instance(Plug):
    """A machine of a cloud."""

    capabilities = frozenset({PowerCapability.VOLUMES, PowerCapability.QUARANTINE})

    async def detach(self, volume: str, deadline: Deadline) -> None:
        self.told.append("detach")

    async def quarantine(self, deadline: Deadline) -> Quarantine:
        self.told.append("quarantine")
        return Quarantine(group="sg-1", former=(), at=datetime.now(UTC))

    async def lift_quarantine(self, quarantine: Quarantine | None, deadline: Deadline) -> tuple[InterfaceGroups, ...]:
        self.told.append("lift")
        return ()


@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.parametrize("act", ["quarantine", "lift_quarantine", "detach_volume"])
async def test_every_command_compares_the_devices_identity(act: str, ours: bool) -> None:
    """S39: a cloud may have made another instance of the name since the last one."""
    plug = Instance()
    plug.serves = (instance_of("1"),)
    service = PowerService(NoCredentials(), BELIEVING, drivers=lambda _device, _credentials: cast("PowerDriver", plug))
    asked = {"target": OF_SYSTEM, "device": DEVICE, "deadline": timedelta(seconds=5)}
    requests = {
        "quarantine": PowerRequest(**asked),  # type: ignore[arg-type]
        "lift_quarantine": LiftRequest(**asked, quarantine=None),  # type: ignore[arg-type]
        "detach_volume": VolumeRequest(**asked, volume="vol-a"),  # type: ignore[arg-type]
    }
    await ActivityEnvironment().run(getattr(service, act), requests[act])
    plug.serves = (instance_of("1" if ours else "2"),)
    with nullcontext() if ours else pytest.raises(ApplicationError, match="is not the device of node-7"):
        await ActivityEnvironment().run(getattr(service, act), requests[act])
    command = act.partition("_")[0]
    assert plug.told == ["read", command, "read", *([command] if ours else [])]


class Sealing(Believing):
    """Believes all but what machines had before a quarantine."""

    sealed_quarantine = Licences.sealed_quarantine
    require_quarantine = Licences.require_quarantine


async def test_a_machine_is_given_the_groups_that_its_quarantine_has_found_and_no_others() -> None:
    """S42: whoever can ask for a lift could put the machine behind groups of his choice. None: the cloud itself remembers."""
    plug = Instance()
    service = PowerService(NoCredentials(), Sealing(), drivers=lambda _device, _credentials: cast("PowerDriver", plug))
    found = await ActivityEnvironment().run(service.quarantine, request())
    asked = LiftRequest(target=TARGET, device=DEVICE, deadline=timedelta(seconds=5), quarantine=found)
    for good in (asked, replace(asked, quarantine=None)):
        await ActivityEnvironment().run(service.lift_quarantine, good)
    sent, open_to_all = list(plug.told), (InterfaceGroups(interface="eni-1", groups=("sg-open",)),)
    for forged in (
        replace(asked, quarantine=replace(found, former=open_to_all)),
        replace(asked, quarantine=replace(found, group="sg-2")),
        replace(asked, quarantine=replace(found, seal="")),
        replace(asked, target=replace(TARGET, incident="incident-2")),
    ):
        with pytest.raises(ApplicationError, match="has found these security groups") as refused:
            await ActivityEnvironment().run(service.lift_quarantine, forged)
        assert error_type(refused.value) is ErrorType.INVALID_CONFIG
    assert plug.told == sent


# What a call to a cloud never does, whatever the client in its thread tries.


async def test_a_client_that_asks_twice_in_one_call_is_not_heard() -> None:
    """S33: a repetition that nobody decided on would be a second command."""
    async with raw_server(saying("200 OK", "{}")) as server:
        call, request = (
            CloudCall("gce://p/z/i", "off", within(10), command=True),
            HttpRequest(method="POST", url=server.url, headers={}),
        )

        def work() -> int:
            first = call.send(request, tls=None, proxy=None).status
            with pytest.raises(NotSentError):
                call.send(request, tls=None, proxy=None)
            return first

        assert await call.run(work) == 200
        assert len(server.requests) == 1


async def test_a_thread_that_comes_late_sends_nothing() -> None:
    """S34: a name or a token that took too long; nobody waits for what follows."""
    refused, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    async with raw_server(saying("200 OK", "{}")) as server:
        call, request = (
            CloudCall("gce://p/z/i", "off", within(0.1), command=True),
            HttpRequest(method="POST", url=server.url, headers={}),
        )

        def work() -> None:
            go_on.wait(10)
            with pytest.raises(NotSentError):
                call.send(request, tls=None, proxy=None)
            loop.call_soon_threadsafe(refused.set)

        with pytest.raises(PowerError, match="nothing was sent"):
            await call.run(work)
        go_on.set()
        await asyncio.wait_for(refused.wait(), 10)
        assert server.requests == []
