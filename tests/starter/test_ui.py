"""`nodewarden ui` elsewhere than on the loopback: by TLS, with a certificate that may be renewed, or behind a proxy."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import yaml

from simulator.api.access.certificates import Certificates, issue
from starter.commands.servers import tls_of
from starter.web.app import serving
from starter.web.views import Views
from tests.starter.builders import nodewarden as typed
from tests.starter.process import nodewarden
from tests.unlocked import Unlocked

EVERYWHERE = "0.0.0.0"  # noqa: S104 - what is to be refused


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    return tmp_path / "tls.pem"


@pytest.fixture
def first(pem: Path) -> Certificates:
    made = issue("127.0.0.1")
    pem.write_bytes(made.server_pem)
    return made


@pytest.fixture
async def url(pem: Path, first: Certificates) -> AsyncIterator[str]:
    views = Views(None, ("prod",))  # type: ignore[arg-type] # nobody is asked anything
    async with serving(views, host="127.0.0.1", port=0, keeper=Unlocked(views.warden), tls=tls_of(pem, pem)) as address:
        yield address


async def answered(url: str, trusted: Certificates) -> int:
    trust = ssl.create_default_context(cadata=trusted.authority_pem.decode())
    async with aiohttp.ClientSession() as client, client.get(f"{url}healthz", ssl=trust) as answer:
        return answer.status


async def test_a_browser_that_trusts_the_authority_is_answered_and_no_other(url: str, first: Certificates) -> None:
    assert url.startswith("https://")
    assert await answered(url, first) == 200
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await answered(url, issue("127.0.0.1"))
    async with aiohttp.ClientSession() as client:
        with pytest.raises(aiohttp.ClientError):
            await client.get(url.replace("https", "http"))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"], ids=["without a name", "by its name"])
async def test_a_renewed_certificate_is_shown_without_a_restart(url: str, first: Certificates, pem: Path, host: str) -> None:
    at = url.replace("127.0.0.1", host)
    assert await answered(at, first) == 200
    second = issue("127.0.0.1")
    fresh = pem.with_name("fresh")
    fresh.write_bytes(second.server_pem)
    fresh.rename(pem)  # as a kubelet does: all at once
    assert await answered(at, second) == 200
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await answered(at, first)


async def test_a_certificate_that_is_half_written_does_not_end_the_old_one(url: str, first: Certificates, pem: Path) -> None:
    await asyncio.to_thread(pem.write_bytes, first.server_pem[:40])
    assert await answered(url, first) == 200
    await asyncio.to_thread(pem.unlink)
    assert await answered(url, first) == 200


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--host", EVERYWHERE], "--host: expected the loopback, or --tls-cert and --tls-key, or --behind-proxy; got 0.0.0.0"),
        (["--host", EVERYWHERE, "--tls-cert", "tls.pem"], "--tls-cert and --tls-key: expected both or neither"),
        (["--tls-cert", "none.pem", "--tls-key", "none.pem"], "expected a certificate and its key, as PEM files"),
        (["--behind-proxy", "--session-keys", "none"], "--session-keys: none can't be read"),
        (["--behind-proxy", "--session-keys", "short"], "--session-keys: short: expected at least one key, each of at least 32"),
    ],
)
async def test_a_listener_that_is_not_safe_is_refused_before_anything_is_asked(
    options: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever stands between would read tokens."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short").write_text("short\n")
    result = await typed("ui", *options)
    assert (result.exit_code, message in result.output) == (2, True), result.output


async def test_several_clusters_are_one_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is asked to choose one: what is missing here is Temporal."""
    monkeypatch.chdir(tmp_path)
    clusters = {"north": {"in_cluster": True}, "south": {"kubeconfig": str(tmp_path / "config")}}
    settings = {"clusters": clusters, "temporal": {"address": "127.0.0.1:1"}}
    (tmp_path / "nodewarden.yaml").write_text(yaml.safe_dump(settings))
    async with nodewarden("--config", str(tmp_path / "nodewarden.yaml"), "ui") as ui:
        await ui.says("Temporal")
        assert await ui.ended() == 5
