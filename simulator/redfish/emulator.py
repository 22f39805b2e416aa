"""A Redfish service played by `sushy-emulator` of OpenStack's sushy-tools, which was written by others: a pass against it is
interoperability. Its own machines wait a random time over everything, so ours stand behind it: those of the chassis.

Standard input is one line of JSON (`service.py` writes it, so that the password is in no file and no argv). The first line of
standard output is the port. It ends when standard input does, and so with the process that started it.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import socket
import ssl
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

import bcrypt
import flask
from sushy_tools import error
from sushy_tools.emulator import main as emulator
from sushy_tools.emulator.resources.systems.base import AbstractSystemsDriver
from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

MANUFACTURER, PRODUCT = "nodewarden", "simulated server"
POWER = {"on": "On", "off": "Off"}
RESETS = {
    "On": ("PUT", "power", "on"),
    "ForceOn": ("PUT", "power", "on"),
    "ForceOff": ("PUT", "power", "off"),
    "GracefulShutdown": ("PUT", "power", "off"),
    "ForceRestart": ("POST", "reset", ""),
    "GracefulRestart": ("POST", "reset", ""),
    "Nmi": ("POST", "nmi", ""),
}
BCRYPT_ROUNDS = 4
"""The fewest there are: the password is compared with each request, and protects nothing."""


class ChassisMachines(AbstractSystemsDriver):
    """The machines behind the service. While the chassis waits, so does the request, and no other one."""

    @classmethod
    def initialize(cls, config: dict[str, Any], logger: logging.Logger) -> type[ChassisMachines]:
        """As the emulator makes its drivers."""
        super().initialize(config, logger)
        return cls

    def __init__(self) -> None:
        self._setting = self._config["CHASSIS_SETTING"]
        self._by_uuid = {system["uuid"]: name for name, system in self._setting["systems"].items()}

    @property
    def driver(self) -> str:
        """What the emulator writes into its log."""
        return "<machines of the chassis>"

    @property
    def systems(self) -> list[str]:
        """All machines."""
        return list(self._setting["systems"])

    def uuid(self, identity: str) -> str:
        """The UUID of a machine, which names its manager as well."""
        return identity if identity in self._by_uuid else str(self._known(identity)["uuid"])

    def name(self, identity: str) -> str:
        """The name of a machine."""
        return str(self._by_uuid.get(identity, identity))

    def get_power_state(self, identity: str) -> str:
        """As the chassis tells this device. Asked for by its UUID, the machine is where its name is."""
        if identity in self._by_uuid:
            raise error.AliasAccessError(self._by_uuid[identity])
        self._known(identity)
        return POWER[str(self._ask("GET", identity, "power")["power"])]

    def set_power_state(self, identity: str, state: str) -> None:
        """Switch, reset or interrupt the machine."""
        self._known(identity)
        if state not in RESETS:
            raise error.BadRequest(f"reset type {state!r} is not known")
        method, what, power = RESETS[state]
        self._ask(method, identity, what, {"power": power} if power else None)

    def get_boot_device(self, identity: str) -> str:  # noqa: ARG002 - the emulator's signature
        """Nothing is booted here."""
        return "Hdd"

    def set_boot_device(self, identity: str, boot_source: str) -> None:
        """Refused."""
        raise error.NotSupportedError(f"the boot device of {identity} stays as it is, not {boot_source}")

    def _known(self, identity: str) -> dict[str, str]:
        system: dict[str, str] | None = self._setting["systems"].get(identity)
        if system is None:
            raise error.NotFound(f"system {identity!r} was not found")
        return system

    def _ask(self, method: str, machine: str, what: str, document: dict[str, str] | None = None) -> Any:
        connection = http.client.HTTPConnection(self._setting["chassis_url"].removeprefix("http://"))
        try:
            body = json.dumps(document) if document else None
            connection.request(method, f"/machines/{quote(machine, safe='')}/{what}?device=redfish", body)
            answer = connection.getresponse()
            content = json.load(answer)
        except OSError as failure:
            raise error.FishyError(f"the chassis is not there ({failure})", code=503) from failure
        finally:
            connection.close()
        if answer.status == 404:
            raise error.NotFound(content["error"])
        if answer.status != 200:
            raise error.Conflict(content["error"])
        return content


class QuietRequests(WSGIRequestHandler):
    """Does not write down each request."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Nothing."""


class Server(ThreadedWSGIServer):
    """Shakes hands in the thread of the connection, so that a client which stops in the middle holds up no other client."""

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Answer one connection."""
        assert self.ssl_context is not None
        try:
            secured = self.ssl_context.wrap_socket(request, server_side=True)
        except OSError:
            return  # it hung up, or does not trust us
        try:
            super().finish_request(secured, client_address)
        finally:
            secured.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed is no news."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def describe(setting: dict[str, Any]) -> None:
    """Let machines show what the emulator has no place for."""

    def complete(response: flask.Response) -> flask.Response:
        name = (flask.request.view_args or {}).get("identity")
        if flask.request.endpoint == "system_resource" and flask.request.method == "GET" and response.status_code == 200:
            document = json.loads(response.get_data())
            document |= {"Manufacturer": MANUFACTURER, "Model": PRODUCT, "SerialNumber": setting["systems"][name]["serial"]}
            response.set_data(json.dumps(document))
        return response

    emulator.app.after_request(complete)


def tls(certificate: str, folder: Path) -> ssl.SSLContext:
    """The ssl module reads certificates from files only."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    chain = folder / "server.pem"
    chain.touch(mode=0o600)
    chain.write_text(certificate)
    context.load_cert_chain(chain)
    chain.unlink()
    return context


def passwords(setting: dict[str, Any], folder: Path) -> Path:
    """The one user, as the emulator reads it."""
    file = folder / "users"
    file.touch(mode=0o600)
    hashed = bcrypt.hashpw(setting["password"].encode(), bcrypt.gensalt(BCRYPT_ROUNDS)).decode()
    file.write_text(f"{setting['username']}:{hashed}\n")
    return file


def end_with_our_parent() -> None:
    """Standard input ends when the process that started us does."""
    while sys.stdin.buffer.read(4096):
        continue
    os._exit(0)


def main() -> None:
    """Serve until told to stop."""
    setting = json.loads(sys.stdin.buffer.readline())
    folder = Path(setting["folder"])
    emulator.app.logger.setLevel(logging.ERROR)
    emulator.fakedriver.FakeDriver = ChassisMachines
    emulator.app.configure(
        extra_config={
            "SUSHY_EMULATOR_FAKE_DRIVER": True,
            "SUSHY_EMULATOR_AUTH_FILE": str(passwords(setting, folder)),
            "SUSHY_EMULATOR_STATE_DIR": str(folder),
            "CHASSIS_SETTING": setting,
        }
    )
    describe(setting)
    listener = socket.create_server((setting["address"], setting["port"]), backlog=128)
    server = Server(setting["address"], 0, emulator.app, QuietRequests, fd=listener.fileno())
    server.ssl_context = tls(setting.pop("certificate"), folder)
    threading.Thread(target=end_with_our_parent, daemon=True).start()
    print(listener.getsockname()[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
