"""Who asks, and whether they may: on the loopback the bearer of this process's token, elsewhere a person known to the cluster.

Nothing is decided here. The cluster's own API says which person a token is of (TokenReview) and whether that person may look
(SubjectAccessReview, the verb `get` on `nodes.nodewarden.io`); each word is a NodeAction that is made with the person's own
token, so that Kubernetes' own rules and audit have it (S42). A name that a proxy puts into a header is not believed.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import re
import secrets
import zlib
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address, ip_address, ip_network
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from fastapi import Request
from temporalio.exceptions import ApplicationError

from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.paths import ACCESS_REVIEWS, TOKEN_REVIEWS
from activities.keyring import LEAST_BYTES
from starter.client import Nodewarden
from starter.errors import RequestError, SilentError
from starter.handles.node_actions import Opening, Speaker

FRESH = timedelta(seconds=30)
"""How long the cluster's word about a token is good for: a person who loses a right loses it here by then."""
KNOWN = 1000
"""The most tokens of which the cluster's word is remembered; the oldest goes first."""
STRANGERS, ALL_STRANGERS, STRANGERS_WITHIN = 30, 300, timedelta(seconds=10)
"""So many tokens that were not known before are shown to a cluster in so long: of one address, and of all together."""


class UnknownCallerError(RequestError):
    """The cluster does not know who asks."""


class ForbiddenError(RequestError):
    """The caller has no right to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks. warden: by which the caller commands. opening: the caller's own way to the cluster, None where there is none."""

    name: str
    warden: Nodewarden
    opening: Opening


class Doorkeeper(Protocol):
    """Says who asks. login: whether the cluster knows them, else this process. way_in: the path at which people come in. shared:
    whether a token may be shown to every cluster, and not to that alone which it is for."""

    login: bool
    shared: bool
    way_in: str

    async def caller(self, token: str, cluster: str, address: str = "") -> Caller:
        """address: from which they come. Raises UnknownCallerError, ForbiddenError, SilentError."""


class OwnHouse:
    """The person who runs us, on the loopback, where every other user and every web page can connect too: the bearer of the token
    that is printed with our address (S51)."""

    login = False
    shared = True

    def __init__(self, warden: Nodewarden, opening: Opening, *, name: str) -> None:
        self.token = secrets.token_urlsafe(16)
        self.way_in = f"login?token={self.token}"
        self._caller = Caller(name=name, warden=warden, opening=opening)

    async def caller(self, token: str, cluster: str, address: str = "") -> Caller:  # noqa: ARG002 - one for all of them
        """Always the same."""
        if not hmac.compare_digest(token.encode(), self.token.encode()):
            raise UnknownCallerError("expected the token of the address that `nodewarden ui` or `nodewarden up` has printed")
        return self._caller


class Reviewed:
    """A person with a token that the cluster knows. opening: our own way to a cluster, by which we ask about it."""

    login = True
    way_in = ""

    def __init__(
        self,
        warden: Nodewarden,
        opening: Opening,
        *,
        shared: bool = False,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.shared = shared
        self._warden = warden
        self._opening = opening
        self._clock = clock
        self._known: dict[tuple[str, str], tuple[datetime, Caller | RequestError]] = {}
        self._strangers = defaultdict[str, deque[tuple[datetime, str]]](lambda: deque(maxlen=ALL_STRANGERS))

    async def caller(self, token: str, cluster: str, address: str = "") -> Caller:
        """What the cluster has said within the last half minute, or says now."""
        if not token:
            raise UnknownCallerError("expected a bearer token that the cluster knows, got none")
        key, now = (hashlib.sha256(token.encode()).hexdigest(), cluster), self._clock()
        at, found = self._known.get(key, (None, None))
        if at is None or found is None or now - at >= FRESH:
            if not isinstance(found, Caller):
                origin = _network(address)
                lately = [each for moment, each in self._strangers[cluster] if now - moment < STRANGERS_WITHIN]
                if len(lately) >= ALL_STRANGERS or lately.count(origin) >= STRANGERS:
                    raise SilentError("too many unknown tokens are shown at this moment; try again in a few seconds")
                self._strangers[cluster].append((now, origin))
            try:
                found = await self._ask(token, cluster)
            except (UnknownCallerError, ForbiddenError) as error:
                found = error
            self._known.pop(key, None)
            self._known[key] = (self._clock(), found)
            if len(self._known) > KNOWN:  # of those that the cluster does not know first, so that they displace no other
                invented = (key for key, (_, each) in self._known.items() if not isinstance(each, Caller))
                self._known.pop(next(invented, next(iter(self._known))))
        if isinstance(found, RequestError):
            raise found
        return found

    async def _ask(self, token: str, cluster: str) -> Caller:
        try:
            async with self._opening(cluster) as ours:
                if ours is None:
                    raise SilentError(f"the cluster {cluster} is not reached from here, so your token can't be checked")
                user = await self._user(ours, token)
                spec = {
                    "user": user["username"],
                    "uid": user.get("uid", ""),
                    "groups": user.get("groups", []),
                    "extra": user.get("extra", {}),
                    "resourceAttributes": {"group": "nodewarden.io", "resource": "nodes", "verb": "get"},
                }
                review = await ours.create(ACCESS_REVIEWS.path(), _asked(ACCESS_REVIEWS.api_version, ACCESS_REVIEWS.kind, spec))
        except ApplicationError as error:
            raise SilentError(f"the cluster {cluster} does not say who asks: {error.message}") from error
        name = str(user["username"])
        if review.get("status", {}).get("allowed") is not True:
            raise ForbiddenError(f"{name} may not look: that is the verb get on nodes.nodewarden.io")
        own = self._own(token)
        speaker = Speaker(own, otherwise="", complain=lambda _: None, insists=True)
        return Caller(name=name, warden=Nodewarden(self._warden.client, speaker=speaker, page=self._warden.page), opening=own)

    @staticmethod
    async def _user(ours: ClusterConnection, token: str) -> dict[str, Any]:
        review = await ours.create(TOKEN_REVIEWS.path(), _asked(TOKEN_REVIEWS.api_version, TOKEN_REVIEWS.kind, {"token": token}))
        status = review.get("status", {})
        if status.get("authenticated") is not True or not status.get("user", {}).get("username"):
            raise UnknownCallerError("the cluster does not know this token, or it has ended")
        user: dict[str, Any] = status["user"]
        return user

    def _own(self, token: str) -> Opening:
        @asynccontextmanager
        async def opened(cluster: str) -> AsyncIterator[ClusterConnection | None]:
            async with self._opening(cluster) as ours:
                if ours is None:
                    yield None
                    return
                async with ours.bearing(token) as theirs:
                    yield theirs

        return opened


def _network(address: str) -> str:
    """What one stranger has of addresses: all of a network of IPv6."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if isinstance(found, IPv4Address) or found.ipv4_mapped is not None:
        return address
    return str(ip_network((found, 64), strict=False))


def address_of(request: Request) -> str:
    """As the connection has it: a header of a proxy is not believed, so that all who come by one share its address."""
    return request.client.host if request.client is not None else ""


def _asked(api_version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "spec": spec}


def from_elsewhere(request: Request) -> str:
    """Why a request that changes something is taken for another page's doing, "" where it is not."""
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if site is not None:
        return "" if site == "same-origin" else f"expected a request of this page, got one of another ({site})"
    if origin is not None and urlsplit(origin).netloc != request.headers.get("Host", ""):
        return f"expected a request of this page, got one of {origin}"
    return ""


async def those_open_to(
    keeper: Doorkeeper, token_of: Callable[[str], str], clusters: tuple[str, ...], address: str
) -> tuple[str, ...]:
    """The clusters that the caller may look at, each asked about its own token. Raises what the first one says where there is
    none."""
    found = await asyncio.gather(*(keeper.caller(token_of(each), each, address) for each in clusters), return_exceptions=True)
    admitted = tuple(name for name, each in zip(clusters, found, strict=True) if isinstance(each, Caller))
    if not admitted and (refused := next((each for each in found if isinstance(each, BaseException)), None)) is not None:
        raise refused
    return admitted


# A browser's session: its token, sealed into a cookie. No process remembers it, and each with the same keys knows it.

OF_ONE = re.compile(r"/(?:c|api/v1/clusters)/([^/]+)")
LASTS = timedelta(hours=8)
"""A session, at most; the token in it may end earlier, and ends it then."""
COOKIE = "__Host-nodewarden"
"""Which browsers keep for TLS only; for the loopback see `Sessions.cookie`."""
MOST_BYTES = 4096
"""Of a cookie, name and value: browsers drop one that is longer, and say nothing (RFC 6265, 6.1)."""


class TokenTooLongError(RequestError):
    """No browser would keep a cookie with this token."""


class Sessions:
    """keys: the first seals, all open; None: one of this process's own. Raises ValueError without one, or if one is too short.
    local: whether browsers come over the loopback, where nothing speaks TLS. apart: whether each token is for one cluster, of
    several."""

    local = False
    apart = False

    def __init__(self, keys: Sequence[bytes] | None = None) -> None:
        known = [secrets.token_bytes(LEAST_BYTES)] if keys is None else keys
        if not known or any(len(key) < LEAST_BYTES for key in known):
            raise ValueError(f"expected at least one key, each of at least {LEAST_BYTES} bytes")
        self._seal = MultiFernet([Fernet(base64.urlsafe_b64encode(_derived(key, "session"))) for key in known])
        self._form_keys = [_derived(key, "form") for key in known]

    def cookie(self, request: Request, cluster: str = "") -> str:
        """Its name: for each port of the loopback another one, since browsers send all of them to each. cluster: which a token is
        for that no other is shown; "": as the request has it."""
        if self.local:
            return f"nodewarden-{request.scope['server'][1]}"
        return f"{COOKIE}-{cluster or cluster_in(request.url.path)}".removesuffix("-") if self.apart else COOKIE

    def begin(self, token: str, name: str = COOKIE) -> str:
        """What the cookie of that name says. Raises TokenTooLongError."""
        # A token is base64 for the most part, and so is what seals it: packed before, the cookie is hardly longer than the token.
        value = self._seal.encrypt(zlib.compress(token.encode(), 9)).decode()
        if len(name) + 1 + len(value) > MOST_BYTES:
            raise TokenTooLongError(
                f"expected a token that fits into a cookie, got one of {len(token)} bytes: ask for one that names fewer groups"
            )
        return value

    def token_of(self, request: Request, cluster: str = "") -> str:
        """Of the Authorization header, else of the session that the cookie holds; "" where there is neither, or it is over."""
        if token := borne(request):
            return token
        sealed = request.cookies.get(self.cookie(request, cluster), "").encode()
        try:
            return zlib.decompress(self._seal.decrypt(sealed, ttl=int(LASTS.total_seconds()))).decode()
        except InvalidToken:
            return ""

    def form_token(self, request: Request) -> str:
        """What a form of ours carries back: another page can't know it."""
        return self._form_token(self._form_keys[0], request)

    def is_ours(self, request: Request, shown: str) -> bool:
        """Whether a form that is sent was made for the same session, here or where the same keys are."""
        return any(hmac.compare_digest(self._form_token(key, request).encode(), shown.encode()) for key in self._form_keys)

    def _form_token(self, key: bytes, request: Request) -> str:
        # A proxy may change the token of its header between a form and its answer, and the name in it stays.
        caller: Caller | None = getattr(request.state, "caller", None)
        own = request.cookies.get(self.cookie(request), "")
        owner = f"bearer {caller.name}" if borne(request) and caller is not None else own
        return hmac.new(key, owner.encode(), hashlib.sha256).hexdigest()


def cluster_in(path: str) -> str:
    """The cluster that a path names, "" for none."""
    named = OF_ONE.match(path)
    return unquote(named[1]) if named else ""


def borne(request: Request) -> str:
    """The token of the Authorization header, a program's or that of a proxy; "" where there is none."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _derived(key: bytes, purpose: str) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=f"nodewarden page {purpose}".encode()).derive(key)
