"""What runs in the thread of a `CloudCall`: Google's client on our session, with a token before anything is sent; our identity
there; and that session.

Imported where it is needed only: the client library takes more than half a second of a core and 17 MB. It is used for its
requests, paths and types; what it does around them is not ours to have:

- it retries, and its session repeats a request that was refused with 401: here a call is one request, without redirects;
- its time-outs are for each wait, not for the whole: here the call has it sent, and ends it (`cloud_call.py`);
- `operation.result()` asks the public endpoint, wherever `api_endpoint` points: here no operation is waited for. Whether an
  accepted command was carried out is read from the instance itself.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import sys
import threading
import traceback
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import aiohttp

from activities.errors import ErrorType
from activities.lean_imports import with_stand_ins, without, without_its_own_module
from activities.power.cloud_call import CallStage, CloudCall, HttpRequest, NotThereError, reason_of, tls_of
from activities.power.driver import PowerError

# Nothing here guesses how a text is encoded (4 MB), or speaks gRPC (12 MB), for which Google's packages are written all the same.
with without("chardet"), without("charset_normalizer"), warnings.catch_warnings(action="ignore"):
    import requests
    from requests.adapters import BaseAdapter
    from requests.utils import DEFAULT_CA_BUNDLE_PATH, select_proxy

with without("grpc"):
    import google.api_core.client_info
    import google.api_core.exceptions
    import google.auth
    from google.auth import exceptions as auth_errors
    from google.auth.credentials import AnonymousCredentials
    from google.auth.credentials import Credentials as GoogleCredentials
    from google.auth.transport.requests import Request as TokenTransport
    from google.oauth2 import service_account

# Our identity at Google, and the tokens that prove it: a service account by its key, or the worker's own identity.

SCOPE = "https://www.googleapis.com/auth/compute"


class _TokenRequest(TokenTransport):
    """How google-auth asks for a token: within the call's time, however often it tries."""

    def __init__(self, call: CloudCall, session: CallSession) -> None:
        super().__init__(session)
        self._call = call

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self._call.remaining()  # raises ours, which no loop of google-auth catches
        return super().__call__(*arguments, **options)


class Account:
    """The account that we act as: a service account by its key, or the worker's own identity (`info` None). Keeps its token."""

    def __init__(self, info: Mapping[str, str] | None) -> None:
        self._info = info
        self._credentials: GoogleCredentials | None = None

    def authorization(self, call: CloudCall) -> str:
        """A bearer token for `call`. Calls that need a new one at the same time all ask: none waits for another's hang."""
        call.secrets = self.secrets
        with CallSession(call, itself=False) as session:
            request = _TokenRequest(call, session)
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


# The session on which Google's client and its tokens work: what it is given is sent by the call, its refusal is typed.

RATE_REASONS = frozenset({"rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded", "dailyLimitExceeded"})


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
    message, reasons = _error_of(response)
    text = f"the API answers {status}: {call.excerpt(message)}"
    if status < 400:
        where_to = response.headers.get("Location", "elsewhere")
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


def _json(response: requests.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return None


def _error_of(response: requests.Response) -> tuple[str, frozenset[str]]:
    """The message and the reasons in an answer, as far as it is one of Google's."""
    try:
        error = response.json()["error"]
        reasons = frozenset(str(item.get("reason", "")) for item in (*error.get("errors", ()), *error.get("details", ())))
        return str(error["message"]), reasons
    except (ValueError, TypeError, KeyError, AttributeError):
        return response.reason or "no reason given", frozenset()


KEPT_CLIENTS = 64

PACKAGE = "google.cloud.compute_v1"


SERVICES = ("disks", "instances", "region_disks", "region_operations", "zone_operations")
"""Those that we call, and those that they import."""


@contextmanager
def _only_what_is_named() -> Iterator[None]:
    """While this holds, parts of the package are imported without its own module, which imports all of its hundred services, and
    with those messages only that ours have.

    Whole, the first act of a worker would wait for 4.2 s of a core; with all messages for 1.2 s, and keep 89 MB; so for 0.6 s,
    and keep 37 MB, of which gRPC and what guesses encodings were 16. Whatever else in the process wants the package whole imports
    it before: then it is used as it is.
    """
    with without_its_own_module(PACKAGE) as bare:
        folder = Path(bare.__file__ or "").parent if bare is not None else None
        if folder is not None and (source := _our_messages(folder)) is not None:
            types, messages = ModuleType(f"{PACKAGE}.types"), ModuleType(f"{PACKAGE}.types.compute")
            types.__path__, types.compute = [str(folder / "types")], messages  # type: ignore[attr-defined]
            messages.__file__ = str(folder / "types" / "compute.py")
            sys.modules |= {types.__name__: types, messages.__name__: messages}
            exec(compile(source, messages.__file__, "exec", optimize=2), messages.__dict__)  # noqa: S102 - the package's own source
        yield


def _our_messages(folder: Path) -> str | None:
    """Of the source of the package's messages what is about those that `SERVICES` name and that these consist of, 240 of 2,100.
    None where it is not written as its generator does: then all are taken."""
    whole = (folder / "types" / "compute.py").read_text(encoding="utf-8")
    starts = [(found[1], found.start()) for found in re.finditer(r"^class (\w+)\(proto\.", whole, re.MULTILINE)]
    if not starts or (end := whole.find("\n__all__ =")) < starts[-1][1]:
        return None
    places = {name: slice(start, after) for (name, start), (_, after) in pairwise([*starts, ("", end)])}
    sources = (path for service in SERVICES for path in (folder / "services" / service).rglob("*.py"))
    named = {name for path in sources for name in re.findall(r"\bcompute\.(\w+)", path.read_text(encoding="utf-8"))}
    wanted, left = set[str](), sorted(named & places.keys())
    while left:
        name = left.pop()
        if name not in wanted:
            wanted.add(name)
            left += (part for part in re.findall(r"\b(?:message|enum)=\"?(\w+)", whole[places[name]]) if part != "any_pb2")
            if not places.keys() >= {*left}:
                return None
    head, manifests = re.subn(r"manifest=\{[^}]*\}", f"manifest={wanted!r}", whole[: starts[0][1]])
    return head + "".join(whole[places[name]] for name in places if name in wanted) if manifests == 1 else None


with with_stand_ins("grpc", "aio"), _only_what_is_named():
    from google.api_core.gapic_v1.client_info import ClientInfo
    from google.cloud.compute_v1.services.disks import DisksClient
    from google.cloud.compute_v1.services.disks.transports import DisksRestTransport
    from google.cloud.compute_v1.services.instances import InstancesClient
    from google.cloud.compute_v1.services.instances.transports import InstancesRestTransport
    from google.cloud.compute_v1.services.region_disks import RegionDisksClient
    from google.cloud.compute_v1.services.region_disks.transports import RegionDisksRestTransport

Result = TypeVar("Result")


class _SessionOfTheThread(threading.local):
    """What a kept client takes for its session: that of the call which this thread makes, and none between two of them."""

    current: CallSession | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.current, name)


_session = _SessionOfTheThread()


class Api:
    """The clients, for one call. They hold an endpoint and no credentials: tokens and connections are the call's own."""

    def __init__(self, call: CloudCall, url: str) -> None:
        self._call, self._url = call, url

    @property
    def instances(self) -> InstancesClient:
        client: InstancesClient = client_for(InstancesClient, InstancesRestTransport, self._url)
        return client

    @property
    def disks(self) -> DisksClient:
        client: DisksClient = client_for(DisksClient, DisksRestTransport, self._url)
        return client

    @property
    def region_disks(self) -> RegionDisksClient:
        client: RegionDisksClient = client_for(RegionDisksClient, RegionDisksRestTransport, self._url)
        return client

    @property
    def once(self) -> dict[str, Any]:
        """The options of every call: sent once, within what is left."""
        return {"retry": None, "timeout": self._call.remaining()}


@lru_cache(maxsize=KEPT_CLIENTS)
def client_for(client_class: Any, transport_class: Any, url: str) -> Any:
    """Making one takes about as long as a call with it."""
    transport = transport_class(credentials=AnonymousCredentials(), host=url)
    transport._session = _session
    # Anew, because its calls hold the session that there was when they were made.
    transport._prep_wrapped_messages(ClientInfo())
    return client_class(transport=transport)


def perform(call: CloudCall, url: str, key: str | None, ask: Callable[[Api], Result]) -> Result:
    """Put the one request of a call. key: a service account's, "" for the worker's own identity, None for no token at all."""
    account = account_of(key) if key is not None else None
    try:
        with CallSession(call, itself=True) as session:
            if account is not None:
                call.stage = CallStage.AUTHORIZING
                session.headers["Authorization"] = account.authorization(call)
            call.stage = CallStage.CONNECTING
            _session.current = session
            return ask(Api(call, url))
    except PowerError as error:
        if error.type is ErrorType.UNAUTHORIZED and account is not None:
            account.forget()
        raise error from None
    except requests.Timeout:
        raise call.silence() from None
    except requests.RequestException as error:
        raise call.broken(f"the connection failed ({call.excerpt(reason_of(error))})") from None
    except Exception as error:  # noqa: BLE001 - whatever the client makes of an answer, a command that was sent stays sent
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise call.broken(f"the client failed ({type(error).__name__} in {place.name}, line {place.lineno})") from None
    finally:
        _session.current = None
