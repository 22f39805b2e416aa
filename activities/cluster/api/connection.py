"""Our access to one Kubernetes API: paths and bytes over HTTP, with explicit time-outs and one attempt each.

The typed models of the official client are left out on purpose (ten times the time and memory on large lists), and so is every
silent repetition: a PUT that is sent again after a lost answer reads as a conflict although it was applied. Until when a write
may begin is asked at its first byte. Who we are is
`credentials.py`, where objects live is `paths.py`, what a refusal means is `refusals.py`, keeping a copy is `watch/reflector.py`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from asyncio.sslproto import SSLProtocol
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
import orjson
from temporalio.exceptions import ApplicationError
from yarl import URL

from activities.cluster.api.credentials import (
    ApiCredentials,
    BorrowedCredentials,
    ExplicitCredentials,
    KubeconfigCredentials,
    ServiceAccountCredentials,
)
from activities.cluster.api.paths import NAMESPACES, Resource
from activities.cluster.api.refusals import (
    AnswerTooLong,
    ObjectConflict,
    PatchInapplicable,
    Unconnected,
    refusal,
    refusal_within,
    typed,
)
from activities.cluster.api.responses import readable
from activities.errors import ErrorType, failure
from activities.worker_clock import Clock, about, in_time, utc_now
from policy.values.fields import mapping

JsonObject = dict[str, Any]
JsonPatch = Sequence[Mapping[str, Any]]

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
"""What to accept where names and versions are enough: a definition may have a megabyte of schema."""

VERSION_SECONDS = 600.0

TOLERATED_SKEW = timedelta(seconds=3)
"""Between our clock and the server's; it tells its own in whole seconds, and an answer takes its time."""

LONGEST_REASON = 300

LONGEST_ANSWER = 32 * 1024 * 1024
"""Bytes of an answer, or of an event, that are held in memory. An object has 1.5 MiB at most: hundreds of those, which one
author may create, are read a few at a time, and a server that answers without end ends no worker that serves other clusters, too
(S41)."""
PAGE, FEWER = 500, 8
"""Objects of a page. Where they are too much, so many times fewer."""

UNCONNECTED = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
"""What a client raises before anything was sent."""

# What asyncio reads of a TLS connection at once, and has ready for each: 256 KiB by itself, and some twenty watches of a cluster
# are open at any time.
SSLProtocol.max_size = 64 * 1024

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """The longest waits for one API call, in seconds. page: for one page of a list. write: ends as Ambiguous, which none repeats,
    and so is no shorter than a try that is repeated (`CLUSTER_TRY` in `workflows/kit/options.py`)."""

    connect: float = 5.0
    read: float = 10.0
    write: float = 10.0
    page: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of a list as it came. `resource_version` is where a watch may start once the last page is in."""

    body: bytes
    resource_version: str
    last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerVersion:
    """What the API server says of itself."""

    major: int
    minor: int


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_token: str | None = msgspec.field(name="continue", default=None)


class _ListHead(msgspec.Struct):
    metadata: _ListMeta
    items: msgspec.Raw


_list_head = msgspec.json.Decoder(_ListHead)


@dataclass(frozen=True, slots=True)
class _Call:
    method: str
    path: str
    query: Mapping[str, str] | None
    timeout: aiohttp.ClientTimeout
    body: bytes | None = None
    content_type: str = ""
    accept: str = ""
    not_after: datetime | None = None

    def __str__(self) -> str:
        """As people call it, such as "change of nodes/node-7"."""
        done = {"POST": "creation", "DELETE": "deletion"}.get(self.method, "change")
        return f"{done} of {'/'.join(self.path.removesuffix('/status').split('/')[-2:])}"


_CALL: ContextVar[tuple[_Call, Clock]] = ContextVar("_CALL")


class _Connector(aiohttp.TCPConnector):
    async def connect(self, *arguments: Any, **named: Any) -> aiohttp.connector.Connection:
        """As always. Then, right before the first byte, whether a write may still begin: credentials, name and TLS may have taken
        half a minute, or the worker has stood still (S20, S45)."""
        connection = await super().connect(*arguments, **named)
        call, clock = _CALL.get()
        try:
            if call.body is not None:
                in_time(call.not_after, clock(), str(call))
        except BaseException:
            connection.release()
            raise
        return connection


class ClusterConnection:
    """Requests against one API server. One per cluster and process; close it at the end."""

    def __init__(self, credentials: ApiCredentials, *, timeouts: Timeouts | None = None, clock: Clock = utc_now) -> None:
        """clock: by which a write is in time."""
        self.clock = clock
        self.lacks: Callable[[Resource], bool] = lambda _: False
        """Whether the server is known not to define that kind at this moment (`watch/watches.py`)."""
        self._credentials = credentials
        self._timeouts = timeouts or Timeouts()
        self._session: aiohttp.ClientSession | None = None
        self._proxy: str | None = None
        """What the environment says of it, read once: in a pod it has seven variables for each Service."""
        self.clock_skew: timedelta | None = None
        """By how much the server's clock goes before ours, to a second; None before the first answer."""
        self._skewed = self._lost = False
        self._cluster_uid = ""
        self._version: tuple[float, ServerVersion] | None = None

    @classmethod
    async def from_kubeconfig(cls, path: Path | None = None, context: str = "") -> Self:
        """A context of a kubeconfig, by default the ones kubectl would use. Raises InvalidConfig where it cannot be read."""
        return cls(await KubeconfigCredentials.load(path, context))

    @classmethod
    def in_cluster(cls) -> Self:
        """The service account of the pod we run in."""
        return cls(ServiceAccountCredentials())

    @classmethod
    def to(
        cls,
        url: str,
        *,
        token: str = "",
        token_file: Path | None = None,
        certificate_authority: Path | None = None,
        timeouts: Timeouts | None = None,
    ) -> Self:
        credentials = ExplicitCredentials(url, token=token, token_file=token_file, certificate_authority=certificate_authority)
        return cls(credentials, timeouts=timeouts)

    def bearing(self, token: str) -> Self:
        """To the same server, as the account of that token."""
        return type(self)(BorrowedCredentials(self._credentials, token), timeouts=self._timeouts)

    @property
    def url(self) -> str:
        """The address, for messages to people."""
        return self._credentials.url

    @property
    def skewed(self) -> str:
        """What people should know of the two clocks, "" where they agree."""
        skew = self.clock_skew
        if skew is None or abs(skew) <= TOLERATED_SKEW:
            return ""
        return f"the API server's clock is {about(skew)} this worker's, and the earlier one counts: one of them is wrong"

    def now(self) -> datetime:
        """The earlier of our clock and the server's, where the two differ by more than an answer takes.

        Timeouts are judged by this, and the moments they count from are written by the server, by kubelets and by controllers,
        each by its own clock. Any of these may be wrong, one server of several too: the earlier clock makes us wait, the later
        one would call every timeout expired.
        """
        now, skew, skewed = datetime.now(UTC), self.clock_skew, bool(self.skewed)
        if skewed != self._skewed:
            self._skewed = skewed
            if skewed:
                log.warning("%s: %s", self.url, self.skewed)
            else:
                log.info("%s: our clock agrees with the API server's again", self.url)
        return now + min(skew, timedelta(0)) if skew is not None and skewed else now

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections, watches included."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    # Reading

    async def get(self, path: str, *, query: Mapping[str, str] | None = None) -> JsonObject:
        """One object, live. Raises ObjectNotFound."""
        return _object(await self.get_bytes(path, query=query))

    async def get_bytes(self, path: str, *, query: Mapping[str, str] | None = None) -> bytes:
        """The answer as it came, for the decoders of `objects/decoding.py`."""
        return readable(await self._request("GET", path, query=query, seconds=self._timeouts.read))

    async def list_pages(
        self, path: str, *, limit: int = PAGE, query: Mapping[str, str] | None = None, metadata_only: bool = False
    ) -> AsyncGenerator[Page, None]:
        """A collection page by page, consistent at one resourceVersion. Raises VersionExpired if it took too long."""
        accept, asked, most = METADATA_LIST if metadata_only else "", dict(query or {}), limit
        token: str | None = None
        while True:
            parameters = {**asked, "limit": str(limit), **({"continue": token} if token else {})}
            try:
                answer = await self._request("GET", path, query=parameters, seconds=self._timeouts.page, accept=accept)
            except AnswerTooLong:
                if limit == 1:
                    raise
                limit = max(limit // FEWER, 1)
                asked.pop("resourceVersion", None)  # what a server remembers it gives whole
                continue
            limit = min(2 * limit, most) if len(answer) < LONGEST_ANSWER // FEWER else limit
            body = readable(answer)
            try:
                metadata = _list_head.decode(body).metadata
            except msgspec.DecodeError as error:
                raise failure(ErrorType.TRANSIENT, f"GET {path}: the answer is not a list: {error}") from error
            token = metadata.continue_token
            yield Page(body=body, resource_version=metadata.resource_version, last=not token)
            if not token:
                return

    async def list_objects(
        self, path: str, *, query: Mapping[str, str] | None = None, label: tuple[str, str] | None = None
    ) -> list[JsonObject]:
        """A small collection as JSON objects, live (`fieldSelector` goes into `query`); label: those that bear it."""
        query = {**(query or {}), "labelSelector": "=".join(label)} if label is not None else query
        objects: list[JsonObject] = []
        async for page in self.list_pages(path, query=query):
            items = _object(page.body)["items"] or []
            if not isinstance(items, list) or not all(isinstance(each, dict) for each in items):
                raise failure(ErrorType.TRANSIENT, f"GET {path}: the answer is not a list of objects")
            objects += items
        return objects

    async def watch(
        self,
        path: str,
        *,
        resource_version: str,
        seconds: int,
        silence: float,
        on_open: Callable[[], None] = lambda: None,
        query: Mapping[str, str] | None = None,
        metadata_only: bool = False,
    ) -> AsyncGenerator[bytes, None]:
        """Event lines after `resource_version`, until the server ends the watch (`seconds`) or is silent for `silence` seconds.

        Silence raises Unreachable like every other broken stream. An ERROR line is passed on like any other. on_open: the server
        has accepted the watch.
        """
        parameters = {
            **(query or {}),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
            "resourceVersion": resource_version,
        }
        request = f"WATCH {path}"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._timeouts.connect, sock_read=silence)
        accept = METADATA if metadata_only else ""
        call = _Call(method="GET", path=path, query=parameters, timeout=timeout, accept=accept)
        try:
            async with await self._send(call) as response:
                if response.status >= 300:
                    raise refusal(response.status, response.headers, await _read(response, request), request, writing=False)
                on_open()
                pending: list[bytes] = []
                async for chunk in response.content.iter_any():
                    if sum(map(len, pending)) > LONGEST_ANSWER:
                        raise _too_long(request)
                    *lines, rest = chunk.split(b"\n")
                    for line in lines:
                        whole = b"".join([*pending, line])
                        pending.clear()
                        if whole:
                            yield whole
                    if rest:
                        pending.append(rest)
        except aiohttp.SocketTimeoutError as error:
            raise failure(ErrorType.UNREACHABLE, f"{request}: silent for {silence:g} s") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _broken(error, request, writing=False) from error

    async def server_version(self) -> ServerVersion:
        """The server's version, asked at most every ten minutes: control planes are upgraded under us."""
        now = asyncio.get_running_loop().time()
        if self._version is None or now - self._version[0] > VERSION_SECONDS:
            answer = await self.get("/version")
            major, minor = (re.match("[0-9]{1,6}", str(answer.get(part))) for part in ("major", "minor"))
            if major is None or minor is None:
                raise failure(ErrorType.NOT_SUPPORTED, f"GET /version: not a Kubernetes API server: {answer!r:.200}")
            self._version = (now, ServerVersion(major=int(major[0]), minor=int(minor[0])))
        return self._version[1]

    async def cluster_uid(self, *, live: bool = False) -> str:
        """The uid of the namespace kube-system: the one name of a cluster that is not chosen. `live` asks again."""
        if live or not self._cluster_uid:
            namespace = await self.get(NAMESPACES.path("kube-system"))
            uid = mapping(namespace.get("metadata")).get("uid")
            if not isinstance(uid, str) or not uid:
                raise failure(
                    ErrorType.TRANSIENT, f"GET Namespace/kube-system: expected its metadata.uid, got {namespace!r:.200}"
                )
            self._cluster_uid = uid
        return self._cluster_uid

    # Writing: one attempt each; what cannot be known to have failed is Ambiguous.

    async def create(self, path: str, body: Mapping[str, Any], *, not_after: datetime | None = None) -> JsonObject:
        """POST to a collection (or `…/eviction`). Raises ObjectExists."""
        return await self._write("POST", path, orjson.dumps(body), not_after=not_after)

    async def replace(self, path: str, body: Mapping[str, Any], *, not_after: datetime | None = None) -> JsonObject:
        """PUT; with metadata.resourceVersion in the body it raises ObjectConflict where the object has moved on."""
        return await self._write("PUT", path, orjson.dumps(body), not_after=not_after)

    async def patch_json(self, path: str, operations: JsonPatch, *, not_after: datetime | None = None) -> JsonObject:
        """A JSON patch. Raises ObjectConflict where a `test` (or the removal of a missing field) does not hold."""
        try:
            body = orjson.dumps(list(operations))
            return await self._write("PATCH", path, body, content_type=JSON_PATCH, not_after=not_after)
        except PatchInapplicable as error:
            if not any(operation.get("op") == "test" for operation in operations):
                raise
            raise typed(ObjectConflict, ErrorType.TRANSIENT, error.message) from error

    async def patch_merge(self, path: str, body: Mapping[str, Any], *, not_after: datetime | None = None) -> JsonObject:
        """A JSON merge patch; None removes a key, a list replaces the whole list."""
        return await self._write("PATCH", path, orjson.dumps(body), content_type=MERGE_PATCH, not_after=not_after)

    async def delete(
        self,
        path: str,
        *,
        uid: str = "",
        resource_version: str = "",
        grace_seconds: int | None = None,
        propagation: str = "",
        not_after: datetime | None = None,
    ) -> JsonObject:
        """DELETE with preconditions: another uid or resourceVersion raises ObjectConflict, a missing object ObjectNotFound."""
        options: JsonObject = {"kind": "DeleteOptions", "apiVersion": "v1"}
        preconditions = {key: value for key, value in (("uid", uid), ("resourceVersion", resource_version)) if value}
        if preconditions:
            options["preconditions"] = preconditions
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if propagation:
            options["propagationPolicy"] = propagation
        return await self._write("DELETE", path, orjson.dumps(options), not_after=not_after)

    async def _write(
        self, method: str, path: str, body: bytes, *, content_type: str = "application/json", not_after: datetime | None
    ) -> JsonObject:
        seconds = self._timeouts.write
        answer = await self._request(method, path, body=body, content_type=content_type, seconds=seconds, not_after=not_after)
        return _object(answer, ErrorType.AMBIGUOUS)  # a server, or what stands between, has accepted it

    async def _request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "",
        accept: str = "",
        seconds: float,
        not_after: datetime | None = None,
    ) -> bytes:
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=self._timeouts.connect)
        call = _Call(method, path, query, timeout, body, content_type, accept, not_after)
        request, writing = f"{method} {path}", body is not None
        try:
            async with await self._send(call) as response:
                payload = await _read(response, request, writing=writing)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _broken(error, request, writing=writing) from error
        if response.status >= 300:
            raise refusal(response.status, response.headers, payload, request, writing=writing)
        if (refused := refusal_within(payload, request, writing=writing)) is not None:
            raise refused
        return payload

    async def _send(self, call: _Call) -> aiohttp.ClientResponse:
        """A 401 is answered once with fresh credentials: it means that nothing was done."""
        header = await self._credentials.authorization()
        response = await self._send_once(call, header)
        if response.status == 401 and await self._credentials.refresh(header):
            response.release()
            response = await self._send_once(call, await self._credentials.authorization())
        return response

    async def _send_once(self, call: _Call, authorization: str) -> aiohttp.ClientResponse:
        headers = {"Authorization": authorization} if authorization else {}
        if call.content_type:
            headers["Content-Type"] = call.content_type
        if call.accept:
            headers["Accept"] = call.accept
        target = self._credentials.url.rstrip("/") + call.path + (f"?{urlencode(call.query)}" if call.query else "")
        url = URL(target, encoded=True)
        session = self._open_session()
        _CALL.set((call, self.clock))
        try:
            response = await session.request(
                call.method,
                url,
                data=call.body,
                headers=headers,
                timeout=call.timeout,
                ssl=self._credentials.tls,
                proxy=self._credentials.proxy or self._proxy,
                server_hostname=self._credentials.server_hostname,
                allow_redirects=False,
            )
        except UNCONNECTED as error:
            self._note_reach(lost=_reason_of(error))
            raise
        self._note_reach()
        with suppress(TypeError, ValueError, OverflowError):  # a server, or something between us, that does not say
            self.clock_skew = moment_in_header(response.headers.get("Date", "")) - datetime.now(UTC)
        return response

    def _note_reach(self, *, lost: str = "") -> None:
        """One log line when the server is lost, and one when it is back, however often it is asked."""
        if lost and not self._lost:
            log.warning("%s can't be reached: %s", self.url, lost)
        elif self._lost and not lost:
            log.info("%s is reached again", self.url)
        self._lost = bool(lost)

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            session = aiohttp.ClientSession(
                # No limit: each watch holds a connection for as long as it lives, and must not starve the last look.
                connector=_Connector(limit=0),
                headers={"User-Agent": user_agent(), "Accept": "application/json"},
            )
            # aiohttp counts PUT and DELETE as safe to send again on a lost connection; for us they are not.
            session._retry_connection = False
            # HTTPS_PROXY and NO_PROXY as kubectl takes them. With aiohttp's own reading of the environment would come its
            # reading of `.netrc` before each request: a login for this host, or for all, stands against our token, or goes out
            # where we have none.
            url = URL(self._credentials.url)
            self._session, self._proxy = session, None if proxy_bypass(url.host or "") else getproxies().get(url.scheme)
        return self._session


async def _read(response: aiohttp.ClientResponse, request: str, *, writing: bool = False) -> bytes:
    """All of it. Raises AnswerTooLong."""
    chunks, size = list[bytes](), 0
    async for chunk in response.content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size > LONGEST_ANSWER:
            response.close()
            raise _too_long(request, writing=writing)
    return b"".join(chunks)


def _too_long(request: str, *, writing: bool = False) -> ApplicationError:
    what = f"{request}: the answer has more than {LONGEST_ANSWER} bytes"
    if writing:
        return failure(ErrorType.AMBIGUOUS, f"{what}; it may have been carried out")
    return typed(AnswerTooLong, ErrorType.TRANSIENT, what)


moment_in_header = lru_cache(maxsize=16)(parsedate_to_datetime)
"""Whole seconds: the answers within one say the same."""


def _broken(error: BaseException, request: str, *, writing: bool) -> ApplicationError:
    """The error for a request that got no (whole) answer."""
    what = f"{request}: {_reason_of(error)}"
    if isinstance(error, aiohttp.InvalidURL):
        return failure(ErrorType.INVALID_CONFIG, f"{request}: not an address")
    if isinstance(error, UNCONNECTED):
        return typed(Unconnected, ErrorType.UNREACHABLE, what)  # never sent
    if isinstance(error, TimeoutError):
        what = f"{request}: no answer in time"
    if writing:
        return failure(ErrorType.AMBIGUOUS, f"{what}; it may have been carried out")
    return failure(ErrorType.UNREACHABLE, what)


def _reason_of(error: BaseException) -> str:
    """Why there is no answer, as the operating system says it. The client's own texts hold whole objects and their addresses."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"the certificate of {error.host}:{error.port} is not trusted"
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno or 0
        why = os.strerror(number) if number > 0 else error.os_error.strerror or type(error.os_error).__name__
        return f"no connection to {error.host}:{error.port} ({why})"
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return "no connection in time"
    return str(error)[:LONGEST_REASON] or type(error).__name__


def user_agent() -> str:
    """How API audit logs name us."""
    try:
        return f"nodewarden/{version('nodewarden')}"
    except PackageNotFoundError:
        return "nodewarden/source"  # run from a checkout


def _object(payload: bytes, kind: ErrorType = ErrorType.TRANSIENT) -> JsonObject:
    """kind: what an answer that is no object means."""
    try:
        answer = orjson.loads(readable(payload))
    except orjson.JSONDecodeError as error:
        raise failure(kind, f"the API server's answer is not JSON: {payload[:100]!r}") from error
    if not isinstance(answer, dict):
        raise failure(kind, f"the API server's answer is not an object: {payload[:100]!r}")
    return answer
