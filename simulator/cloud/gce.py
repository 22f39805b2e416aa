"""A Compute Engine endpoint on the loopback: instances, disks, operations, and the tokens to ask with.

It shows the shape of requests, how answers are read, and what becomes of time-outs. Its state rules are ours (`gce_state.py`), so
whatever passes here is not thereby tried on Google's. It serves, with and without a token as `anonymous` says:

    GET    …/zones/Z/instances[/NAME]        GET …/zones/Z/disks/NAME, …/regions/R/disks/NAME
    POST   …/instances/NAME/stop|start|reset|detachDisk|sendDiagnosticInterrupt
    GET    …/instances/NAME/serialPort       GET …/zones/Z/operations/NAME
    DELETE …/instances/NAME                  POST /token
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from simulator.bmc.machine import Machine, RefusedError
from simulator.cloud.gce_state import CONSOLE_LIMIT, DEVICE, PREFIX, ApiError, Compute, Disk, Instance, Operation
from simulator.cloud.google_tokens import RefusedGrantError, TokenIssuer

COMMANDS = frozenset({"stop", "start", "reset", "detachDisk", "sendDiagnosticInterrupt", "delete"})
ZONE = "/compute/v1/projects/{project}/zones/{zone}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GceRequest:
    """One request that reached the endpoint. verb: `get`, `stop`, `token`, …; account: the account of the token that it
    carried, "" for none."""

    at: datetime
    verb: str
    path: str
    query: dict[str, str]
    account: str


class GceEndpoint:
    """The endpoint. `async with GceEndpoint() as cloud`, or start and stop it; `cloud.compute` holds what there is."""

    def __init__(self, *, anonymous: bool = False, tls: ssl.SSLContext | None = None) -> None:
        self.compute = Compute()
        self.tokens = TokenIssuer()
        self.anonymous = anonymous
        self.log: list[GceRequest] = []
        self._tls = tls
        self._changed = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self._url = ""

    @property
    def url(self) -> str:
        """Where it listens, once started: what clients take as `api_endpoint`."""
        return self._url

    def add_instance(self, project: str, zone: str, name: str, machine: Machine | None = None) -> Instance:
        """An instance before a machine that follows its power. See `Compute`."""
        return self.compute.add_instance(project, zone, name, machine)

    def service_account(self, email: str = "fencer@test.iam.gserviceaccount.com", *, signed_by: str | None = None) -> str:
        """The JSON key file of a service account that may do everything here; signed_by: with another one's private key in it."""
        return self.tokens.key_file(email, f"{self._url}/token", signed_by=signed_by)

    def set_faults(self, **faults: Any) -> None:
        """Put these faults in force and no others. What hung is dropped without an answer."""
        self.compute.set_faults(**faults)
        self._changed.set()
        self._changed = asyncio.Event()

    def verbs(self, *wanted: str) -> list[str]:
        """What was asked for, in its order: all of it, or of these verbs only."""
        return [entry.verb for entry in self.log if not wanted or entry.verb in wanted]

    async def start(self, port: int = 0) -> None:
        """Listen on the loopback; port 0 takes a free one."""
        application = web.Application(middlewares=[self._errors])
        application.add_routes(
            [
                web.post("/token", self._token),
                web.get(f"{ZONE}/instances", self._list),
                web.get(f"{ZONE}/instances/{{name}}", self._get),
                web.delete(f"{ZONE}/instances/{{name}}", self._command),
                web.get(f"{ZONE}/instances/{{name}}/serialPort", self._console),
                web.post(f"{ZONE}/instances/{{name}}/{{verb}}", self._command),
                web.get(f"{ZONE}/disks/{{name}}", self._disk),
                web.get("/compute/v1/projects/{project}/regions/{region}/disks/{name}", self._disk),
                web.get(f"{ZONE}/operations/{{name}}", self._operation),
            ]
        )
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port, ssl_context=self._tls)
        await site.start()
        self._url = f"{'http' if self._tls is None else 'https'}://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """Stop listening, and drop what still hangs or is under way."""
        self.set_faults()
        await self.compute.tasks.cancel_all()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        self.compute.tasks.raise_failures()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()

    @web.middleware
    async def _errors(self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> Any:
        verb = _verb(request)
        account = self.tokens.account(request.headers.get("Authorization", ""))
        self.log.append(
            GceRequest(at=datetime.now(UTC), verb=verb, path=request.path, query=dict(request.query), account=account or "")
        )
        faults = self.compute.faults
        if faults.delay:
            await asyncio.sleep(faults.delay)
        if faults.silence:
            return await self._never(request)
        try:
            if verb != "token":
                self._admit(request, account)
            answer = await handler(request)
        except ApiError as error:
            answer = _error(error)
        if faults.lose_answers and verb in COMMANDS:
            return await self._never(request)
        return answer

    def _admit(self, request: web.Request, account: str | None) -> None:
        if self.compute.faults.refuse is not None:
            status, reason = self.compute.faults.refuse
            raise ApiError(status, reason, f"{reason} for {request.path}")
        if not self.anonymous and account is None:
            raise ApiError(401, "authError", "Request had invalid authentication credentials. Expected OAuth 2 access token.")

    async def _never(self, request: web.Request) -> web.StreamResponse:
        await self._changed.wait()
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=500)

    async def _token(self, request: web.Request) -> web.Response:
        form = await request.post()
        try:
            answer = self.tokens.grant(str(form.get("grant_type")), str(form.get("assertion")), f"{self._url}/token")
        except RefusedGrantError as error:
            return web.json_response({"error": "invalid_grant", "error_description": str(error)}, status=400)
        return web.json_response(answer)

    async def _list(self, request: web.Request) -> web.Response:
        zone = request.path.removeprefix("/compute/v1/")
        items = [_instance(found) for path, found in sorted(self.compute.instances.items()) if path.startswith(f"{zone}/")]
        return web.json_response({"kind": "compute#instanceList", "items": items})

    async def _get(self, request: web.Request) -> web.Response:
        return web.json_response(_instance(self._named(request)))

    async def _disk(self, request: web.Request) -> web.Response:
        return web.json_response(_disk(self.compute.disk(request.path.removeprefix("/compute/v1/"))))

    async def _operation(self, request: web.Request) -> web.Response:
        return web.json_response(_operation(self.compute.operation(request.path.removeprefix("/compute/v1/"))))

    async def _console(self, request: web.Request) -> web.Response:
        output = self._named(request).console.encode()[-CONSOLE_LIMIT:]
        start = int(request.query.get("start", 0))
        start = max(0, len(output) + start) if start < 0 else min(start, len(output))
        contents = output[start:].decode(errors="replace")
        return web.json_response(
            {"kind": "compute#serialPortOutput", "contents": contents, "start": str(start), "next": str(len(output))}
        )

    async def _command(self, request: web.Request) -> web.Response:
        instance, verb = self._named(request), _verb(request)
        if verb not in COMMANDS:
            raise ApiError(404, "notFound", f"The requested URL {request.path} was not found on this server.")
        if verb == "sendDiagnosticInterrupt":
            if instance.status != "RUNNING":
                raise ApiError(400, "resourceNotReady", f"The resource '{instance.path}' is not ready")
            await instance.machine.pulse_nmi(DEVICE)
            return web.Response(status=204)
        query = dict(request.query)
        operation = self.compute.command(instance, verb, query.get("requestId", ""), query)
        try:
            await instance.machine.lose_answer()
        except RefusedError:
            if request.transport is not None:
                request.transport.abort()
        return web.json_response(_operation(operation))

    def _named(self, request: web.Request) -> Instance:
        known = request.match_info
        return self.compute.instance(f"projects/{known['project']}/zones/{known['zone']}/instances/{known['name']}")


def _verb(request: web.Request) -> str:
    if request.path == "/token":
        return "token"
    found = re.search(r"/instances/[^/]+/([A-Za-z]+)$", request.path)
    return found[1] if found else request.method.lower()


def _error(error: ApiError) -> web.Response:
    detail = {"message": str(error), "domain": "global", "reason": error.reason}
    return web.json_response({"error": {"code": error.status, "message": str(error), "errors": [detail]}}, status=error.status)


def _instance(instance: Instance) -> dict[str, Any]:
    return {
        "kind": "compute#instance",
        "id": str(instance.number),
        "name": instance.name,
        "status": instance.status,
        "creationTimestamp": instance.created.isoformat(timespec="milliseconds"),
        "machineType": f"{PREFIX}/{instance.zone_path}/machineTypes/e2-standard-4",
        "zone": f"{PREFIX}/{instance.zone_path}",
        "selfLink": f"{PREFIX}/{instance.path}",
        "disks": [
            {
                "kind": "compute#attachedDisk",
                "type": "PERSISTENT" if attached.disk is not None else "SCRATCH",
                "mode": "READ_WRITE",
                "deviceName": attached.device_name,
                "index": index,
                "boot": attached.boot,
                "autoDelete": attached.auto_delete,
            }
            | ({"source": f"{PREFIX}/{attached.disk.path}"} if attached.disk is not None else {})
            for index, attached in enumerate(instance.attachments)
        ],
    }


def _disk(disk: Disk) -> dict[str, Any]:
    return {
        "kind": "compute#disk",
        "name": disk.name,
        "sizeGb": "10",
        "status": disk.status,
        "selfLink": f"{PREFIX}/{disk.path}",
    } | ({"users": list(disk.users)} if disk.users else {})


def _operation(operation: Operation) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "kind": "compute#operation",
        "name": operation.name,
        "operationType": operation.kind,
        "status": operation.status,
        "progress": 100 if operation.status == "DONE" else 0,
        "targetLink": f"{PREFIX}/{operation.target}",
        "zone": f"{PREFIX}/{operation.zone_path}",
        "insertTime": operation.inserted.isoformat(timespec="milliseconds"),
    }
    if operation.error is not None:
        code, message = operation.error
        shown["error"] = {"errors": [{"code": code, "message": message}]}
        shown |= {"httpErrorStatusCode": 503, "httpErrorMessage": "SERVICE UNAVAILABLE"}
    return shown
