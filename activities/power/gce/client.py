"""What runs in the thread of a `CloudCall`: a token, the one request to Compute Engine's REST API, and what its answer means.

Imported where it is needed only. Of Google's packages the tokens are taken and the messages that answers are read into: their
client would repeat what is refused or hangs, counts its time-outs for each wait and not for the whole, waits for operations at
the public endpoint wherever `api-endpoint` points, and takes 15 MB. Whether an accepted command was carried out is read from the
instance itself.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import threading
import traceback
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.request import getproxies, proxy_bypass

import aiohttp
import certifi
import google.auth
from google.auth import exceptions as auth_errors
from google.auth.credentials import Credentials as GoogleCredentials
from google.auth.transport import Request as TokenTransport
from google.auth.transport import Response as TokenAnswer
from google.oauth2 import service_account
from yarl import URL

from activities.errors import ErrorType
from activities.lean_imports import import_requests
from activities.power.cloud_call import CallStage, CloudCall, HttpAnswer, HttpRequest, NotThereError, reason_of, tls_of
from activities.power.driver import PowerError

# Our identity at Google, and the tokens that prove it: a service account by its key, or the worker's own identity.

SCOPE = "https://www.googleapis.com/auth/compute"


@dataclass(frozen=True, slots=True)
class _Token(TokenAnswer):
    """The answer of a token endpoint, as google-auth reads it."""

    status: int
    headers: Mapping[str, str]
    data: bytes


class _TokenRequest(TokenTransport):
    """How google-auth asks for a token: within the call's time, however often it tries."""

    def __init__(self, call: CloudCall) -> None:
        self._call = call

    def __call__(
        self,
        url: str,
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **_: Any,
    ) -> TokenAnswer:
        request = HttpRequest(method=method, url=url, headers=headers or {}, body=body)
        try:
            answer = _sent(self._call, request, itself=False, patience=timeout)
        except (aiohttp.ClientError, OSError) as error:
            raise auth_errors.TransportError(type(error).__name__) from error
        return _Token(answer.status, answer.headers, answer.body)


class Account:
    """The account that we act as: a service account by its key, or the worker's own identity (`info` None). Keeps its token."""

    def __init__(self, info: Mapping[str, str] | None) -> None:
        self._info = info
        self._credentials: GoogleCredentials | None = None

    def authorization(self, call: CloudCall) -> str:
        """A bearer token for `call`. Calls that need a new one at the same time all ask: none waits for another's hang."""
        call.secrets = self.secrets
        request = _TokenRequest(call)
        try:
            if self._credentials is None:
                self._credentials = self._load(request)
            credentials = self._credentials
            if not credentials.valid:
                credentials.refresh(request)
            call.secrets = self.secrets
            return f"Bearer {credentials.token}"
        except auth_errors.DefaultCredentialsError as error:
            missing = "no service-account-json is given and the worker has no identity of its own"
            raise call.failure(ErrorType.INVALID_CONFIG, f"{missing} ({call.excerpt(str(error))})") from None
        except auth_errors.TransportError as error:
            raise call.broken(f"the token endpoint can't be reached ({reason_of(error)})") from None
        except auth_errors.GoogleAuthError as error:
            raise self._refused(call, error) from None
        except ValueError:
            problem = "service-account-json holds no private key that can be used"
            raise call.failure(ErrorType.INVALID_CONFIG, problem) from None

    def forget(self) -> None:
        """The token was refused: the next call gets another."""
        self._credentials = None

    @property
    def secrets(self) -> list[str]:
        secrets = [self._info.get("private_key", ""), self._info.get("private_key_id", "")] if self._info else []
        if self._credentials is not None and self._credentials.token:
            secrets.append(str(self._credentials.token))
        return secrets

    def _load(self, request: _TokenRequest) -> GoogleCredentials:
        if self._info is None:
            import_requests()  # which google-auth does before it asks the metadata server, and then never uses
            found, _ = google.auth.default(scopes=[SCOPE], request=request)
            return found
        account: GoogleCredentials = service_account.Credentials.from_service_account_info(self._info, scopes=[SCOPE])
        return account

    def _refused(self, call: CloudCall, error: auth_errors.GoogleAuthError) -> PowerError:
        if isinstance(error.__cause__, auth_errors.TransportError):
            return call.broken(f"the token endpoint can't be reached ({reason_of(error)})")
        answer = next((item for item in error.args if isinstance(item, Mapping)), {})
        said = call.excerpt(" ".join(str(answer[key]) for key in ("error", "error_description") if key in answer))
        problem = f"the token endpoint refused the credentials ({said or type(error).__name__})"
        if getattr(error, "retryable", False):
            return call.failure(ErrorType.TRANSIENT, f"{problem}; nothing was sent")
        return call.failure(ErrorType.UNAUTHORIZED, problem)


KEPT_ACCOUNTS = 64
_accounts: OrderedDict[str, Account] = OrderedDict()
_accounts_lock = threading.Lock()


def account_of(key: str) -> Account:
    """The account of a JSON key, "" for the worker's own identity. Kept by the key's digest, so that tokens are reused."""
    digest = hashlib.sha256(key.encode()).hexdigest()
    with _accounts_lock:
        account = _accounts.pop(digest, None) or Account(json.loads(key) if key else None)
        _accounts[digest] = account
        while len(_accounts) > KEPT_ACCOUNTS:
            _accounts.popitem(last=False)
        return account


# One request, and what becomes of an answer other than 2xx.

RATE_REASONS = frozenset({"rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded", "dailyLimitExceeded"})


def _sent(call: CloudCall, request: HttpRequest, *, itself: bool, patience: float | None = None) -> HttpAnswer:
    """Sent once by the call, straight or through the proxy of the environment. itself: it is the call's own request, and not one
    for a token. patience: seconds, where less than the call's."""
    limit = call.remaining()
    url = URL(request.url)
    bundle = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or certifi.where()
    tls = tls_of(bundle) if url.scheme == "https" else None
    proxy = None if proxy_bypass(url.host or "") else getproxies().get(url.scheme)
    return call.send(request, tls=tls, proxy=proxy, itself=itself, limit=min(limit, patience or limit))


def _raise_for(call: CloudCall, answer: HttpAnswer) -> None:
    """The one place where an answer other than 2xx becomes an error of ours."""
    status = answer.status
    if status < 300:
        return
    message, reasons = _error_of(answer)
    text = f"the API answers {status}: {call.excerpt(message)}"
    if status < 400:
        where_to = answer.headers.get("Location", "elsewhere")
        raise call.failure(ErrorType.INVALID_CONFIG, f"api-endpoint redirects to {call.excerpt(where_to)}, which is not followed")
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


def _error_of(answer: HttpAnswer) -> tuple[str, frozenset[str]]:
    """The message and the reasons in an answer, as far as it is one of Google's."""
    try:
        error = json.loads(answer.body)["error"]
        reasons = frozenset(str(item.get("reason", "")) for item in (*error.get("errors", ()), *error.get("details", ())))
        return str(error["message"]), reasons
    except (ValueError, TypeError, KeyError, AttributeError):
        return answer.reason or "no reason given", frozenset()


def perform(call: CloudCall, method: str, url: str, key: str | None, answer: str) -> Any:
    """Put the one request of a call. key: a service account's, "" for the worker's own identity, None for no token at all.
    answer: the name of Google's message that comes back."""
    account = account_of(key) if key is not None else None
    headers = {"Accept-Encoding": "gzip", "Content-Type": "application/json", "User-Agent": "nodewarden"}
    try:
        if account is not None:
            call.stage = CallStage.AUTHORIZING
            headers["Authorization"] = account.authorization(call)
        call.stage = CallStage.CONNECTING
        answered = _sent(call, HttpRequest(method=method, url=url, headers=headers), itself=True)
        _raise_for(call, answered)
        if not answered.body.lstrip().startswith(b"{"):
            # A list or a word would be taken for an object without any content.
            raise call.broken("the answer is none of Compute Engine's")
        return getattr(_MESSAGES, answer).from_json(answered.body, ignore_unknown_fields=True)
    except PowerError as error:
        if error.type is ErrorType.UNAUTHORIZED and account is not None:
            account.forget()
        raise error from None
    except TimeoutError:
        raise call.silence() from None
    except (aiohttp.ClientError, OSError) as error:
        raise call.broken(f"the connection failed ({call.excerpt(reason_of(error))})") from None
    except Exception as error:  # noqa: BLE001 - whatever is made of an answer, a command that was sent stays sent
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise call.broken(f"the client failed ({type(error).__name__} in {place.name}, line {place.lineno})") from None


# The messages.

ANSWERS = frozenset({"Disk", "Instance", "Operation", "SerialPortOutput"})


def _messages() -> ModuleType:
    """Google's module of messages, with those only that our answers consist of: 64 of 2,100, which keep 1 MB and not 57. What
    else in the process wants the package whole imports it before: then it is used as it is."""
    package, name = "google.cloud.compute_v1", "google.cloud.compute_v1.types.compute"
    spec = find_spec(package) if package not in sys.modules else None
    if spec is None or spec.origin is None:
        return import_module(name)
    path = Path(spec.origin).parent / "types" / "compute.py"
    found = sys.modules[name] = ModuleType(name)  # where classes of messages look for their file
    exec(compile(_our_messages(path.read_text("utf-8")), path, "exec", optimize=2), found.__dict__)  # noqa: S102 - Google's source
    return found


def _our_messages(whole: str) -> str:
    """Of the source of all messages what is about `ANSWERS` and what these consist of. All of it where it is not written as its
    generator does."""
    starts = [(found[1], found.start()) for found in re.finditer(r"^class (\w+)\(proto\.", whole, re.MULTILINE)]
    if not starts or (end := whole.find("\n__all__ =")) < starts[-1][1]:
        return whole
    places = {name: slice(start, after) for (name, start), (_, after) in pairwise([*starts, ("", end)])}
    wanted, left = set[str](), sorted(ANSWERS)
    while left:
        name = left.pop()
        if name not in places:
            return whole
        if name not in wanted:
            wanted.add(name)
            left += (part for part in re.findall(r"\b(?:message|enum)=\"?(\w+)", whole[places[name]]) if part != "any_pb2")
    head, manifests = re.subn(r"manifest=\{[^}]*\}", f"manifest={wanted!r}", whole[: starts[0][1]])
    return head + "".join(whole[places[name]] for name in places if name in wanted) if manifests == 1 else whole


_MESSAGES = _messages()
