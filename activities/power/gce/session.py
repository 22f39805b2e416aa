"""The session on which Google's client and its tokens work: what it is given is sent by the call, its refusal is typed."""

from __future__ import annotations

import io
from typing import Any

import aiohttp
import requests
from requests.adapters import BaseAdapter
from requests.utils import DEFAULT_CA_BUNDLE_PATH, select_proxy

from activities.errors import ErrorType
from activities.power.cloud_call import CloudCall, HttpRequest, tls_of
from activities.power.errors import PowerError

RATE_REASONS = frozenset({"rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded", "dailyLimitExceeded"})


class NotThereError(PowerError):
    """The API answered that there is no such thing (404): never a state, and nothing was carried out."""


class _Adapter(BaseAdapter):
    """Has the call send it, straight or through the proxy of the environment. Repeats nothing."""

    def __init__(self, call: CloudCall, *, itself: bool) -> None:
        super().__init__()
        self._call, self._itself = call, itself

    def send(self, request: requests.PreparedRequest, *_: Any, **options: Any) -> requests.Response:
        verify = options["verify"]
        url = request.url or ""
        try:
            answer = self._call.send(
                HttpRequest(method=request.method or "", url=url, headers=request.headers, body=request.body),
                tls=tls_of(DEFAULT_CA_BUNDLE_PATH if verify is True else verify) if url.startswith("https:") else None,
                proxy=select_proxy(url, options["proxies"]),
                itself=self._itself,
                limit=options["timeout"],
            )
        except TimeoutError as error:
            raise requests.Timeout(request=request) from error
        except (aiohttp.ClientError, OSError) as error:
            raise requests.ConnectionError(type(error).__name__, request=request) from error
        response = requests.Response()
        response.status_code, response.reason, response.url = answer.status, answer.reason, url
        response.headers.update(answer.headers)
        response.raw, response.request = io.BytesIO(answer.body), request
        return response

    def close(self) -> None:
        """It holds nothing open."""


class CallSession(requests.Session):
    """One request of the call. itself: it is the call's own request, and not one for a token."""

    def __init__(self, call: CloudCall, *, itself: bool) -> None:
        super().__init__()
        self._call, self._itself = call, itself
        # A `.netrc` of the worker would else replace our token by its own idea of a login.
        self.auth = _leave_as_it_is
        for scheme in ("https://", "http://"):
            self.mount(scheme, _Adapter(call, itself=itself))

    def request(self, method: str, url: Any, *arguments: Any, **options: Any) -> requests.Response:  # type: ignore[override]
        limit, asked_for = self._call.remaining(), options.get("timeout")
        options["timeout"] = min(limit, asked_for) if isinstance(asked_for, int | float) else limit
        options["allow_redirects"] = False
        response = super().request(method, url, *arguments, **options)
        if self._itself:
            _raise_for(self._call, response)
            if not isinstance(_json(response), dict):
                # The client would take a list or a word for an object without any content.
                raise self._call.broken("the answer is none of Compute Engine's")
        return response


def _leave_as_it_is(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def _raise_for(call: CloudCall, response: requests.Response) -> None:
    """The one place where an answer other than 2xx becomes an error of ours."""
    status = response.status_code
    if status < 300:
        return
    message, reasons = _said(response)
    text = f"the API answers {status}: {call.told(message)}"
    if status < 400:
        where_to = response.headers.get("Location", "elsewhere")
        raise call.failure(ErrorType.INVALID_CONFIG, f"api-endpoint redirects to {call.told(where_to)}, which is not followed")
    if status == 429 or (status == 403 and reasons & RATE_REASONS):
        raise call.failure(ErrorType.RATE_LIMITED, text)
    if status in {401, 403}:
        raise call.failure(ErrorType.UNAUTHORIZED, text)
    if status == 404:
        raise NotThereError(ErrorType.INVALID_CONFIG, str(call.failure(ErrorType.INVALID_CONFIG, text)))
    if status >= 500 or status == 408:
        # Of a question nothing is left over. A command may have got through to whatever failed after it, even with a 503: a front
        # end that lost sight of its back end answers so, too. request_id would make a repetition harmless at Google, but not at
        # whatever else answers for it, and reading the state is as cheap.
        if call.command:
            raise call.failure(ErrorType.AMBIGUOUS, f"{text}; it may have been carried out")
        raise call.failure(ErrorType.TRANSIENT, text)
    if status == 409 or reasons & {"resourceNotReady", "RESOURCE_NOT_READY"}:
        raise call.failure(ErrorType.TRANSIENT, text)
    raise call.failure(ErrorType.NOT_SUPPORTED, text)


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
