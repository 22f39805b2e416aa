"""The HTTP beneath a Redfish session: what `redfish.py` lets sushy's resources ask, and the one POST of a command.

Not sushy's `Connector`, which sends a POST up to three times where the answer is lost, turns a redirected one into a GET, and
loads
200 ms of another client. Here:

- A command goes out as one POST on a connection made for it, once. No redirect of it is followed.
- Credentials go out to the configured scheme, host and port alone, whatever links, redirects and proxies say. No session is
  opened that could be left over: services have room for few.
- An answer has an end: what is longer than any description of a machine is not read.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import re
import ssl
from typing import Any
from urllib.parse import urljoin, urlsplit

from activities.power.bmc.child import OperationError, announce_command, credentials_in, write_line
from activities.power.redaction import excerpt

ANSWER_BYTES = 1024 * 1024
REDIRECTS = 3

PORTS = {"https": 443, "http": 80}

PATH = re.compile(r"[!-~]+")

# Answers that say "not done" for certain. Other refusals of a command (4xx) depend on what the service says with them, and a
# server's error (5xx) leaves open whether it was carried out.
REFUSALS = {
    401: ("Unauthorized", "the service refused the user or the password"),
    403: ("Unauthorized", "the service user's privilege is too low for this"),
    405: ("NotSupported", "the service does not take this"),
    429: ("RateLimited", "the service has had too many requests"),
    501: ("NotSupported", "the service does not support this"),
    503: ("Transient", "the service is not available for the moment"),
}


class RedfishResponse:
    """What came back, in the form that sushy's resources read."""

    def __init__(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.status_code = status
        self.headers = headers
        self.content = content

    def json(self) -> dict[str, Any]:
        try:
            document = json.loads(self.content)
        except (ValueError, RecursionError) as error:
            raise OperationError("Transient", "the service answered with something that is not JSON") from error
        if not isinstance(document, dict):
            raise OperationError("Transient", "the service answered with something that is not a JSON object")
        return document

    def error_parts(self) -> tuple[str, str]:
        """Message ids and the text for people of an error in the standard's form; "" where it has none."""
        try:
            error = self.json().get("error")
        except OperationError:
            return "", ""
        if not isinstance(error, dict):
            return "", ""
        extended = error.get("@Message.ExtendedInfo")
        messages = [error, *(part for part in (extended if isinstance(extended, list) else [extended]) if isinstance(part, dict))]
        ids = " ".join(str(message.get("MessageId") or message.get("code") or "") for message in messages)
        texts = [str(text) for message in messages if (text := message.get("Message") or message.get("message"))]
        return ids, texts[-1] if texts else ""


class Service:
    """The service as sushy's resources ask it. A connection per request: services are known to choke on ones kept open."""

    def __init__(self, device: dict[str, Any]) -> None:
        self._fingerprints = device["fingerprints"]
        self._origin = (device["scheme"], device["host"], device["port"])
        host = f"[{device['host']}]" if ":" in device["host"] else device["host"]
        self._url = f"{device['scheme']}://{host}:{device['port']}"
        self._headers = {
            "Accept": "application/json",
            "Authorization": f"Basic {_token(device)}",
            "Connection": "close",
            "OData-Version": "4.0",
            "User-Agent": "nodewarden",
        }
        self._secrets = credentials_in(device)
        self._tls = trust(device) if device["scheme"] == "https" else None

    def get(self, path: str = "", **_: Any) -> RedfishResponse:
        """Ask for a resource; sushy's name for it."""
        path = self._within(path)
        for _attempt in range(REDIRECTS + 1):
            answer = self._ask(path)
            if not 300 <= answer.status_code < 400:
                break
            path = self._within(answer.headers.get("location", ""), base=path)
        if answer.status_code in REFUSALS:
            kind, reason = REFUSALS[answer.status_code]
        elif answer.status_code in {404, 410}:
            kind, reason = "InvalidConfig", f"the service has no {self.excerpt(path)}"
        elif 300 <= answer.status_code < 400:
            kind, reason = "Transient", f"the service redirects {self.excerpt(path)} without end"
        elif answer.status_code != 200:
            kind, reason = "Transient", "the service reports an error"
        else:
            return answer
        raise OperationError(kind, self.refusal_text(answer, reason))

    def excerpt(self, value: object) -> str:
        """What the service said, fit to be repeated: on one line, with an end, and without credentials that it may repeat."""
        return excerpt(str(value), self._secrets)

    def refusal_text(self, answer: RedfishResponse, reason: str) -> str:
        """The reason of a refusal, with the service's own words where there are any."""
        _, text = answer.error_parts()
        return f"{reason} (HTTP {answer.status_code}{f': {self.excerpt(text)}' if text else ''})"

    def post_once(self, asked: dict[str, Any], path: str, document: dict[str, str]) -> RedfishResponse:
        """Send a command, and whatever comes of it never send it again."""
        path = self._within(path)
        content = json.dumps(document).encode()
        connection = self._connect()
        connection.putrequest("POST", path)
        for name, value in {**self._headers, "Content-Type": "application/json", "Content-Length": str(len(content))}.items():
            connection.putheader(name, value)
        announce_command(asked)
        connection.endheaders(content)
        response = connection.getresponse()
        if response.status < 300:
            # Accepted; whatever else it would say is not worth waiting for, since a wait in vain would make it ambiguous.
            return RedfishResponse(response.status, {}, b"")
        try:
            return RedfishResponse(response.status, {}, response.read(ANSWER_BYTES))
        except (OSError, http.client.HTTPException):
            return RedfishResponse(response.status, {}, b"")  # the number alone says what it did

    def _ask(self, path: str) -> RedfishResponse:
        connection = self._connect()
        try:
            connection.request("GET", path, headers=self._headers)
            response = connection.getresponse()
            content = response.read(ANSWER_BYTES + 1)
        except OSError as error:
            raise OperationError("Unreachable", f"the connection broke before the answer ({reason_of(error)})") from error
        except http.client.HTTPException as error:
            raise OperationError("Transient", f"the service does not speak HTTP as it should ({type(error).__name__})") from error
        finally:
            connection.close()
        if len(content) > ANSWER_BYTES:
            raise OperationError("Transient", f"the service answered with more than {ANSWER_BYTES} bytes")
        return RedfishResponse(response.status, {name.lower(): value for name, value in response.getheaders()}, content)

    def _connect(self) -> http.client.HTTPConnection:
        _, host, port = self._origin
        connection = (
            http.client.HTTPConnection(host, port)
            if self._tls is None
            else http.client.HTTPSConnection(host, port, context=self._tls)
        )
        try:
            connection.connect()
        except ssl.SSLCertVerificationError as error:
            message = f"its certificate is not trusted ({error.verify_message}): expected one that ca-file vouches for"
            raise OperationError("InvalidConfig", message) from error
        except ssl.SSLError as error:
            raise OperationError("Transient", f"the TLS handshake failed ({reason_of(error)})") from error
        except OSError as error:
            raise OperationError("Unreachable", f"no connection to the service ({reason_of(error)})") from error
        self._refuse_another_certificate(connection)
        write_line(stage="reached")
        return connection

    def _refuse_another_certificate(self, connection: http.client.HTTPConnection) -> None:
        """A pin stands in for the authorities: before a byte of a request, on every connection."""
        expected = self._fingerprints
        if not expected:
            return
        assert isinstance(connection.sock, ssl.SSLSocket)
        found = hashlib.sha256(connection.sock.getpeercert(binary_form=True) or b"").hexdigest()
        if found not in expected:
            connection.close()
            raise OperationError(
                "InvalidConfig",
                f"its certificate is not the pinned one (tls-fingerprint): the service shows {found}; nothing was sent",
            )

    def _within(self, reference: Any, base: str = "") -> str:
        """The path of a link, which must stay with the service that the credentials are for."""
        try:
            link = urlsplit(urljoin(self._url + base, reference))
            origin = (link.scheme, link.hostname, link.port or PORTS.get(link.scheme))
        except (ValueError, TypeError, AttributeError) as error:
            raise OperationError("Transient", "the service gave a link that is none") from error
        if origin != self._origin:
            raise OperationError(
                "InvalidConfig",
                f"the service points to {self.excerpt(f'{link.scheme}://{link.netloc}')}, which is not {self._url}",
            )
        path = f"{link.path or '/'}?{link.query}" if link.query else link.path or "/"
        if PATH.fullmatch(path) is None:
            raise OperationError("Transient", "the service gave a link that is none")
        return path


def trust(device: dict[str, Any]) -> ssl.SSLContext:
    """Which certificates to trust: those of `ca_file`, or of the operating system; at first any, where that was asked for or the
    certificate is compared with a pin."""
    try:
        context = ssl.create_default_context(cafile=device["ca_file"])
    except (OSError, ValueError) as error:
        raise OperationError("InvalidConfig", f"ca-file {device['ca_file']} cannot be used ({reason_of(error)})") from error
    if device["fingerprints"] or not device["verify"]:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def reason_of(error: Exception) -> str:
    """What the operating system or OpenSSL says, without what was sent."""
    return str(getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__)


def _token(device: dict[str, Any]) -> str:
    return base64.b64encode(f"{device['username']}:{device['password']}".encode()).decode()
