"""What is concluded from what a Redfish service says: states, reset types, refusals, links, and answers that are none.

Real HTTP, but in this process and not in one per operation, so that each odd answer there is can be tried. `test_driver.py`
beside it has the processes, the deadlines and the emulator.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from activities.errors import ErrorType
from activities.power.bmc import redfish
from activities.power.bmc.drivers import RedfishDriver
from activities.power.bmc.redfish import RedfishSession
from activities.power.driver import EventLogDriver, PowerError
from policy.episode.messages import Reading
from policy.fence.power import PowerState
from tests.power.conftest import PASSWORD, USERNAME, fails, within
from tests.power.redfish.stand import (
    ACCEPTED,
    RESET,
    SYSTEM,
    Reply,
    ScriptedService,
    as_json,
    failure_of,
    refusal,
    scripted_service,
)
from tests.power.sessions_here import SessionsHere

PATIENCE = 10.0


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    SessionsHere(RedfishSession).patch(monkeypatch, RedfishDriver)


@pytest.fixture
async def service() -> AsyncIterator[ScriptedService]:
    async with scripted_service() as running:
        yield running


async def test_only_off_is_off() -> None:
    """S3: a machine on its way is not there."""
    expected = {
        "Off": PowerState.OFF,
        "PoweringOn": PowerState.ON,
        "PoweringOff": PowerState.UNKNOWN,
        "Paused": PowerState.UNKNOWN,
        "off": PowerState.UNKNOWN,
        None: PowerState.UNKNOWN,
        ("Off",): PowerState.UNKNOWN,
    }

    async def read(written: object) -> Reading:
        async with scripted_service() as service:
            service.system["PowerState"] = written
            return await service.driver().read(within(PATIENCE))

    readings = await asyncio.gather(*(read(written) for written in expected))
    assert [reading.state for reading in readings] == list(expected.values())
    assert [reading.detail for reading in readings if not reading.detail] == [""]


async def test_a_power_state_is_read_whatever_else_is_wrong_with_the_description(service: ScriptedService) -> None:
    del service.system["Id"]
    service.system |= {"Actions": None, "Links": None, "BootProgress": {"LastStateTime": ""}, "Oem": 7}
    service.system["@Redfish.Settings"] = {"SettingsObject": {"@odata.id": f"{SYSTEM}/Settings"}}
    await fails(service.driver().read(within(PATIENCE)), ErrorType.TRANSIENT, "not described as the standard has it")
    del service.system["Oem"]
    assert (await service.driver().read(within(PATIENCE))).state is PowerState.ON
    assert {heard.path for heard in service.heard} == {SYSTEM}


async def test_only_a_reset_type_that_the_system_allows_is_sent() -> None:
    """S5: off is a hard off, and nothing that comes near it."""

    async def command(operation: str, allowed: str, sent: str | None) -> None:
        async with scripted_service() as service:
            service.allow(*allowed.split())
            act = getattr(service.driver(), operation)
            if sent is None:
                await failure_of(act(within(PATIENCE)), ErrorType.NOT_SUPPORTED, f"it takes {', '.join(allowed.split())}")
            else:
                await act(within(PATIENCE))
            assert [heard.reset_type for heard in service.posted] == ([sent] if sent else [])

    await asyncio.gather(
        command("off", "On GracefulShutdown PushPowerButton PowerCycle", None),
        command("off", "On ForceOff", "ForceOff"),
        command("off", "", "ForceOff"),
        command("on", "On ForceOn", "On"),
        command("on", "ForceOn ForceOff", "ForceOn"),
    )


@pytest.mark.parametrize(
    ("parameters", "sent"), [([{"Name": "ResetType", "AllowableValues": ["ForceOn"]}], "ForceOn"), (["?"], "On")]
)
async def test_reset_types_may_be_listed_elsewhere_and_a_list_that_cannot_be_read_forbids_nothing(
    service: ScriptedService, parameters: list[Any], sent: str
) -> None:
    info = f"{SYSTEM}/ResetActionInfo"
    del service.reset_action["ResetType@Redfish.AllowableValues"]
    service.reset_action["@Redfish.ActionInfo"] = info
    service.replies["GET", info] = as_json({"@odata.id": info, "Parameters": parameters})
    await service.driver().on(within(PATIENCE))
    assert [heard.reset_type for heard in service.posted] == [sent]


async def test_a_system_without_the_action_does_not_support_it(service: ScriptedService) -> None:
    service.system["Actions"] = {}
    await failure_of(service.driver().off(within(PATIENCE)), ErrorType.NOT_SUPPORTED)


async def _types(answers: list[Reply], method: str, path: str, operation: str) -> list[str]:
    """The type of what becomes of an operation that is answered so, one service each; "" where it is well."""

    async def one(reply: Reply) -> str:
        async with scripted_service() as service:
            service.replies[method, path] = reply
            try:
                await getattr(service.driver(), operation)(within(PATIENCE))
            except PowerError as error:
                return error.type.value
            finally:
                assert len(service.posted) == (1 if operation == "off" else 0)
            return ""

    return list(await asyncio.gather(*(one(reply) for reply in answers)))


async def test_each_answer_to_a_command_lets_one_conclude_what_it_says_and_no_more() -> None:
    """S2, S3, S33: the machine reads on, so no refusal of off is success; each command was sent once."""
    expected: dict[str, list[Reply]] = {
        "": [ACCEPTED, as_json({}), (202, {"Location": "/redfish/v1/Tasks/1"}, b"")],
        "Unauthorized": [refusal(401), refusal(403)],
        "NotSupported": [
            refusal(404),
            refusal(501),
            (405, {}, b""),
            (308, {"Location": "/"}, b""),
            refusal(400, "Base.1.8.ActionParameterNotSupported"),
        ],
        "RateLimited": [refusal(429)],
        "Transient": [refusal(409), refusal(400, "Vendor.1.0.NotNow"), (400, {}, b'{"error": "busy"}'), refusal(503)],
        "Ambiguous": [refusal(500), refusal(502), (504, {}, b"<html>"), (303, {"Location": SYSTEM}, b"")],
    }
    answers = [reply for replies in expected.values() for reply in replies]
    types = [kind for kind, replies in expected.items() for _ in replies]
    assert await _types(answers, "POST", RESET, "off") == types


async def test_each_answer_to_a_question_lets_one_conclude_what_it_says_and_no_more() -> None:
    """S3: no answer but a state is a state."""
    expected: dict[str, list[Reply]] = {
        "Unauthorized": [refusal(401), refusal(403)],
        "InvalidConfig": [refusal(404), refusal(410)],
        "RateLimited": [refusal(429)],
        "Transient": [
            refusal(500),
            refusal(503),
            (204, {}, b""),
            (200, {}, b'{"PowerState": "Off"'),
            (200, {}, b"<html>welcome</html>"),
            (200, {}, b'["PowerState"]'),
            (200, {}, b"[" * 100_000),
        ],
    }
    answers = [reply for replies in expected.values() for reply in replies]
    types = [kind for kind, replies in expected.items() for _ in replies]
    assert await _types(answers, "GET", SYSTEM, "read") == types


async def test_a_redirect_within_the_service_is_followed_for_questions_alone(service: ScriptedService) -> None:
    """S33: a slash at the end is a matter of taste; a command goes where the system says, and nowhere else."""
    service.replies["GET", SYSTEM] = (308, {"Location": f"{SYSTEM}/"}, b"")
    service.replies["GET", f"{SYSTEM}/"] = as_json(service.system)
    service.replies["POST", RESET] = (307, {"Location": f"{RESET}/"}, b"")
    service.replies["POST", f"{RESET}/"] = ACCEPTED
    assert (await service.driver().read(within(PATIENCE))).state is PowerState.ON
    await failure_of(service.driver().off(within(PATIENCE)), ErrorType.NOT_SUPPORTED)
    assert [heard.path for heard in service.posted] == [RESET]


async def test_redirects_have_an_end(service: ScriptedService) -> None:
    service.replies["GET", SYSTEM] = (302, {"Location": SYSTEM}, b"")
    await failure_of(service.driver().read(within(PATIENCE)), ErrorType.TRANSIENT)
    assert len(service.heard) == 4


@pytest.mark.parametrize("through", ["redirect", "action", "action info", "member"])
async def test_credentials_and_commands_go_to_no_other_host(service: ScriptedService, through: str) -> None:
    """S9, S12: links are what the service says, not what was configured."""
    async with scripted_service() as other:
        elsewhere = f"http://127.0.0.1:{other.port}"
        driver = service.driver()
        if through == "redirect":
            service.replies["GET", SYSTEM] = (302, {"Location": f"{elsewhere}{SYSTEM}"}, b"")
        elif through == "action":
            service.reset_action["target"] = f"{elsewhere}{RESET}"
        elif through == "action info":
            service.allow()
            service.reset_action["@Redfish.ActionInfo"] = f"{elsewhere}/info"
            service.replies["POST", RESET] = refusal(403)
        else:
            service.replies["GET", "/redfish/v1/Systems"] = as_json({"Members": [{"@odata.id": f"{elsewhere}{SYSTEM}"}]})
            driver = service.driver(system=None)
        expected = ErrorType.UNAUTHORIZED if through == "action info" else ErrorType.INVALID_CONFIG
        await failure_of(driver.off(within(PATIENCE)), expected)
        assert other.heard == []
        assert len(service.posted) == (through == "action info")


@pytest.mark.parametrize("beneath", ["/redfish/v1/Systems/2", "/redfish/v1/Systems/11", "/redfish/v1/systems/2/"])
async def test_a_system_whose_reset_is_another_systems_is_not_commanded(service: ScriptedService, beneath: str) -> None:
    """S9, S39: of two machines in one chassis the wrong one would be switched off."""
    reset = f"{beneath.rstrip('/')}/Actions/ComputerSystem.Reset"
    service.reset_action["target"] = reset
    service.replies["POST", reset] = ACCEPTED
    await failure_of(service.driver().off(within(PATIENCE)), ErrorType.INVALID_CONFIG, f"its reset is {reset}")
    assert service.posted == []


async def test_a_service_that_answers_with_another_machine_is_refused(service: ScriptedService) -> None:
    """S9."""
    service.system["@odata.id"] = "/redfish/v1/Systems/2"
    await failure_of(
        service.driver().off(within(PATIENCE)),
        ErrorType.INVALID_CONFIG,
        "answered for /redfish/v1/Systems/1 with /redfish/v1/Systems/2",
    )
    assert service.posted == []


@pytest.mark.parametrize(
    ("collection", "is_clear"),
    [
        ({"Members": [{"@odata.id": SYSTEM}], "Members@odata.count": 1}, True),
        ({"Members": [{"@odata.id": SYSTEM}]}, True),
        ({"Members": [{"@odata.id": SYSTEM}], "Members@odata.count": 2, "Members@odata.nextLink": "/more"}, False),
        ({"Members": [], "Members@odata.count": 0}, False),
        ({"Members": {"@odata.id": SYSTEM}}, False),
        ({"Members": [{"name": "x"}, {"@odata.id": SYSTEM}]}, False),
    ],
)
async def test_the_only_system_is_taken_without_being_named_where_it_is_the_only_one(
    service: ScriptedService, collection: dict[str, Any], is_clear: bool
) -> None:
    """S10."""
    service.replies["GET", "/redfish/v1/Systems"] = as_json(collection)
    if is_clear:
        await service.driver(system=None).off(within(PATIENCE))
    else:
        await failure_of(service.driver(system=None).off(within(PATIENCE)), ErrorType.INVALID_CONFIG)
    assert len(service.posted) == is_clear


async def test_an_answer_without_end_is_not_read_to_its_end(service: ScriptedService) -> None:
    sent = 0

    async def flood(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b" " * 65536)
            sent += 65536
            await writer.drain()

    service.replies["GET", SYSTEM] = flood
    await failure_of(service.driver().read(within(PATIENCE)), ErrorType.TRANSIENT, "more than 1048576 bytes")
    assert sent < 64 * 1024 * 1024


async def test_no_session_is_opened_that_could_be_left_over(service: ScriptedService) -> None:
    """A service has room for a few sessions; a killed process would leave its own there until nobody can log in."""
    service.replies["GET", "/redfish/v1/"] = as_json(
        {
            "Links": {"Sessions": {"@odata.id": "/redfish/v1/SessionService/Sessions"}},
            "Systems": {"@odata.id": "/redfish/v1/Systems"},
        }
    )
    await service.driver().off(within(PATIENCE))
    assert [(heard.method, heard.path) for heard in service.heard] == [("GET", SYSTEM), ("POST", RESET)]
    token = base64.b64encode(f"{USERNAME}:{PASSWORD}".encode()).decode()
    assert {heard.headers["authorization"] for heard in service.heard} == {f"Basic {token}"}
    assert {heard.headers["connection"] for heard in service.heard} == {"close"}


@pytest.mark.parametrize("uuid", ["not-a-uuid", "", None, 7, "00000000-0000-0000-0000-000000000000"])
async def test_a_uuid_that_is_none_names_no_machine(service: ScriptedService, uuid: object) -> None:
    """S39: what is not known is compared with nothing."""
    service.system["UUID"] = uuid
    assert (await service.driver().read(within(PATIENCE))).serves == ()


# The event log over Redfish, as services keep it in their different ways: on the system or its manager, in pages, in links.

MANAGER = "/redfish/v1/Managers/bmc"
ENTRIES = f"{SYSTEM}/LogServices/SEL/Entries"


def entry(number: int, message: str) -> dict[str, Any]:
    moment = f"2026-11-22T12:00:{number:02}Z"
    return {"@odata.id": f"{ENTRIES}/{number}", "Created": moment, "Severity": "Critical", "Message": message}


def serve(service: ScriptedService, path: str, **document: Any) -> None:
    service.replies["GET", path] = as_json({"@odata.id": path, **document})


def log_of(service: ScriptedService, holder: str) -> None:
    """A holder that keeps one log, whose entries a test writes."""
    services = f"{holder}/LogServices"
    serve(service, services, Members=[{"@odata.id": f"{services}/SEL"}])
    serve(service, f"{services}/SEL", Entries={"@odata.id": f"{services}/SEL/Entries"})


async def read(service: ScriptedService) -> list[str]:
    return (await cast("EventLogDriver", service.driver()).event_log(within(10))).splitlines()


async def test_entries_are_told_in_the_order_of_their_moments_over_all_pages_and_links(service: ScriptedService) -> None:
    """S12: a password that the service repeats is not."""
    service.system["LogServices"] = {"@odata.id": f"{SYSTEM}/LogServices"}
    log_of(service, SYSTEM)
    further = f"{ENTRIES}?$skip=2"
    serve(service, ENTRIES, **{"Members": [entry(3, "fan 2 stopped"), entry(1, "power lost")], "Members@odata.nextLink": further})
    serve(service, further, Members=[{"@odata.id": f"{ENTRIES}/2"}])
    service.replies["GET", f"{ENTRIES}/2"] = as_json(entry(2, f"login with {PASSWORD}\nfailed"))
    lines = await read(service)
    assert [line.split("Critical ")[1].split(" ")[0] for line in lines] == ["power", "login", "fan"]
    assert lines[0] == "2026-11-22T12:00:01Z Critical power lost"
    assert PASSWORD not in "".join(lines)


async def test_the_log_of_its_manager_counts_where_the_system_has_none(service: ScriptedService) -> None:
    service.system["Links"] = {"ManagedBy": [{"@odata.id": MANAGER}]}
    serve(service, MANAGER, LogServices={"@odata.id": f"{MANAGER}/LogServices"})
    log_of(service, MANAGER)
    serve(service, f"{MANAGER}/LogServices/SEL/Entries", Members=[entry(1, "watchdog")])
    assert await read(service) == ["2026-11-22T12:00:01Z Critical watchdog"]


def test_only_the_newest_of_many_are_kept_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redfish, "ENTRIES_READ", 2)
    entries = [entry(number, f"event {number}") for number in range(5)]
    documents = {
        "system": SimpleNamespace(log_services="logs"),
        "logs": SimpleNamespace(members=[{"@odata.id": "log"}], further=None),
        "log": SimpleNamespace(entries="entries"),
        "entries": SimpleNamespace(members=entries, further=None),
    }
    found = redfish.read_event_log(lambda _, path: documents[path], str, ["system"], float("inf")).splitlines()
    assert [line.rsplit(" ", 1)[1] for line in found[:2]] == ["3", "4"]
    assert found[2] == "(2 of 5 entries or more were kept)"


async def test_without_any_log_that_is_said(service: ScriptedService) -> None:
    await fails(read(service), ErrorType.NOT_SUPPORTED, "has no event log")
