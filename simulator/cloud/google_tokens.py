"""Google's token endpoint as a service account meets it: a signed assertion in, a bearer token out, or `invalid_grant`.

The signature is really checked, so that a key which is not the account's is refused the way Google refuses it.
"""

from __future__ import annotations

import base64
import json
import secrets
import time
from functools import cache
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
AUDIENCE = "https://oauth2.googleapis.com/token"
"""What Google's library signs for, whatever the account's token_uri."""


class RefusedGrantError(Exception):
    """The assertion gets no token; the text is what Google says of it."""


@cache
def _key(name: str) -> rsa.RSAPrivateKey:
    """One key per account and process: making one takes a noticeable time."""
    del name
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class TokenIssuer:
    """Issues tokens to the service accounts of one simulated cloud, and knows the good ones."""

    def __init__(self) -> None:
        self.lifetime = 3600.0
        self.mark = ""
        """What each token begins with, after what all of Google's do."""
        self._accounts: dict[str, rsa.RSAPublicKey] = {}
        self._tokens: dict[str, tuple[str, float]] = {}

    def key_file(self, email: str, token_uri: str, *, signed_by: str | None = None) -> str:
        """The JSON key of an account, made known here. signed_by: with the private key of that account in it, so it is wrong."""
        self._accounts.setdefault(email, _key(email).public_key())
        pem = _key(signed_by or email).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return json.dumps(
            {
                "type": "service_account",
                "project_id": email.partition("@")[2].partition(".")[0],
                "private_key_id": secrets.token_hex(20),
                "private_key": pem.decode(),
                "client_email": email,
                "client_id": "100000000000000000000",
                "token_uri": token_uri,
            }
        )

    def grant(self, grant_type: str, assertion: str, token_uri: str) -> dict[str, Any]:
        """The answer to a request for a token. Raises RefusedGrantError."""
        if grant_type != GRANT:
            raise RefusedGrantError("Invalid grant_type")
        claims = self._checked(assertion)
        if claims.get("aud") not in {token_uri, AUDIENCE}:
            raise RefusedGrantError("Invalid JWT: wrong audience")
        if not claims.get("iat", 0) - 60 <= time.time() <= claims.get("exp", 0):
            raise RefusedGrantError("Invalid JWT: Token must be a short-lived token")
        token = f"ya29.{self.mark}{secrets.token_urlsafe(32)}"
        self._tokens[token] = (claims["iss"], time.time() + self.lifetime)
        return {"access_token": token, "expires_in": int(self.lifetime), "token_type": "Bearer"}

    def account(self, authorization: str) -> str | None:
        """The account of the token in an Authorization header, None where it is no good one."""
        email, ends = self._tokens.get(authorization.removeprefix("Bearer "), ("", 0.0))
        return email if authorization.startswith("Bearer ") and time.time() < ends else None

    def revoke_all(self) -> None:
        """No token that was issued is good any more."""
        self._tokens.clear()

    def _checked(self, assertion: str) -> dict[str, Any]:
        try:
            signed, _, signature = assertion.rpartition(".")
            claims: dict[str, Any] = json.loads(_decoded(signed.partition(".")[2]))
            public_key = self._accounts[claims["iss"]]
        except (ValueError, KeyError):
            raise RefusedGrantError("Invalid grant: account not found") from None
        try:
            public_key.verify(_decoded(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        except InvalidSignature:
            raise RefusedGrantError("Invalid JWT Signature.") from None
        return claims


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
