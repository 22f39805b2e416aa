"""How EC2's query API looks on the wire: forms in, XML out, and a signature over every request.

moto looks at no signature; a client that signs wrongly, or that changes a request after signing it, would never be noticed there.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from aiohttp import web
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials

NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
REQUEST_ID = "00000000-0000-4000-8000-000000000000"

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<id>[^/]+)/[0-9]{8}/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request, "
    r"SignedHeaders=(?P<headers>[^,]+), Signature=(?P<signature>[0-9a-f]{64})"
)


class RefusedError(Exception):
    """EC2 says no: its word for it, the status, and a sentence."""

    def __init__(self, code: str, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.status = status

    def answer(self) -> web.Response:
        """As EC2 words it."""
        text = (
            f'<?xml version="1.0" encoding="UTF-8"?>\n<Response><Errors><Error><Code>{escape(self.code)}</Code>'
            f"<Message>{escape(str(self))}</Message></Error></Errors><RequestID>{REQUEST_ID}</RequestID></Response>"
        )
        return web.Response(text=text, status=self.status, content_type="text/xml")


def form_of(body: bytes) -> dict[str, str]:
    """The parameters; lists are numbered (`InstanceId.1`)."""
    return dict(parse_qsl(body.decode(), keep_blank_values=True))


def listed(form: Mapping[str, str], name: str) -> list[str]:
    """The values of a numbered list, in the order of their numbers."""
    numbers = sorted(int(key.rpartition(".")[2]) for key in form if re.fullmatch(rf"{name}\.[0-9]+", key))
    return [form[f"{name}.{number}"] for number in numbers]


def answer(action: str, body: str) -> web.Response:
    """An answer with this XML in it."""
    text = (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<{action}Response xmlns="{NAMESPACE}">'
        f"<requestId>{REQUEST_ID}</requestId>{body}</{action}Response>"
    )
    return web.Response(text=text, content_type="text/xml")


def state_change(instance: str, current: tuple[str, int], previous: tuple[str, int]) -> str:
    """The XML of one instance in an `instancesSet`."""
    states = f"{_state('currentState', current)}{_state('previousState', previous)}"
    return f"<item><instanceId>{instance}</instanceId>{states}</item>"


def _state(name: str, state: tuple[str, int]) -> str:
    return f"<{name}><code>{state[1]}</code><name>{state[0]}</name></{name}>"


def check_signature(request: web.Request, body: bytes, keys: Mapping[str, str], token: str | None) -> None:
    """Refuse a request that is not signed with one of these keys (id: secret). token: what comes with them, None for none."""
    match = _AUTHORIZATION.fullmatch(request.headers.get("Authorization", ""))
    if match is None:
        raise RefusedError("MissingAuthenticationToken", "Request is missing Authentication Token", status=403)
    if match["id"] not in keys:
        # What real services echo differs; this one says back what it was told, so that those who repeat it are found out.
        raise RefusedError("AuthFailure", f"not able to validate the provided access credentials {match['id']}", status=401)
    if request.headers.get("X-Amz-Security-Token") != token:
        raise RefusedError("RequestExpired", f"Request has expired: {request.headers.get('X-Amz-Security-Token')}", status=400)
    signed = {name: request.headers[name] for name in match["headers"].split(";") if name in request.headers}
    repeated: Any = AWSRequest(method=request.method, url=str(request.url), headers=signed, data=body)
    repeated.context["timestamp"] = request.headers["X-Amz-Date"]
    signer = SigV4Auth(ReadOnlyCredentials(match["id"], keys[match["id"]], None), match["service"], match["region"])
    canonical = signer.canonical_request(repeated)
    if not hmac.compare_digest(signer.signature(signer.string_to_sign(repeated, canonical), repeated), match["signature"]):
        text = f"The request signature we calculated does not match. The Canonical String should have been {canonical}"
        raise RefusedError("SignatureDoesNotMatch", text, status=403)
