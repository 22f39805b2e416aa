"""One HTTP request of a `ComputeRequest`, on a connection that the act can cut: within its time, sent once, its refusal typed.

A connection is made for each act and closed after it, so that a stale one never leaves open whether a command has arrived.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.poolmanager import PoolManager
from urllib3.util import Timeout

from activities.errors import ErrorType
from activities.power.gce.act import ComputeRequest, NotThereError

RATE_REASONS = frozenset({"rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded", "dailyLimitExceeded"})


class _Watched(HTTPConnection):
    """A connection that its act can cut, and that asks its act before the first byte of a request."""

    def __init__(self, *arguments: Any, act: ComputeRequest, sends: bool, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._act = act
        self._sends = sends

    def _new_conn(self) -> Any:
        connection = super()._new_conn()
        self._act.watch(connection)
        return connection

    def connect(self) -> None:
        super().connect()
        if self.sock is not None:
            self._act.watch(self.sock)  # the one inside TLS
        if self._sends:
            self._act.send()


class _Plain(_Watched):
    """Without TLS: a test endpoint, the metadata server of a worker's own machine."""


class _Secure(_Watched, HTTPSConnection):
    """With TLS."""


class _Adapter(HTTPAdapter):
    """Makes connections of the act, straight or through the proxy of the environment. Repeats nothing."""

    def __init__(self, act: ComputeRequest, *, sends: bool) -> None:
        self._act, self._sends = act, sends
        super().__init__(max_retries=0)

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options)
        self._equip(self.poolmanager)

    def proxy_manager_for(self, *arguments: Any, **options: Any) -> Any:
        manager = super().proxy_manager_for(*arguments, **options)
        self._equip(manager)
        return manager

    def _equip(self, manager: PoolManager) -> None:
        pools: Any = {
            "http": partial(self._pool, HTTPConnectionPool, _Plain),
            "https": partial(self._pool, HTTPSConnectionPool, _Secure),
        }
        manager.pool_classes_by_scheme = pools

    def _pool(self, pool_class: Any, connection_class: Any, *arguments: Any, **options: Any) -> Any:
        pool = pool_class(*arguments, **options)
        pool.ConnectionCls = partial(connection_class, act=self._act, sends=self._sends)
        return pool


class ActSession(requests.Session):
    """One request of the act. `sends`: it is the act's own request, and not one for a token."""

    def __init__(self, act: ComputeRequest, *, sends: bool) -> None:
        super().__init__()
        self._act, self._sends = act, sends
        # A `.netrc` of the worker would else replace our token by its own idea of a login.
        self.auth = _leave_as_it_is
        for scheme in ("https://", "http://"):
            self.mount(scheme, _Adapter(act, sends=sends))

    def request(self, method: str, url: Any, *arguments: Any, **options: Any) -> requests.Response:
        limit, asked_for = self._act.remaining(), options.get("timeout")
        if isinstance(asked_for, int | float):
            limit = min(limit, asked_for)
        options["timeout"] = Timeout(total=limit)
        options["allow_redirects"] = False
        response = super().request(method, url, *arguments, **options)
        if self._sends:
            self._act.answered()
            _raise_for(self._act, response)
            if not response.content:
                response._content = b"{}"  # what the client can read; an accepted NMI answers with nothing
            elif not isinstance(_json(response), dict):
                # The client would take a list or a word for an object without any content.
                raise self._act.broken("the answer is none of Compute Engine's")
        return response


def _leave_as_it_is(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def _raise_for(act: ComputeRequest, response: requests.Response) -> None:
    """The one place where an answer other than 2xx becomes an error of ours."""
    status = response.status_code
    if status < 300:
        return
    message, reasons = _said(response)
    text = f"the API answers {status}: {act.told(message)}"
    if status < 400:
        where = response.headers.get("Location", "elsewhere")
        raise act.failure(ErrorType.INVALID_CONFIG, f"api-endpoint redirects to {act.told(where)}, which is not followed")
    if status == 429 or (status == 403 and reasons & RATE_REASONS):
        raise act.failure(ErrorType.RATE_LIMITED, text)
    if status in {401, 403}:
        raise act.failure(ErrorType.UNAUTHORIZED, text)
    if status == 404:
        raise NotThereError(ErrorType.INVALID_CONFIG, str(act.failure(ErrorType.INVALID_CONFIG, text)))
    if status >= 500 or status == 408:
        # Of a question nothing is left over. A command may have got through to whatever failed after it, even with a 503: a front
        # end that lost sight of its back end answers so, too. request_id would make a repetition harmless at Google, but not at
        # whatever else answers for it, and reading the state is as cheap.
        if act.command:
            raise act.failure(ErrorType.AMBIGUOUS, f"{text}; it may have been carried out")
        raise act.failure(ErrorType.TRANSIENT, text)
    if status == 409 or reasons & {"resourceNotReady", "RESOURCE_NOT_READY"}:
        raise act.failure(ErrorType.TRANSIENT, text)
    raise act.failure(ErrorType.NOT_SUPPORTED, text)


def _json(response: requests.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return None


def _said(response: requests.Response) -> tuple[str, frozenset[str]]:
    """The message and the reasons in an answer, as far as it is one of Google's."""
    try:
        error = response.json()["error"]
        reasons = frozenset(str(item.get("reason", "")) for item in (*error.get("errors", ()), *error.get("details", ())))
        return str(error["message"]), reasons
    except (ValueError, TypeError, KeyError, AttributeError):
        return response.reason or "no reason given", frozenset()


def reason_of(error: BaseException) -> str:
    """What the system said of a failed connection. The client's own texts repeat whole URLs."""
    links = [error]
    for link in links:  # which grows meanwhile
        if isinstance(link, OSError) and link.strerror:
            return link.strerror
        below = (link.__cause__, link.__context__, getattr(link, "reason", None), *link.args)
        links += [item for item in below if isinstance(item, BaseException) and item not in links]
    return type(error).__name__
