"""A browser's session: its token, sealed into a cookie. No process remembers it, and each with the same keys knows it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import zlib
from collections.abc import Sequence
from datetime import timedelta
from urllib.parse import unquote

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from fastapi import Request

from activities.keyring import LEAST_BYTES
from starter.errors import RequestError
from starter.web.auth import Caller

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
        told = f"bearer {caller.name}" if borne(request) and caller is not None else own
        return hmac.new(key, told.encode(), hashlib.sha256).hexdigest()


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
