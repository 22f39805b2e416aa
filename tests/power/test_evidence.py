"""What a device has seen of its machine: read once, without credentials, bounded, and written by the worker that read it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from temporalio.testing import ActivityEnvironment

from activities.contracts.evidence import BundleName, DeviceEvidenceRequest, EvidenceFile
from activities.errors import ErrorType
from activities.evidence_directory import EvidenceDirectory, Limits
from activities.power.bmc import ipmi as ipmi_child
from activities.power.bmc.child import OperationError
from activities.power.driver import Deadline, PowerDriver, PowerError
from activities.power.service import DeviceEvidence
from policy.fence.plan import PowerDevice
from policy.fence.power import PowerCapability
from tests.cluster.acts.world import refused
from tests.licensing import BELIEVING
from tests.power.conftest import PASSWORD, Stand, within
from tests.power.test_device_reading import Known, a_bmc

BUNDLE = BundleName(cluster="prod", node="node-7", incident="incident-1")
FOLDER = "prod/node-7/incident-1"


class Talkative:
    """A driver that can read a console, or does not."""

    endpoint = "ec2://eu-west-1/../i-1"

    def __init__(self, says: Callable[[], str], *capabilities: PowerCapability) -> None:
        self._says = says
        self.capabilities = frozenset(capabilities)
        self.asked = 0

    async def console(self, deadline: Deadline) -> str:
        assert timedelta(0) < deadline.remaining() < timedelta(seconds=20)
        self.asked += 1
        return self._says()


async def keep(
    directory: Path | None,
    driver: Talkative | None = None,
    *,
    device: PowerDevice | None = None,
    room: int = 1 << 20,
    **limits: Any,
) -> EvidenceFile:
    kept_in = EvidenceDirectory(directory, Limits(**limits)) if directory is not None else None
    options: dict[str, Any] = {"drivers": lambda _device, _credentials: cast("PowerDriver", driver)} if driver is not None else {}
    evidence = DeviceEvidence(Known(), BELIEVING, directory=kept_in, **options)
    asked = device or PowerDevice(driver="ec2", endpoint=Talkative.endpoint)
    found = await ActivityEnvironment().run(evidence.read_device, DeviceEvidenceRequest(bundle=BUNDLE, device=asked, room=room))
    assert isinstance(found, EvidenceFile)
    return found


def texts_in(directory: Path) -> list[str]:
    return [str(each.relative_to(directory)) for each in directory.rglob("*.txt")]


def failing() -> str:
    raise PowerError(ErrorType.RATE_LIMITED, "ec2://i-1: 'console': RequestLimitExceeded")


async def test_a_console_is_kept_without_our_credentials_and_private_keys_under_a_safe_name(tmp_path: Path) -> None:
    """S12."""
    key = "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----"
    driver = Talkative(lambda: f"login with {PASSWORD}\n{key}\nKernel panic\n", PowerCapability.CONSOLE)
    file = await keep(tmp_path, driver)
    assert texts_in(tmp_path) == [f"{FOLDER}/{file.name}"]
    content = (tmp_path / FOLDER / file.name).read_bytes()
    assert b"Kernel panic" in content
    assert PASSWORD.encode() not in content
    assert b"abc" not in content
    assert (file.size, file.sha256, file.cut_from) == (len(content), hashlib.sha256(content).hexdigest(), 0)
    assert driver.asked == 1


@pytest.mark.parametrize(("room", "file_bytes"), [(100, 1000), (1000, 100)])
async def test_the_newest_whole_lines_are_kept_within_what_is_left_of_the_bundle(
    tmp_path: Path, room: int, file_bytes: int
) -> None:
    lines = [f"line {number}" for number in range(100)]
    driver = Talkative(lambda: "\n".join(lines) + "\n", PowerCapability.CONSOLE)
    file = await keep(tmp_path, driver, room=room, file_bytes=file_bytes)
    kept = (tmp_path / FOLDER / file.name).read_text().splitlines()
    assert kept == lines[-len(kept) :]
    assert 80 < file.size <= 100
    assert file.cut_from == sum(len(line) + 1 for line in lines)


async def test_what_can_not_be_had_is_said_with_its_reason(tmp_path: Path) -> None:
    with refused(ErrorType.RATE_LIMITED, "RequestLimitExceeded"):
        await keep(tmp_path, Talkative(failing, PowerCapability.CONSOLE))
    with refused(ErrorType.NOT_SUPPORTED, "reads neither a console nor an event log"):
        await keep(tmp_path, Talkative(str, PowerCapability.READ))
    with refused(ErrorType.NOT_SUPPORTED, "have no evidence.directory"):
        await keep(None, Talkative(str, PowerCapability.CONSOLE))
    assert texts_in(tmp_path) == []


async def test_the_event_log_of_a_bmc_is_kept(stand: Stand, tmp_path: Path) -> None:
    """One BMC has a log with an entry; the other knows no log, and says so."""
    device = a_bmc(stand.bmc.port).device
    if stand.bmc.kind != "ipmi_sim":
        with refused(ErrorType.NOT_SUPPORTED, "does not know this command"):
            await keep(tmp_path, device=device)
        return
    file = await keep(tmp_path, device=device)
    text = (tmp_path / FOLDER / file.name).read_text()
    assert file.of.startswith("event-log of ipmi://127.0.0.1:")
    assert "Power Supply 0x51" in text
    assert "asserted" in text
    assert (await stand.driver().read(within(5))).state.value == "on"


class Log:
    """A BMC's side of a session: a log of so many entries, and how often it was asked."""

    def __init__(self, count: int, *, first: int = 1, counts: bool = True) -> None:
        self.records = [first + (number if counts else 3 * number) for number in range(count)]
        self.asked = 0

    def raw_command(self, *, netfn: int, command: int, data: tuple[int, ...]) -> dict[str, Any]:
        assert netfn == ipmi_child.STORAGE
        if command == 0x40:
            return {"code": 0, "data": [0x51, *len(self.records).to_bytes(2, "little"), *bytes(11)]}
        assert command == 0x43
        self.asked += 1
        wanted = int.from_bytes(bytes(data[2:4]), "little")
        record = {0: self.records[0], 0xFFFF: self.records[-1]}.get(wanted, wanted)
        if record not in self.records:
            return {"code": 0xCB, "data": []}
        place = self.records.index(record)
        following = self.records[place + 1] if place + 1 < len(self.records) else 0xFFFF
        moment = (1763726400 + place).to_bytes(4, "little")
        entry = [*record.to_bytes(2, "little"), 0x02, *moment, 0x20, 0, 0x04, 0x08, 0x51, 0x6F, 1, 0xFF, 0xFF]
        return {"code": 0, "data": [*following.to_bytes(2, "little"), *entry]}


def read(log: Log, seconds: float = 60) -> list[str]:
    return ipmi_child.read_event_log(log, time.monotonic() + seconds).splitlines()


def test_entries_are_told_in_their_order_in_words_and_as_they_came() -> None:
    first, second = read(Log(2))
    assert first.startswith(
        "0x0001 | 2025-11-21T12:00:00 (its clock) | Power Supply 0x51 | event type 0x6f offset 1 | asserted | "
    )
    assert first.endswith("0100024054206920000408516f01ffff")
    assert second.startswith("0x0002 | 2025-11-21T12:00:01")
    assert read(Log(0)) == []


def test_of_a_long_log_the_newest_entries_are_read() -> None:
    log = Log(2000)
    lines = read(log)
    assert lines[0].startswith("0x05dd | ")
    assert lines[-2].startswith("0x07d0 | ")
    assert lines[-1] == "(500 of 2000 entries were read)"
    assert log.asked == 502


def test_a_bmc_that_does_not_count_its_records_is_read_from_the_first() -> None:
    lines = read(Log(600, counts=False))
    assert lines[0].startswith("0x0001 | ")
    assert lines[-1] == "(500 of 600 entries were read)"


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("0500c0" + "40542069" + "00" * 9, "0x0005 | 2025-11-21T12:00:00 (its clock) | record type 0xc0 | "),
        ("0600e0" + "00" * 13, "0x0006 | record type 0xe0 | "),
        (
            "070002" + "3c000000" + "2000" + "04" + "fe" + "01" + "ef" + "000000",
            "| 60 s after the BMC's start | sensor type 0xfe 0x01 |",
        ),
        ("080002" + "ffffffff" + "2000" + "04" + "08" + "01" + "ef" + "000000", "| at an unknown time | "),
    ],
)
def test_entries_of_every_kind_are_told(entry: str, words: str) -> None:
    told = ipmi_child.entry_line(bytes.fromhex(entry))
    assert words in told
    assert told.endswith(f" | {entry}")
    assert ("deasserted" in told) is ("ef" in entry)


def test_an_answer_that_is_too_short_is_no_entry() -> None:
    class Short(Log):
        def raw_command(self, *, netfn: int, command: int, data: tuple[int, ...]) -> dict[str, Any]:
            answer = super().raw_command(netfn=netfn, command=command, data=data)
            return answer if command == 0x40 else {**answer, "data": answer["data"][:9]}

    with pytest.raises(OperationError, match="has 7 bytes, expected 16"):
        read(Short(3))
