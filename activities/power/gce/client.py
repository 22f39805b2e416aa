"""What runs in the thread of a `CloudCall`: Google's client on our session, with a token before anything is sent.

Imported where it is needed only: the client library takes more than a second of a core and 110 MB. It is used for its requests,
paths and types; what it does around them is not ours to have:

- it retries, and its session repeats a request that was refused with 401: here a call is one request, without redirects;
- its time-outs are for each wait, not for the whole: here the call has it sent, and ends it (`cloud_call.py`);
- `operation.result()` asks the public endpoint, wherever `api_endpoint` points: here no operation is waited for. Whether an
  accepted command was carried out is read from the instance itself.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec, module_from_spec
from typing import Any, TypeVar

import requests
from google.api_core.gapic_v1.client_info import ClientInfo
from google.auth.credentials import AnonymousCredentials

from activities.errors import ErrorType
from activities.power.cloud_call import CallStage, CloudCall, reason_of
from activities.power.errors import PowerError
from activities.power.gce.accounts import account_of
from activities.power.gce.session import CallSession

KEPT_CLIENTS = 64

PACKAGE = "google.cloud.compute_v1"


@contextmanager
def _only_what_is_named() -> Iterator[None]:
    """While this holds, parts of the package are imported without its own module, which imports all of its hundred services.

    With them the first act of a worker would wait for 4.2 s of a core, without them 1.2 s. A later import gets the package whole.
    """
    spec = find_spec(PACKAGE) if PACKAGE not in sys.modules else None
    if spec is None:
        yield
        return
    sys.modules[PACKAGE] = module_from_spec(spec)
    try:
        yield
    finally:
        del sys.modules[PACKAGE]


with _only_what_is_named():
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
        """For instances."""
        client: InstancesClient = client_for(InstancesClient, InstancesRestTransport, self._url)
        return client

    @property
    def disks(self) -> DisksClient:
        """For disks of a zone."""
        client: DisksClient = client_for(DisksClient, DisksRestTransport, self._url)
        return client

    @property
    def region_disks(self) -> RegionDisksClient:
        """For disks of a region."""
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
        raise call.broken(f"the connection failed ({call.told(reason_of(error))})") from None
    except Exception as error:  # noqa: BLE001 - whatever the client makes of an answer, a command that was sent stays sent
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise call.broken(f"the client failed ({type(error).__name__} in {place.name}, line {place.lineno})") from None
    finally:
        _session.current = None
