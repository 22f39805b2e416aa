"""A small raw client of the Kubernetes API, for the simulated kubelets and controllers.

Everything in the simulated cluster reaches the API through this and only over HTTP, so the same kubelets and
controllers run against the simulated server and a real one. It speaks JSON and paths, no models (`resources.py` makes
the paths, `informer.py` keeps a cache). The user agent can be chosen, so that a test can tell the simulator's writes
from those of the system under test. This is not the client nodewarden uses; the two share nothing on purpose.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import random
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

import aiohttp
import orjson

from simulator.objects import JsonObject

log = logging.getLogger(__name__)

USER_AGENT = "nodewarden-simulator"


class PatchType(StrEnum):
    MERGE = "application/merge-patch+json"
    STRATEGIC_MERGE = "application/strategic-merge-patch+json"
    JSON = "application/json-patch+json"


class ChangeType(StrEnum):
    REPLACED = "REPLACED"
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One step of a list-then-watch: a full list (REPLACED) or one object."""

    type: ChangeType
    objects: list[JsonObject]
    resource_version: str


class ApiError(Exception):
    """The API answered, and the answer was no."""

    def __init__(self, *, status: int, reason: str, message: str, request: str) -> None:
        super().__init__(f"{request}: {status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message

    @property
    def not_found(self) -> bool:
        return self.status == 404

    @property
    def already_exists(self) -> bool:
        return self.status == 409 and self.reason == "AlreadyExists"

    @property
    def conflict(self) -> bool:
        return self.status == 409 and not self.already_exists


class ApiUnreachableError(Exception):
    """No answer: the request may or may not have been carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiAddress:
    """How to reach one API server. The CA is a PEM file; None means plain HTTP or the system's authorities."""

    url: str
    token: str = ""
    certificate_authority: str | None = None


class ApiClient:
    """Requests against one API server, with patience only where nothing can have been sent yet."""

    def __init__(
        self,
        address: ApiAddress,
        *,
        user_agent: str = USER_AGENT,
        patience_seconds: float = 5.0,
        request_timeout_seconds: float = 10.0,
    ) -> None:
        self.address = address
        self.user_agent = user_agent
        self._patience = patience_seconds
        self._timeout = aiohttp.ClientTimeout(total=request_timeout_seconds)
        self._session: aiohttp.ClientSession | None = None

    def named(self, user_agent: str) -> ApiClient:
        """The same connections under another name, so that server and tests can tell one speaker from another."""
        twin = copy.copy(self)
        twin.user_agent = user_agent
        return twin

    def without_patience(self) -> ApiClient:
        """The same for what comes again by itself: a request that is refused fails at once."""
        twin = copy.copy(self)
        twin._patience = 0.0
        return twin

    async def __aenter__(self) -> Self:
        tls: ssl.SSLContext | bool = True
        if self.address.certificate_authority:
            tls = ssl.create_default_context(cafile=self.address.certificate_authority)
        headers = {"Accept": "application/json"}
        if self.address.token:
            headers["Authorization"] = f"Bearer {self.address.token}"
        # No limit: each watch holds a connection for as long as it lives.
        connector = aiohttp.TCPConnector(limit=0, ssl=tls)
        self._session = aiohttp.ClientSession(self.address.url, connector=connector, headers=headers)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._session:
            await self._session.close()
            self._session = None

    async def get(self, path: str, **query: str) -> JsonObject:
        return await self.request("GET", path, query=query)

    async def create(self, path: str, body: Mapping[str, Any]) -> JsonObject:
        return await self.request("POST", path, body=body)

    async def until_served(self, definition: Mapping[str, Any], *, seconds: float = 30.0) -> None:
        """Returns when objects of a kind may be written: a real server serves it only some time after it took its definition."""
        spec = definition["spec"]
        version = next(each["name"] for each in spec["versions"] if each.get("served", True))
        path = f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"
        async with asyncio.timeout(seconds):
            while not await self._is_served(path):  # noqa: ASYNC110 - there is no watch for it
                await asyncio.sleep(0.1)

    async def _is_served(self, path: str) -> bool:
        try:
            await self.get(path, limit="1")
        except ApiError as error:
            if error.not_found or error.status == 503:
                return False
            raise
        return True

    async def put(self, path: str, body: Mapping[str, Any]) -> JsonObject:
        return await self.request("PUT", path, body=body)

    async def patch(self, path: str, body: Any, *, patch_type: PatchType = PatchType.MERGE) -> JsonObject:
        return await self.request("PATCH", path, body=body, content_type=patch_type)

    async def delete(
        self, path: str, *, grace_seconds: int | None = None, uid: str = "", resource_version: str = ""
    ) -> JsonObject:
        options: JsonObject = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        preconditions = {key: value for key, value in (("uid", uid), ("resourceVersion", resource_version)) if value}
        if preconditions:
            options["preconditions"] = preconditions
        return await self.request("DELETE", path, body=options)

    async def list_page(self, path: str, *, token: str = "", **query: str) -> JsonObject:
        """One page; the server may hold back the rest behind `metadata.continue`."""
        return await self.get(path, limit="500", **({"continue": token} if token else {}), **query)

    async def list(self, path: str, **query: str) -> JsonObject:
        """All pages as one list object, with the resourceVersion a watch may start from."""
        whole = await self.list_page(path, **query)
        page = whole
        while token := page["metadata"].get("continue"):
            page = await self.list_page(path, token=token, **query)
            whole["items"].extend(page["items"])
            whole["metadata"]["resourceVersion"] = page["metadata"]["resourceVersion"]
        whole["items"] = whole.get("items") or []
        return whole

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> JsonObject:
        target = f"{path}?{urlencode(query)}" if query else path
        loop = asyncio.get_running_loop()
        give_up, pause = loop.time() + self._patience, 0.05
        while True:
            try:
                async with self._open_session.request(
                    method,
                    target,
                    data=None if body is None else orjson.dumps(body),
                    headers={"User-Agent": self.user_agent, **({"Content-Type": content_type} if body is not None else {})},
                    timeout=self._timeout,
                ) as response:
                    status, payload = response.status, await response.read()
                break
            except aiohttp.ClientConnectorError as error:
                # Refused: nothing was sent, so trying again is safe for every verb.
                if loop.time() >= give_up:
                    raise ApiUnreachableError(f"{method} {target}: {error}") from error
                await asyncio.sleep(pause * random.uniform(0.5, 1.5))
                pause = min(pause * 2, 1.0)
            except (aiohttp.ClientError, TimeoutError) as error:
                raise ApiUnreachableError(f"{method} {target}: {type(error).__name__}: {error}") from error
        if status >= 400:
            raise _error_from(status, payload, f"{method} {target}")
        answer = orjson.loads(payload) if payload else {}
        return answer if isinstance(answer, dict) else {"items": answer}

    async def watch(
        self, path: str, resource_version: str, *, seconds: int = 60, **query: str
    ) -> AsyncIterator[tuple[str, JsonObject]]:
        """Events after `resource_version` until the server ends the watch; an ERROR event becomes an `ApiError`."""
        parameters = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
            "resourceVersion": resource_version,
            **query,
        }
        target = f"{path}?{urlencode(parameters)}"
        # A half-open connection shows itself only by its silence.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=seconds + 5)
        try:
            async with self._open_session.get(target, timeout=timeout, headers={"User-Agent": self.user_agent}) as response:
                if response.status >= 400:
                    raise _error_from(response.status, await response.read(), f"GET {target}")
                pending = b""
                async for chunk in response.content.iter_any():
                    *lines, pending = (pending + chunk).split(b"\n")
                    for line in filter(None, lines):
                        event = orjson.loads(line)
                        if event["type"] == "ERROR":
                            raise _error_from(event["object"].get("code", 500), line, f"GET {target}")
                        yield event["type"], event["object"]
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ApiUnreachableError(f"GET {target}: {type(error).__name__}: {error}") from error

    @property
    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("the client is used outside of its `async with` block")
        return self._session


async def list_then_watch(
    client: ApiClient, path: str, *, watch_seconds: int | None = None, on_loss: Callable[[], None] = lambda: None, **query: str
) -> AsyncIterator[Change]:
    """The state of a collection for ever: a list, then every change.

    A watch that lived as long as it should is resumed where it ended. After any other end, of which `on_loss` is called, there is
    a new list: the server may have been restored from a backup in between, and its numbers may soon reach ours again without
    having meant the same.
    """
    loop = asyncio.get_running_loop()
    resource_version, pause = "", 0.0
    while True:
        seconds = watch_seconds or random.randint(45, 75)
        began = loop.time()
        try:
            if not resource_version:
                whole = await client.list(path, **query)
                resource_version = whole["metadata"]["resourceVersion"]
                yield Change(type=ChangeType.REPLACED, objects=whole["items"], resource_version=resource_version)
                began = loop.time()
            async for kind, obj in client.watch(path, resource_version, seconds=seconds, **query):
                resource_version = obj["metadata"]["resourceVersion"]
                if kind != "BOOKMARK":
                    yield Change(type=ChangeType(kind), objects=[obj], resource_version=resource_version)
            if loop.time() - began < seconds - 1:
                resource_version = ""
        except (ApiError, ApiUnreachableError) as error:
            resource_version = ""
            log.info("watch of %s: %s", path, error)
        if not resource_version:
            on_loss()
        # A watch that lived may be resumed at once; one that keeps failing may not spin.
        pause = 0.02 if loop.time() - began > 5 else min(max(pause * 2, 0.05), 2.0)
        await asyncio.sleep(pause * random.uniform(0.5, 1.5))


def _error_from(status: int, payload: bytes, request: str) -> ApiError:
    try:
        answer = orjson.loads(payload)
    except orjson.JSONDecodeError:
        answer = {}
    answer = answer.get("object", answer) if isinstance(answer, dict) else {}
    return ApiError(
        status=status,
        reason=str(answer.get("reason") or "Unknown"),
        message=str(answer.get("message") or payload[:200].decode(errors="replace")),
        request=request,
    )
