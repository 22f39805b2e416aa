"""S42: what a power worker believes. Each fact of a licence is another licence, and one is used once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.contracts.power import PowerRequest
from activities.contracts.target import LicenceWanted
from activities.errors import ErrorType, error_type
from activities.keyring import Keyring
from activities.licences import LONGEST, OFF_FOR, Licences
from policy.episode.node_action import NodeActionSpec, SealedCommand, Verb
from policy.fence.plan import SEALED_FOR, Act, CredentialRef, FencingPlan, PlannedMethod, PowerDevice
from policy.fence.power import PowerAct
from tests.licensing import LICENCES
from tests.power.targets import target_with
from workers.payloads.converter import DATA_CONVERTER

ENDPOINT = "ipmi://10.0.0.7:623"
DEVICE = PowerDevice(driver="ipmi", endpoint=ENDPOINT, levels=((ENDPOINT,),))
PORT = PowerDevice(driver="fence_ifmib", endpoint="fence_ifmib://10.0.0.9/7")
TARGET = target_with(DEVICE)
NOW = datetime.now(UTC)
WANTED = LicenceWanted(act=PowerAct.OFF, not_after=NOW + timedelta(seconds=15))


def run(function: Any, *arguments: Any, **info: Any) -> Any:
    """In an activity of that run."""
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, **info)
    return environment.run(function, *arguments)


@pytest.fixture
def licences() -> Licences:
    return Licences(Keyring([b"k" * 32]))


@pytest.fixture
def request_(licences: Licences) -> PowerRequest:
    signed = run(licences.licence, TARGET, WANTED, NOW)
    return PowerRequest(target=TARGET, device=DEVICE, deadline=timedelta(seconds=5), not_after=WANTED.not_after, licence=signed)


def refused(licences: Licences, request: PowerRequest, act: PowerAct = PowerAct.OFF, **info: Any) -> str:
    with pytest.raises(ApplicationError) as error:
        run(licences.require_licence, request, act, **info)
    assert error_type(error.value) is ErrorType.NOT_LICENSED
    return error.value.message


def test_the_act_that_was_looked_for_is_licensed(licences: Licences, request_: PowerRequest) -> None:
    run(licences.require_licence, request_, PowerAct.OFF)


@pytest.mark.parametrize("act", sorted(set(PowerAct) - {PowerAct.OFF}))
def test_no_other_act_is(licences: Licences, request_: PowerRequest, act: PowerAct) -> None:
    refused(licences, request_, act)


@pytest.mark.parametrize(
    ("act", "device"),
    [(PowerAct.CUT_PATH, DEVICE), (PowerAct.RESTORE_PATH, DEVICE), (PowerAct.OFF, PORT), (PowerAct.ON, PORT)],
)
def test_s42_a_licence_is_for_devices_of_its_kind(licences: Licences, act: PowerAct, device: PowerDevice) -> None:
    """S21: a look licenses that a kept machine is cut off; with its BMC for the port the same command would switch it off."""
    target, wanted = target_with(device), replace(WANTED, act=act)
    signed = run(licences.licence, target, wanted, NOW)
    seconds, until = timedelta(seconds=5), wanted.not_after
    request = PowerRequest(target=target, device=device, deadline=seconds, not_after=until, licence=signed)
    assert "feeds" in refused(licences, request, act)
    other = replace(request, device=replace(device, levels=() if device.levels else ((device.endpoint,),)))
    run(licences.require_licence, other, act)  # whose seal no worker of ours would accept


@pytest.mark.parametrize(
    "changed",
    [
        {"not_after": None},
        {"not_after": WANTED.not_after + timedelta(hours=1)},
        {"licence": ""},
        {"licence": "0123456789abcdef." + "0" * 64},
        {"target": replace(TARGET, incident="incident-2")},
        {"target": replace(TARGET, cluster="staging")},
        {"target": replace(TARGET, pinned=replace(TARGET.pinned, node="node-8"))},
        {"target": replace(TARGET, pinned=replace(TARGET.pinned, uid="uid-2"))},
        {"target": replace(TARGET, pinned=replace(TARGET.pinned, provider_id="aws:///i-1"))},
        {"target": replace(TARGET, pinned=replace(TARGET.pinned, endpoints=(DEVICE.endpoint, PORT.endpoint)))},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_nor_is_anything_else_changed(licences: Licences, request_: PowerRequest, changed: dict[str, Any]) -> None:
    refused(licences, replace(request_, **changed))


def test_another_run_cannot_use_it(licences: Licences, request_: PowerRequest) -> None:
    """Whoever reads it in a history is in another run, which Temporal names and he does not."""
    refused(licences, request_, workflow_run_id="another")
    refused(licences, request_, workflow_id="another")


def test_it_is_used_once_by_one_activity_however_often_that_is_tried(licences: Licences, request_: PowerRequest) -> None:
    run(licences.require_licence, request_, PowerAct.OFF)
    run(licences.require_licence, request_, PowerAct.OFF, attempt=2)
    assert "used before" in refused(licences, request_, activity_id="another")
    assert "used before" in refused(licences, request_, scheduled_time=NOW + timedelta(seconds=1))
    # Each of several devices that feed a machine is switched under the same look.
    other = replace(PORT, levels=((PORT.endpoint,),))
    run(licences.require_licence, replace(request_, device=other), PowerAct.OFF, activity_id="another")


def test_a_moment_that_is_far_away_is_left_to_a_worker_whose_clock_is_right(licences: Licences) -> None:
    """S42, S45: an empty licence would be refused as nobody's, and nobody would hear of the clock."""
    assert run(licences.licence, TARGET, replace(WANTED, not_after=NOW + LONGEST), NOW)
    with pytest.raises(ApplicationError, match=r"the clock of worker .* is behind, 31s before .* to another") as error:
        run(licences.licence, TARGET, replace(WANTED, not_after=NOW + LONGEST + timedelta(seconds=1)), NOW)
    assert error_type(error.value) is ErrorType.WRONG_CLOCK
    assert not error.value.non_retryable


def test_another_deployments_licence_is_none(request_: PowerRequest) -> None:
    refused(LICENCES, request_)


def test_what_is_used_is_forgotten_once_it_is_over(licences: Licences) -> None:
    """A worker that runs for a year does not grow with every act."""
    long_ago = NOW - timedelta(days=1)
    for number in range(3):
        wanted = replace(WANTED, not_after=long_ago + timedelta(seconds=number))
        signed = run(licences.licence, TARGET, wanted, long_ago)
        request = PowerRequest(
            target=TARGET, device=DEVICE, deadline=timedelta(seconds=5), not_after=wanted.not_after, licence=signed
        )
        run(licences.require_licence, request, PowerAct.OFF)
    assert len(licences._used) == 1


def test_what_was_used_is_remembered_for_as_long_as_clocks_may_differ(
    licences: Licences, request_: PowerRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S33, S42: also where others were used meanwhile, and the moment by which it was to begin is over by our clock."""
    run(licences.require_licence, request_, PowerAct.OFF)

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return WANTED.not_after + LONGEST - timedelta(seconds=1)

    monkeypatch.setattr("activities.licences.datetime", Later)
    other = run(licences.licence, TARGET, WANTED, NOW)
    run(licences.require_licence, replace(request_, licence=other), PowerAct.OFF, activity_id="2")
    assert "used before" in refused(licences, request_, activity_id="3")


def test_every_device_of_a_plan_is_sealed_and_no_other_is_believed(licences: Licences) -> None:
    path = PlannedMethod(name="cut", act=Act.CUT_PATH, device=PORT)
    sealed = licences.sealed("prod", "node-7", FencingPlan(source="x", levels=((DEVICE,),), isolation=(path,), recovery=(path,)))
    ports = [each.device for each in (*sealed.isolation, *sealed.recovery) if each.device is not None]
    for device in (*sealed.devices, *ports):
        run(licences.require_seal, "prod", "node-7", device)
    (device,) = sealed.devices
    assert ([each.levels for each in ports], device.levels) == ([(), ()], ((DEVICE.endpoint,),))
    strangers = [
        DEVICE,
        replace(device, levels=()),
        replace(device, endpoint="ipmi://10.6.6.6:623"),
        replace(device, parameters={"ip": "10.6.6.6"}),
    ]
    others = [("staging", "node-7", device), ("prod", "node-8", device)]
    for cluster, node, stranger in [*(("prod", "node-7", each) for each in strangers), *others]:
        with pytest.raises(ApplicationError, match="no worker of this deployment has signed it") as error:
            run(licences.require_seal, cluster, node, stranger)
        assert error_type(error.value) is ErrorType.INVALID_CONFIG


def test_s40_a_device_says_under_its_seal_which_credentials_have_gone_elsewhere_only(licences: Licences) -> None:
    """Else whoever can schedule activities takes the doubt away and has the password sent."""
    device = replace(DEVICE, parameters={"ip": "10.0.0.7"}, credentials=(CredentialRef(name="bmc", namespace="nodewarden"),))
    plan, name = FencingPlan(source="x", levels=((device,),)), "Secret/nodewarden/bmc"
    (strange,) = licences.sealed("prod", "node-7", plan, {name: ("10.0.0.8",)}).devices
    assert strange.strange_to == (name,)
    run(licences.require_seal, "prod", "node-7", strange)
    with pytest.raises(ApplicationError):
        run(licences.require_seal, "prod", "node-7", replace(strange, strange_to=()))
    for known in ({}, {name: ("10.0.0.8", "10.0.0.7")}, {"Secret/nodewarden/other": ("10.0.0.8",)}):
        assert licences.sealed("prod", "node-7", plan, known).devices[0].strange_to == ()


def test_s49_a_seal_ends_and_is_asked_for_anew_before(licences: Licences, monkeypatch: pytest.MonkeyPatch) -> None:
    """A history is kept for a month: what was a BMC's address then may be another machine's, and the password is today's."""
    sealed = licences.sealed("prod", "node-7", FencingPlan(source="x", levels=((DEVICE,),)))
    (device,), moment = sealed.devices, datetime.now(UTC)
    assert not sealed.is_to_be_sealed_anew(moment + SEALED_FOR / 2 - timedelta(seconds=2))
    assert sealed.is_to_be_sealed_anew(moment + SEALED_FOR / 2 + timedelta(seconds=2))
    for former in ("a-seal-that-says-no-moment", "zz.1"):
        assert sealed.with_devices(lambda device: replace(device, seal=former)).is_to_be_sealed_anew(moment)  # noqa: B023

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return moment + SEALED_FOR + timedelta(seconds=2)

    run(licences.require_seal, "prod", "node-7", device)
    monkeypatch.setattr("activities.licences.datetime", Later)
    with pytest.raises(ApplicationError, match="no worker of this deployment has signed it in the last 7 days") as error:
        run(licences.require_seal, "prod", "node-7", device)
    assert error_type(error.value) is ErrorType.INVALID_CONFIG
    later = replace(device, seal=f"{int(moment.timestamp() + 99999):x}.{device.seal.partition('.')[2]}")
    with pytest.raises(ApplicationError):
        run(licences.require_seal, "prod", "node-7", later)


@pytest.mark.parametrize(("verb", "within"), [(Verb.ACK_OFF, OFF_FOR), (Verb.FENCE, SEALED_FOR)])
def test_s49_a_verified_word_ends(licences: Licences, monkeypatch: pytest.MonkeyPatch, verb: Verb, within: timedelta) -> None:
    """What was seen off long ago may run: an old word of that incident would free its pods again (S1)."""
    spec = NodeActionSpec(action=verb, node=TARGET.pinned.node, reason="a drill")
    word = SealedCommand(spec=spec, action="uid-1", speaker="ada")
    sealed = run(licences.seal_command, TARGET.cluster, TARGET.incident, word)
    moment = datetime.now(UTC)
    for late in (timedelta(minutes=-1), timedelta(minutes=1)):
        shifted = moment + within + late
        monkeypatch.setattr("activities.licences.datetime", type("Later", (datetime,), {"now": lambda _=None, at=shifted: at}))
        assert bool(run(licences.command_problem, TARGET, None, sealed, verb)) is (late > timedelta(0))


def test_s44_a_word_that_an_older_build_has_sealed_is_to_be_said_again(licences: Licences) -> None:
    """Its seal has fewer facts of the word; that the keys are not the same is the other thing that it can be."""
    spec = NodeActionSpec(action=Verb.FENCE, node=TARGET.pinned.node, reason="a drill")
    of_old = run(licences.seal_command, TARGET.cluster, TARGET.incident, SealedCommand(spec=spec, action="uid-1", speaker="ada"))
    doubt = run(licences.seal_problem, TARGET, replace(of_old, node_uid="uid-7"), Verb.FENCE)
    assert "said to an older build, or changed since? Then say it again; otherwise give all workers" in doubt


async def test_what_has_travelled_through_temporal_is_believed(licences: Licences) -> None:
    """Moments, durations and mappings come back as they were signed, defaults left out and all."""
    whole = replace(
        DEVICE,
        parameters={"port": "623", "ip": "10.0.0.7"},
        credentials=(CredentialRef(name="bmc", namespace="nodewarden", keys={"password": "pw"}),),
        delay=timedelta(seconds=1.5),
        off_timeout=timedelta(milliseconds=250),
    )
    wanted = replace(WANTED, not_after=WANTED.not_after.replace(microsecond=123456))
    converter = DATA_CONVERTER.payload_converter
    pinned = replace(TARGET.pinned, not_ready_since=NOW, provider_id="aws:///i-1")
    request = PowerRequest(
        target=replace(TARGET, pinned=pinned),
        device=licences.sealed_device("prod", "node-7", whole),
        deadline=timedelta(seconds=5),
        not_after=wanted.not_after,
        licence=run(licences.licence, replace(TARGET, pinned=pinned), wanted, NOW),
    )
    (received,) = converter.from_payloads(converter.to_payloads([request]), [PowerRequest])
    run(licences.require_seal, "prod", "node-7", received.device)
    run(licences.require_licence, received, PowerAct.OFF)
