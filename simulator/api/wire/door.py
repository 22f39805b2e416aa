"""The way in: reads a request, lets accidents happen, asks who is there, hands over, answers and counts.

What is behind the door is reading.py for reads and watches, writing.py for the rest, `control/pages.py` for /simulator.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import format_datetime
from typing import Any
from urllib.parse import parse_qsl, unquote

import orjson
from aiohttp import web

from simulator.api import errors
from simulator.api.access.authorization import ADMIN, Access, Authorization
from simulator.api.access.policies import Admission
from simulator.api.control.faults import Accident, Fault, Faults
from simulator.api.control.pages import Control
from simulator.api.control.request_log import RequestLog
from simulator.api.storage.kinds import Catalogue
from simulator.api.wire.discovery import Discovery
from simulator.api.wire.reading import Reading, truth
from simulator.api.wire.routes import Target, target_of, verb_of
from simulator.api.wire.watch import Ending, Watch
from simulator.api.wire.writing import Writing, Written, decode

_COMPRESSED_FROM = 128 * 1024
_JSON_HEADERS = {"Content-Type": "application/json"}
_AGGREGATED_HEADERS = {"Content-Type": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
_REVIEWS = {
    "selfsubjectaccessreviews": "authorization.k8s.io",
    "subjectaccessreviews": "authorization.k8s.io",
    "selfsubjectreviews": "authentication.k8s.io",
    "tokenreviews": "authentication.k8s.io",
}
"""Questions, by their group. Of himself anybody may ask."""
# What the log shows for a request that was never answered and never carried out.
_NO_STATUS = 0


@dataclass(slots=True, kw_only=True)
class _Call:
    """One request on its way."""

    request: web.BaseRequest
    method: str
    path: str
    parts: list[str]
    query: Mapping[str, str]
    user_agent: str
    user: str = ""
    verb: str = "discover"
    resource: str = ""
    target: Target | None = None
    fault: Fault | None = None
    preconditions: Mapping[str, str] = field(default_factory=dict)

    def header(self, name: str) -> str:
        return self.request.headers.get(name, "")

    def suffers(self, accident: Accident) -> bool:
        return self.fault is not None and self.fault.accident is accident


@dataclass(slots=True, kw_only=True, eq=False)
class _OpenWatch:
    watch: Watch
    path: str
    user_agent: str


@dataclass(slots=True, kw_only=True)
class Door:
    """Handles every request of both listeners."""

    catalogue: Catalogue
    reading: Reading
    writing: Writing
    discovery: Discovery
    authorization: Authorization
    admission: Admission
    faults: Faults
    requests: RequestLog
    control: Control
    clock: Callable[[], datetime]
    open_watches: set[_OpenWatch] = field(default_factory=set)

    def strike_open_watches(self, fault: Fault) -> int:
        """Cut or silence the open watches that a fault matches; the answer is how many."""
        struck = [each for each in self.open_watches if fault.matches("GET", "watch", each.path, each.user_agent)]
        for each in struck:
            if fault.accident is Accident.CUT_WATCHES:
                each.watch.cut()
            else:
                each.watch.silence()
        return len(struck)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        raw_path, _, raw_query = request.raw_path.partition("?")
        path = unquote(raw_path) if "%" in raw_path else raw_path
        call = _Call(
            request=request,
            method=request.method,
            path=path,
            parts=[part for part in path.split("/") if part],
            query=dict(parse_qsl(raw_query, keep_blank_values=True)) if raw_query else {},
            user_agent=request.headers.get("User-Agent", ""),
        )
        if call.parts and call.parts[0] == "simulator":
            return await self.control.answer(request, call.parts[1:])
        try:
            return await self._answer(call)
        except errors.ApiError as refusal:
            self._count(call, refusal.code)
            headers = self._dated({**_JSON_HEADERS, **refusal.headers})
            return web.Response(status=refusal.code, body=refusal.body(), headers=headers)
        except asyncio.CancelledError:
            # The client gave up before its answer; watches were counted when they opened.
            if call.verb != "watch":
                self._count(call, _NO_STATUS)
            raise

    async def _answer(self, call: _Call) -> web.StreamResponse:
        self._route(call)
        if self.faults:
            call.fault = self.faults.strike(call.method, call.verb, call.path, call.user_agent)
        if call.fault is not None:
            await asyncio.sleep(call.fault.latency.total_seconds())
            self._refuse_by_fault(call, call.fault)
        if call.suffers(Accident.REFUSE) or (call.suffers(Accident.LOSE_ANSWER) and call.verb == "watch"):
            self._count(call, _NO_STATUS)
            return self._hang_up(call)
        if call.parts and call.parts[0] in ("healthz", "livez", "readyz"):
            return web.Response(body=b"ok", headers={"Content-Type": "text/plain; charset=utf-8"})
        self._authorize(call)
        if call.suffers(Accident.INITIALIZE):
            raise errors.reading_storage() if call.verb in ("list", "watch") else errors.reading_definitions()
        if call.target is not None and call.verb == "watch":
            return await self._watch(call, call.target)
        status, body = await self._carry_out(call)
        self._count(call, status)
        if call.suffers(Accident.LOSE_ANSWER):
            return self._hang_up(call)
        return await self._respond(call, status, body)

    def _route(self, call: _Call) -> None:
        parts = call.parts
        if not parts or parts[0] not in ("api", "apis"):
            return
        if parts[:1] == ["apis"] and parts[2:3] == ["v1"] and parts[3:] and _REVIEWS.get(parts[3]) == parts[1]:
            if call.method != "POST":
                raise errors.method_not_allowed()
            call.verb, call.resource = "review", parts[3]
            return
        target = target_of(self.catalogue, parts)
        if target is None:
            if call.method != "GET":
                raise errors.method_not_allowed()
            return
        call.target, call.resource = target, target.resource.plural
        call.verb = verb_of(call.method, target, watch=truth(call.query, "watch"))

    def _authorize(self, call: _Call) -> None:
        user = self.authorization.user(call.header("Authorization"))
        if user is None:
            raise errors.unauthorized()
        call.user = user
        target, forbidden = call.target, call.suffers(Accident.FORBID)
        if target is None and forbidden:
            raise errors.forbidden_path(call.path, user)
        if call.verb == "review" and not call.resource.startswith("self"):
            access = Access(verb="create", group=_REVIEWS[call.resource], resource=call.resource)
            if not self.authorization.allows(user, access):
                raise errors.forbidden(access.group, access.resource, "", access.refusal(user))
        if target is None or (user == ADMIN and not forbidden):
            return
        resource = target.resource
        access = Access(
            verb=call.verb,
            group=resource.group,
            resource=resource.plural,
            subresource=target.subresource,
            namespace=target.namespace,
            # A list or watch of one name is authorized as that name, as kube-apiserver does.
            name=target.name or _selected_name(call.query.get("fieldSelector", "")),
        )
        if forbidden or not self.authorization.allows(user, access):
            raise errors.forbidden(resource.group, resource.plural, target.name, access.refusal(user))

    @staticmethod
    def _refuse_by_fault(call: _Call, fault: Fault) -> None:
        if fault.accident is Accident.STATUS:
            headers = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
            details = None if fault.retry_after is None else {"retryAfterSeconds": fault.retry_after}
            raise errors.ApiError(fault.status, fault.reason, fault.message, details=details, headers=headers)
        if fault.accident is Accident.EXPIRE and call.verb == "list":
            raise errors.expired(f"The provided resource version is too old ({fault.message})")

    async def _carry_out(self, call: _Call) -> tuple[int, bytes]:
        target, query, accept = call.target, call.query, call.header("Accept")
        if call.verb == "review":
            written = self.writing.review(call.resource, call.user, decode(await self._body(call), call.header("Content-Type")))
            return written.status, written.body
        if target is None:
            return 200, self._discover(call)
        if call.verb == "get" and target.subresource == "scale":
            return 200, self.writing.scale(target)
        if call.verb == "get":
            return 200, await self.reading.get(target, query, accept)
        if call.verb == "list":
            return 200, await self.reading.listing(target, query, accept)
        body, content_type = await self._body(call), call.header("Content-Type")
        with self.admission.asked_by(call.user):
            written = self._write(call, target, body, content_type)
        return written.status, written.body

    def _write(self, call: _Call, target: Target, body: bytes, content_type: str) -> Written:
        query, accept = call.query, call.header("Accept")
        match call.verb:
            case "patch":
                return self.writing.patch(target, query, body, content_type, accept)
            case "create":
                return self.writing.create(target, query, decode(body, content_type), accept)
            case "update":
                return self.writing.update(target, query, decode(body, content_type), accept)
            case "delete":
                return self.writing.delete(target, query, _deletion(call, body, content_type))
            case _:
                return self.writing.delete_collection(target, query, _deletion(call, body, content_type))

    @staticmethod
    async def _body(call: _Call) -> bytes:
        try:
            return await call.request.read()
        except web.HTTPRequestEntityTooLarge as error:
            raise errors.ApiError(413, "RequestEntityTooLarge", f"Request entity too large: {error.text}") from error

    def _discover(self, call: _Call) -> bytes:
        document = self.discovery.answer(call.parts, aggregated=self._aggregated(call), address=call.header("Host"))
        if document is None:
            raise errors.no_such_page()
        return orjson.dumps(document)

    @staticmethod
    def _aggregated(call: _Call) -> bool:
        accept = call.header("Accept")
        return len(call.parts) == 1 and "as=APIGroupDiscoveryList" in accept and "v=v2" in accept

    async def _respond(self, call: _Call, status: int, body: bytes) -> web.Response:
        headers = _AGGREGATED_HEADERS if call.target is None and self._aggregated(call) else _JSON_HEADERS
        if len(body) > _COMPRESSED_FROM and "gzip" in call.header("Accept-Encoding"):
            body = await asyncio.to_thread(_compressed, body)
            headers = {**headers, "Content-Encoding": "gzip"}
        return web.Response(status=status, body=body, headers=self._dated(headers))

    async def _watch(self, call: _Call, target: Target) -> web.StreamResponse:
        watch = await self.reading.watch(target, call.query, call.header("Accept"))
        self._count(call, 200)
        opened = _OpenWatch(watch=watch, path=call.path, user_agent=call.user_agent)
        self.open_watches.add(opened)
        if call.suffers(Accident.HALF_OPEN):
            watch.silence()
        elif call.suffers(Accident.EXPIRE):
            watch.fail(errors.expired("too old resource version (injected by the simulator)"))
        response = web.StreamResponse(headers=self._dated(_JSON_HEADERS))
        response.enable_chunked_encoding()
        try:
            await response.prepare(call.request)
            if await watch.stream(response.write) is Ending.CUT:
                self._hang_up(call)
            else:
                await response.write_eof()
        except ConnectionError:
            # The client left while an event was on its way: there is no client to inform.
            return response
        finally:
            watch.end()
            self.open_watches.discard(opened)
        return response

    def _dated(self, headers: Mapping[str, str]) -> dict[str, str]:
        return {**headers, "Date": format_datetime(self.clock(), usegmt=True)}

    @staticmethod
    def _hang_up(call: _Call) -> web.StreamResponse:
        if call.request.transport is not None:
            call.request.transport.abort()
        return web.Response(status=500)

    def _count(self, call: _Call, status: int) -> None:
        self.requests.record(
            method=call.method,
            path=call.path,
            user_agent=call.user_agent,
            status=status,
            verb=call.verb,
            resource=call.resource,
            user=call.user,
            preconditions=call.preconditions,
        )


def _compressed(body: bytes) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    return packer.compress(body) + packer.flush()


def _selected_name(field_selector: str) -> str:
    field, _, name = field_selector.partition("=")
    return name.removeprefix("=") if field == "metadata.name" and "," not in name else ""


def _deletion(call: _Call, body: bytes, content_type: str) -> Any:
    """The options of a deletion; what they demand of the object is kept for the log, whatever comes of it."""
    sent = decode(body, content_type) if body else None
    demanded = sent.get("preconditions") if isinstance(sent, dict) else None
    if isinstance(demanded, dict):
        call.preconditions = {key: str(value) for key, value in demanded.items() if value}
    return sent
