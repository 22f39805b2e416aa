"""The remote codec: answers Temporal's UI and command, and nobody else who reaches it."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from temporalio.api.common.v1 import Payload
from yarl import URL

from tests.starter.builders import nodewarden as typed
from tests.starter.process import nodewarden
from workers.payloads.codec_server import CodecServer
from workers.payloads.encryption import Encryption

KEY = b"k" * 32
UI = "https://temporal.example.org"
STRANGER = "https://elsewhere.example.org"
TOKEN = "t" * 32
EVERYWHERE = "0.0.0.0"  # noqa: S104 - what is to be refused
PLAIN = {"metadata": {"encoding": base64.b64encode(b"json/plain").decode()}, "data": base64.b64encode(b'"node-7"').decode()}


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with CodecServer(Encryption([KEY]), namespace="prod", origins=[UI]).listening("127.0.0.1", 0) as url:
        yield url


async def ask(url: str, body: Any, method: str = "POST", *, tls: Any = True, **headers: str) -> tuple[int, str, dict[str, str]]:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    data = body if isinstance(body, str) else json.dumps(body)
    async with aiohttp.ClientSession() as session, session.request(method, url, data=data, headers=sent, ssl=tls) as answer:
        return answer.status, await answer.text(), dict(answer.headers)


async def test_what_it_encodes_it_decodes(url: str) -> None:
    status, encoded, _ = await ask(f"{url}/encode", {"payloads": [PLAIN]}, X_Namespace="prod")
    assert status == 200
    assert "node-7" not in str(base64.b64decode(json.loads(encoded)["payloads"][0]["data"]))
    status, decoded, _ = await ask(f"{url}/decode", encoded, X_Namespace="prod")
    assert (status, json.loads(decoded)) == (200, {"payloads": [PLAIN]})


@pytest.mark.parametrize("body", ["", "3", '{"payloads": 3}', '{"payloads": [{"metadata": 3}]}', '{"other": []}'])
async def test_what_is_no_list_of_payloads_is_refused(url: str, body: str) -> None:
    status, text, _ = await ask(f"{url}/decode", body)
    assert (status, text.startswith("expected ")) == (400, True)


async def test_without_a_token_it_answers_only_who_has_its_url(url: str) -> None:
    """S51: every user of the host can connect to the loopback, and a program names no origin."""
    origin = URL(url).origin()
    for path in ("/decode", "/encode", "/guessed/decode", "//decode"):
        for method in ("POST", "OPTIONS"):
            status, told, _ = await ask(f"{origin}{path}", {"payloads": [PLAIN]}, method, Origin=UI)
            assert (status, "node-7" in told) == (404, False), (path, method)
    async with CodecServer(Encryption([KEY]), namespace="prod").listening("127.0.0.1", 0) as another:
        assert URL(another).path != URL(url).path


async def test_a_refusal_is_logged_without_the_secret_path(url: str, caplog: pytest.LogCaptureFixture) -> None:
    assert (await ask(f"{url}/decode", {"payloads": []}, Origin=STRANGER))[0] == 403
    assert "refused /decode of " in caplog.text
    assert URL(url).path not in caplog.text


async def test_a_key_that_is_not_here_is_told(url: str) -> None:
    (sealed,) = await Encryption([b"x" * 32]).encode([Payload(data=b"1")])
    metadata = {name: base64.b64encode(value).decode() for name, value in sealed.metadata.items()}
    body = {"payloads": [{"metadata": metadata, "data": base64.b64encode(sealed.data).decode()}]}
    status, text, headers = await ask(f"{url}/decode", body, Origin=UI)
    assert status == 400
    assert "temporal.payload_keys_file" in text
    assert headers["Access-Control-Allow-Origin"] == UI


async def test_a_page_of_the_ui_may_ask_and_a_page_of_another_origin_may_not(url: str) -> None:
    """A page anywhere reaches the loopback of whoever looks at it."""
    asked = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "content-type,x-namespace"}
    status, _, headers = await ask(f"{url}/decode", "", "OPTIONS", Origin=UI, **asked)
    assert (status, headers["Access-Control-Allow-Origin"]) == (204, UI)
    assert "X-Namespace" in headers["Access-Control-Allow-Headers"]
    status, _, headers = await ask(f"{url}/decode", {"payloads": [PLAIN]}, Origin=UI)
    assert (status, headers["Access-Control-Allow-Origin"]) == (200, UI)
    for method in ("OPTIONS", "POST"):
        for origin in (STRANGER, "null", f"{UI}.example.org"):
            status, text, headers = await ask(f"{url}/decode", {"payloads": [PLAIN]}, method, Origin=origin)
            assert status == 403
            assert "node-7" not in text
            assert "Access-Control-Allow-Origin" not in headers


async def test_another_namespace_is_refused(url: str) -> None:
    assert (await ask(f"{url}/decode", {"payloads": [PLAIN]}, X_Namespace="other"))[0] == 403


async def test_where_there_is_a_token_it_is_asked_for() -> None:
    server = CodecServer(Encryption([KEY]), namespace="prod", origins=[UI], token=TOKEN)
    async with server.listening("127.0.0.1", 0) as url:
        for header in ({}, {"Authorization": "Bearer "}, {"Authorization": f"Bearer {TOKEN}x"}, {"Authorization": TOKEN}):
            assert (await ask(f"{url}/decode", {"payloads": [PLAIN]}, **header))[0] == 401
        assert (await ask(f"{url}/decode", {"payloads": [PLAIN]}, Authorization=f"Bearer {TOKEN}"))[0] == 200


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """Of 127.0.0.1, signed by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "codec")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(days=1))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
    files = tmp_path / "cert.pem", tmp_path / "key.pem"
    files[0].write_bytes(builder.sign(key, SHA256()).public_bytes(Encoding.PEM))
    files[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return files


@pytest.fixture
def keys(clean: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = clean / "payload-keys"
    file.write_bytes(KEY)
    monkeypatch.setenv("NODEWARDEN_TEMPORAL__PAYLOAD_KEYS_FILE", str(file))
    return file


@pytest.mark.parametrize("left_out", ["--tls-cert", "--tls-key", "--token-file"])
async def test_elsewhere_than_on_the_loopback_it_wants_tls_and_a_token(
    keys: Path, certificate: tuple[Path, Path], left_out: str
) -> None:
    (keys.parent / "token").write_text(TOKEN)
    options = {"--tls-cert": certificate[0], "--tls-key": certificate[1], "--token-file": keys.parent / "token"}
    given = [str(each) for name, file in options.items() if name != left_out for each in (name, file)]
    result = await typed("codec", "serve", "--host", EVERYWHERE, "--port", "0", *given)
    assert result.exit_code == 2
    assert "--host: expected the loopback, or --tls-cert, --tls-key and --token-file" in result.output


async def test_with_both_it_serves_there(keys: Path, certificate: tuple[Path, Path]) -> None:
    (keys.parent / "token").write_text(f"{TOKEN}\n")
    options = ["--tls-cert", str(certificate[0]), "--tls-key", str(certificate[1]), "--token-file", str(keys.parent / "token")]
    async with nodewarden("codec", "serve", "--host", EVERYWHERE, "--port", "0", *options) as serving:
        url = (await serving.says("codec https://")).split()[1].rstrip(",").replace(EVERYWHERE, "127.0.0.1")
        trusting = ssl.create_default_context(cafile=str(certificate[0]))
        assert (await ask(f"{url}/decode", {"payloads": [PLAIN]}, tls=trusting))[0] == 401
        told = await ask(f"{url}/decode", {"payloads": [PLAIN]}, tls=trusting, Authorization=f"Bearer {TOKEN}")
        assert told[0] == 200


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--ui-origin", "https://temporal.example.org/"], "--ui-origin: expected scheme, host and port"),
        (["--ui-origin", "*"], "--ui-origin: expected scheme, host and port"),
        (["--token-file", "short"], "at least 32 characters"),
        (["--tls-cert", "short"], "expected both or neither"),
        (["--tls-cert", "short", "--tls-key", "short"], "expected a certificate and its key"),
    ],
)
async def test_what_it_can_not_use_is_refused(keys: Path, arguments: list[str], told: str) -> None:
    (keys.parent / "short").write_text("too short")
    result = await typed("codec", "serve", "--port", "0", *arguments)
    assert (result.exit_code, told in " ".join(result.output.split())) == (2, True), result.output


async def test_without_keys_there_is_nothing_to_serve(clean: Path) -> None:
    result = await typed("codec", "serve")
    assert result.exit_code == 2
    assert "temporal.payload_keys_file or temporal.payload_keys_secret: expected one of them" in result.output
