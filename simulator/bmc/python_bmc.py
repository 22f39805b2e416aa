"""A BMC of pip packages alone, for where `ipmi_sim` is not installed: one process, one BMC, started by `bmc.py`.

Standard input is one line of JSON (`start` in `bmc.py` writes it, the password is in no file and no argv). The first line
of standard output is the UDP port. It ends when standard input does, and so with the process that started it.

On pyghmi's IPMI server, the base of its `Bmc`, which itself would load the whole client and three times as long. pyghmi's
server calculates with SHA-1 whatever was proposed, so the proposals of other suites must be refused in the open.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from typing import Any
from urllib.parse import quote
from uuid import UUID

from pyghmi.ipmi.private import serversession
from pyghmi.ipmi.private.session import Session

RAKP2 = 0x13

NO_SUCH_ALGORITHM, NO_SUCH_USER = 0x04, 0x0D
INVALID_COMMAND, INVALID_LENGTH, INVALID_FIELD, NOT_IN_THIS_STATE = 0xC1, 0xC7, 0xCC, 0xD5
CONTROL = {0: ("PUT", "power", "off"), 1: ("PUT", "power", "on"), 3: ("POST", "reset", ""), 4: ("POST", "nmi", "")}


class RefusedError(Exception):
    """The chassis did not do it."""


class ChassisClient:
    """The machine behind this BMC. A plain socket: the BMC stands still while the chassis does, as real ones do."""

    def __init__(self, url: str, machine: str) -> None:
        host, port = url.removeprefix("http://").split(":")
        self._address = (host, int(port))
        self._machine = quote(machine, safe="")

    def power(self) -> str:
        """`on` or `off`, as the chassis tells this device."""
        return str(self._request("GET", "power")["power"])

    def control(self, method: str, what: str, power: str) -> None:
        """Switch, reset or interrupt the machine."""
        self._request(method, what, {"power": power} if power else None)

    def _request(self, method: str, what: str, body: dict[str, str] | None = None) -> Any:
        content = json.dumps(body).encode() if body else b""
        head = f"{method} /machines/{self._machine}/{what}?device=python HTTP/1.0\r\nContent-Length: {len(content)}\r\n\r\n"
        answer = b""
        try:
            with socket.create_connection(self._address) as connection:
                connection.sendall(head.encode() + content)
                while chunk := connection.recv(4096):
                    answer += chunk
        except OSError as error:
            raise RefusedError(f"the chassis is not there ({error.strerror})") from error
        status, _, content = answer.partition(b"\r\n\r\n")
        if b" 200 " not in status.splitlines()[0]:
            raise RefusedError(content.decode())
        return json.loads(content)


class LoginSession(serversession.ServerSession):
    """pyghmi's server session, which says no where the original is silent or wrong."""

    def create_open_session_response(self, request: bytes) -> bytearray:
        """Accept SHA-1 with or without encryption and refuse every other proposal."""
        authentication, integrity = request[12], request[20]
        if (authentication, integrity) != (1, 1):
            return bytearray([request[0], NO_SUCH_ALGORITHM, 0, 0]) + bytearray(request[4:8])
        return bytearray(super().create_open_session_response(request))

    def _got_rakp1(self, data: bytearray) -> None:
        name = bytes(data[28 : 28 + data[27]]).decode(errors="replace")
        if self.authdata.get(name) is None:
            refusal = bytearray([data[0], NO_SUCH_USER, 0, 0]) + bytearray(self.clientsessionid)
            self.send_payload(refusal, RAKP2, retry=False)
            return
        super()._got_rakp1(data)


class PythonBmc(serversession.IpmiServer):
    """One BMC on a free loopback port."""

    def __init__(self, chassis: ChassisClient, setting: dict[str, Any]) -> None:
        system_uuid = UUID(setting["system_uuid"])
        users = {setting["username"]: setting["password"]}
        super().__init__(users, port=setting["port"], bmcuuid=system_uuid, address="127.0.0.1")
        self.port = self.serversocket.getsockname()[1]
        self._chassis = chassis
        self._system_uuid = system_uuid
        self._inventory = bytes.fromhex(setting["inventory"])

    def sessionless_data(self, data: bytes, sockaddr: Any) -> None:
        """Begin sessions of our own class; the rest is the library's."""
        if len(data) >= 48 and data[4] == 6 and data[5] == 0x10:
            LoginSession(self.authdata, self.kg, sockaddr, self.serversocket, bytearray(data)[16:], self.uuid, bmc=self)
            return
        super().sessionless_data(data, sockaddr)

    def handle_raw_request(self, request: dict[str, Any], session: Any) -> None:
        """Carry out one command of a logged-in client."""
        try:
            code, data = self._carry_out(request["netfn"], request["command"], bytes(request["data"]))
        except RefusedError as error:
            print(f"refused: {error}", file=sys.stderr, flush=True)
            code, data = NOT_IN_THIS_STATE, b""
        session.send_ipmi_response(code=code, data=list(data))

    def _carry_out(self, network_function: int, command: int, data: bytes) -> tuple[int, bytes]:
        match (network_function, command):
            case (0x00, 0x01):
                return 0, bytes([self._chassis.power() == "on", 0, 0])
            case (0x00, 0x02):
                if not data:
                    return INVALID_LENGTH, b""
                if data[0] not in CONTROL:
                    return INVALID_FIELD, b""
                self._chassis.control(*CONTROL[data[0]])
                return 0, b""
            case (0x06, 0x01):
                return 0, bytes([0x20, 0x01, 0x01, 0x07, 0x02, 0x8A, 0, 0, 0, 0, 0])
            case (0x06, 0x37):
                return 0, self._system_uuid.bytes_le
            case (0x0A, 0x10):
                return 0, len(self._inventory).to_bytes(2, "little") + b"\x00"
            case (0x0A, 0x11):
                offset = int.from_bytes(data[1:3], "little")
                part = self._inventory[offset : offset + data[3]]
                return 0, bytes([len(part)]) + part
            case _:
                return INVALID_COMMAND, b""


def end_with_our_parent() -> None:
    """Standard input ends when the process that started us does."""
    while sys.stdin.buffer.read(4096):
        continue
    os._exit(0)


def main() -> None:
    """Serve until told to stop."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    setting = json.loads(sys.stdin.buffer.readline())
    bmc = PythonBmc(ChassisClient(setting["chassis_url"], setting["machine"]), setting)
    threading.Thread(target=end_with_our_parent, daemon=True).start()
    print(bmc.port, flush=True)
    while True:
        Session.wait_for_rsp(30)


if __name__ == "__main__":
    main()
