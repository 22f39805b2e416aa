"""A session with a BMC by IPMI over the network: log in once, answer what is asked, log out. Runs in a process of its own.

What such a process promises is `child.py`. What this one adds: a state-changing command goes out as one datagram, once. Only
questions are repeated when an answer is lost.

On pyghmi's single-session client and not on its `Command`: that one runs threads that can miss their own wake-up, logs
in again behind one's back and then repeats the command, and loads 200 ms of vendor code, all of which each child would carry.
"""

from __future__ import annotations

import select
import socket
import time
from typing import Any
from uuid import UUID

from pyghmi.exceptions import IpmiException
from pyghmi.ipmi.private import simplesession
from pyghmi.ipmi.private.constants import sensor_type_codes

from activities.power.bmc.child import OperationError, announce_command, run, write_line

CHASSIS, APPLICATION, STORAGE = 0x00, 0x06, 0x0A
CONTROL = {"off": 0, "on": 1}

SHA1_SUITE, SHA256_SUITE = 3, 17

FIRST_PATIENCE, LONGEST_PATIENCE = 1.0, 4.0
"""Seconds until a question is repeated, doubling: a slow BMC answers every copy, and keeps all that follow waiting."""

EVENTS_READ, EVENTS_RESERVE = 500, 2.0
"""Entries of an event log at most, the newest; seconds before the deadline in which no other is asked for."""
SYSTEM_EVENT, OEM_WITHOUT_TIME, UNSET_CLOCK = 0x02, 0xE0, 0x20000000
FIRST_RECORD, LAST_RECORD = 0x0000, 0xFFFF

UNAUTHORIZED_LOGIN = (
    "Incorrect password",
    "Unauthorized name",
    "Unauthorized role",
    "Invalid role",
    "Invalid username length",
    "Invalid integrity check value",
    "Invalid RAKP4 integrity code",
    "while requesting privelege level",  # as the library spells it
)
FULL_LOGIN = ("Insufficient resources",)
CIPHER_LOGIN = ("algorithm", "No matching integrity", "No Cipher suite")
IPMI_1_5_LOGIN = ("IPMI 1.5", "MD5 required")

# Completion codes that say "not done" for certain (IPMI 2.0, table 5-2). Whatever else a BMC answers to a command
# (an unspecified error, a time-out inside the BMC) leaves open whether it was carried out.
BUSY, INVALID_COMMAND, RESERVED_FIELD, PRESENT_STATE = 0xC0, 0xC1, 0xCC, 0xD5
REFUSALS = {
    BUSY: ("Transient", "the BMC is busy"),
    INVALID_COMMAND: ("NotSupported", "the BMC does not know this command"),
    0xC2: ("NotSupported", "the BMC does not know this command here"),
    0xC7: ("NotSupported", "the BMC does not take this form of the command"),
    0xC9: ("NotSupported", "the BMC does not take this value"),
    RESERVED_FIELD: ("NotSupported", "the BMC does not support this value"),
    0xD0: ("Transient", "the BMC is updating its records"),
    0xD1: ("Transient", "the BMC is updating its firmware"),
    0xD2: ("Transient", "the BMC is still starting"),
    0xD4: ("Unauthorized", "the BMC user's privilege is too low for this command"),
    PRESENT_STATE: ("Transient", "the BMC refuses this in its present state"),
    0xD6: ("NotSupported", "the BMC has this command disabled"),
}

FAULT_BITS = ((1, "overload"), (2, "interlock"), (3, "power fault"), (4, "power control fault"))


def resolve(host: str, port: int) -> str:
    try:
        return str(socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0][4][0])
    except OSError as error:
        raise OperationError("Unreachable", f"the BMC's name cannot be resolved ({error.strerror})") from error


class RepeatingSession(simplesession.Session):
    """The library's session, with the repetition that it leaves out and commands that are sent exactly once."""

    repeat_at: float | None = None
    patience = FIRST_PATIENCE

    def __init__(self, device: dict[str, Any]) -> None:
        self._cipher = device["cipher"]
        # Bytes, because with text a wrong password can go unnoticed by the library.
        super().__init__(
            bmc=resolve(device["host"], device["port"]),
            userid=device["username"].encode(),
            password=device["password"].encode(),
            port=device["port"],
            privlevel=device["privilege"],
        )

    def _initsession(self) -> None:
        super()._initsession()
        if self._cipher == SHA1_SUITE:
            self.attemptedhash = 1

    def _open_rmcpplus_request(self) -> None:
        if self._cipher == SHA256_SUITE and self.attemptedhash == 1:
            # The library would go on with the weaker suite, which was not asked for.
            self.onlogon({"error": "No Cipher suite match"})
            return
        super()._open_rmcpplus_request()

    def _get_session_challenge(self) -> None:
        # Where the BMC, or what answers in its place, says that it knows no 2.0, the library would log in as IPMI 1.5 has it: by
        # MD5, from which the password can be guessed, and then without encryption.
        self.onlogon({"error": "IPMI 1.5 only"})

    def _got_channel_auth_cap(self, response: dict[str, Any]) -> None:
        write_line(stage="reached")
        if response.get("code") == RESERVED_FIELD:  # it does not know the bit that asks for IPMI 2.0
            self._get_session_challenge()
            return
        super()._got_channel_auth_cap(response)

    def _xmit_packet(self, retry: bool = True, delay_xmit: float | None = None, timeout: float | None = None) -> None:
        super()._xmit_packet(retry, delay_xmit, timeout)
        self.repeat_at = time.monotonic() + self.patience if retry else None

    def wait_for_rsp(self, timeout: float | None = None, callout: bool = True) -> None:  # noqa: ARG002
        wait = None if self.repeat_at is None else max(0.0, self.repeat_at - time.monotonic())
        if select.select([self.socket], [], [], wait)[0]:
            self.patience = FIRST_PATIENCE
            self.process_pktqueue()
        elif self.lastpayload:
            self.patience = min(2 * self.patience, LONGEST_PATIENCE)
            self.timeout = 0.0  # the library counts up to a limit and gives up; here the deadline is the limit
            self._timedout()
        else:
            self.repeat_at = None

    def awaitresponse(self, retry: bool) -> None:
        while retry and self.lastresponse is None and self.logged:
            self.wait_for_rsp()

    def command_once(self, network_function: int, command: int, data: tuple[int, ...]) -> dict[str, Any]:
        self.raw_command(netfn=network_function, command=command, data=data, retry=False)
        while self.lastresponse is None:
            self.wait_for_rsp()
        response: dict[str, Any] = self.lastresponse
        return response


def log_in(device: dict[str, Any]) -> Any:
    """A session. It has no time-out of its own: `act_deadline` (`policy/fence/plan.py`) is for login, reading and command
    together."""
    try:
        session = RepeatingSession(device)
    except IpmiException as error:
        raise login_error(str(error)) from error
    write_line(stage="logged-in")
    return session


def login_error(text: str) -> OperationError:
    if any(part in text for part in UNAUTHORIZED_LOGIN):
        return OperationError("Unauthorized", "the BMC refused the user, the password or the privilege level")
    if any(part in text for part in FULL_LOGIN):
        return OperationError("RateLimited", "the BMC has no room for another session")
    if any(part in text for part in CIPHER_LOGIN):
        return OperationError("NotSupported", "the BMC takes none of the offered cipher suites")
    if any(part in text for part in IPMI_1_5_LOGIN):
        return OperationError(
            "NotSupported", "the BMC offers only IPMI 1.5, and its login is not safe: expected 2.0; no login was sent"
        )
    return OperationError("Transient", f"the BMC ended the login ({text})")


def ask(session: Any, network_function: int, command: int, data: tuple[int, ...] = ()) -> bytes:
    response = session.raw_command(netfn=network_function, command=command, data=data)
    if response["code"] != 0:
        kind, reason = REFUSALS.get(response["code"], ("Transient", "the BMC reports an error"))
        raise OperationError(kind, f"{reason} (completion code {response['code']:#04x})")
    return bytes(response["data"])


def system_guid(session: Any) -> str | None:
    raw = ask(session, APPLICATION, 0x37)
    return str(UUID(bytes_le=raw)) if len(raw) == 16 and raw not in (bytes(16), b"\xff" * 16) else None


def read_state(session: Any) -> dict[str, str]:
    data = ask(session, CHASSIS, 0x01)
    if len(data) < 3:
        return {"state": "unknown", "detail": f"the chassis status has {len(data)} bytes, expected 3 or more"}
    faults = [name for bit, name in FAULT_BITS if data[0] >> bit & 1]
    return {"state": "on" if data[0] & 1 else "off", "detail": ", ".join(faults)}


def command(session: Any, asked: dict[str, Any]) -> dict[str, str]:
    operation = asked["operation"]
    announce_command(asked)
    code = session.command_once(CHASSIS, 0x02, (CONTROL[operation],))["code"]
    if code == 0:
        return {"detail": "accepted"}
    if code == PRESENT_STATE and read_state(session)["state"] == operation:
        return {"detail": f"the BMC says that the machine is {operation} already"}
    if code in REFUSALS:
        kind, reason = REFUSALS[code]
        raise OperationError(kind, f"{reason} (completion code {code:#04x})")
    raise OperationError("Ambiguous", f"the BMC answered with an error that leaves open what it did ({code:#04x})")


def read_event_log(session: Any, ends: float) -> str:
    """The system event log (IPMI 2.0, chapter 31), entry by entry, for as long as there is time."""
    info = ask(session, STORAGE, 0x40)
    entries = int.from_bytes(info[1:3], "little") if len(info) > 2 else 0
    lines: list[str] = []
    record = first_of_the_newest(session) if entries > EVENTS_READ else FIRST_RECORD
    while record != LAST_RECORD and len(lines) < min(entries, EVENTS_READ) and time.monotonic() < ends - EVENTS_RESERVE:
        answer = log_entry(session, record)
        lines.append(entry_line(answer[2:]))
        record = int.from_bytes(answer[:2], "little")
    if len(lines) < entries:
        lines.append(f"({len(lines)} of {entries} entries were read)")
    return "".join(f"{line}\n" for line in lines)


def first_of_the_newest(session: Any) -> int:
    """Where the newest entries begin, if the BMC counts its records, as most do; else where all begin."""
    newest = int.from_bytes(log_entry(session, LAST_RECORD)[2:4], "little")
    begin = newest - EVENTS_READ + 1
    try:
        return begin if begin > 0 and log_entry(session, begin) else FIRST_RECORD
    except OperationError:
        return FIRST_RECORD


def log_entry(session: Any, record: int) -> bytes:
    """The number of the next one, and the entry's own sixteen bytes."""
    answer = ask(session, STORAGE, 0x43, (0, 0, *record.to_bytes(2, "little"), 0, 0xFF))
    if len(answer) < 18:
        raise OperationError("NotSupported", f"an entry of the event log has {len(answer) - 2} bytes, expected 16")
    return answer[:18]


def entry_line(entry: bytes) -> str:
    """One entry in words (table 32-1), and then as it came."""
    record, kind = int.from_bytes(entry[:2], "little"), entry[2]
    words = [f"{record:#06x}"]
    if kind < OEM_WITHOUT_TIME:
        words.append(moment(int.from_bytes(entry[3:7], "little")))
    if kind == SYSTEM_EVENT:
        words.append(f"{sensor_type(entry[10])} {entry[11]:#04x}")
        words.append(f"event type {entry[12] & 0x7F:#04x} offset {entry[13] & 0x0F}")
        words.append("deasserted" if entry[12] & 0x80 else "asserted")
    else:
        words.append(f"record type {kind:#04x}")
    return " | ".join([*words, entry.hex()])


def moment(seconds: int) -> str:
    """Small numbers count from the BMC's start, because its clock had not been set; all ones is no time at all."""
    if seconds == 0xFFFFFFFF:
        return "at an unknown time"
    if seconds <= UNSET_CLOCK:
        return f"{seconds} s after the BMC's start"
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + " (its clock)"


def sensor_type(code: int) -> str:
    return str(sensor_type_codes.get(code, f"sensor type {code:#04x}"))


class IpmiSession:
    """One login, and all that is asked through it. An answer is bound to its question by the session's keys and the number of the
    request in it, so that one from before a command is none to a question after it (S2)."""

    def __init__(self, device: dict[str, Any]) -> None:
        self._known = device["known"]
        self._session = log_in(device)

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["operation"] == "read":
            return read_state(self._session) | self._served_system()
        if asked["operation"] == "event-log":
            return {"text": read_event_log(self._session, asked["ends"])}
        return dict(command(self._session, asked))

    def close(self) -> None:
        self._session.logout()

    def _served_system(self) -> dict[str, str | None]:
        """Which machine it is. The login shows a GUID, which should be the system's and is not everywhere: where it is another
        one than what is known of this BMC, the BMC is asked for that one, too, once in a session."""
        shown = getattr(self._session, "remoteguid", b"").hex()
        if shown and shown == self._known.get("login_guid"):
            return dict(self._known)
        try:
            found = {"login_guid": shown, "system_uuid": system_guid(self._session)}
        except OperationError:
            return {"login_guid": shown, "system_uuid": None}
        self._known = found
        return found


def main() -> None:
    """What `fork_server.py` calls in a child."""
    run(IpmiSession)
