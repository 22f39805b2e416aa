"""The event log over Redfish, as services keep it in their different ways: on the system or its manager, in pages, in links."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from activities.errors import ErrorType
from activities.power.bmc import redfish
from activities.power.driver import EventLogDriver
from tests.power.conftest import PASSWORD, fails, within
from tests.power.redfish.stand import SYSTEM, ScriptedService, as_json, scripted_service

MANAGER = "/redfish/v1/Managers/bmc"
ENTRIES = f"{SYSTEM}/LogServices/SEL/Entries"


@pytest.fixture
async def service() -> AsyncIterator[ScriptedService]:
    async with scripted_service() as running:
        yield running


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
