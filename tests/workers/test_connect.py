"""Reaching Temporal: patience while it is not up, and at once a reason for what patience cannot mend."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from pathlib import Path

import pytest

from workers.configuration.process_settings import TemporalSettings
from workers.connect import connect
from workers.embedded.server import free_ports
from workers.errors import NamespaceMissingError, SettingsError, TemporalUnreachableError
from workers.plugin import PLUGIN

SOON = timedelta(seconds=1)


def nowhere() -> TemporalSettings:
    (port,) = free_ports("127.0.0.1", 1)
    return TemporalSettings(address=f"127.0.0.1:{port}")


async def test_a_client_comes_with_our_converter(server: str) -> None:
    client = await connect(TemporalSettings(address=server), patience=SOON)
    assert client.data_converter is PLUGIN.data_converter  # nothing is encrypted where no keys are named


async def test_patience_that_runs_out_names_the_address() -> None:
    settings = nowhere()
    with pytest.raises(TemporalUnreachableError, match=f"cannot reach Temporal at {settings.address}: Connection refused$"):
        await connect(settings, patience=timedelta(milliseconds=300))


async def test_a_worker_waits_for_a_service_that_is_not_up_yet(server: str, caplog: pytest.LogCaptureFixture) -> None:
    """Without patience given it waits for ever, and says so."""
    settings = nowhere()
    with caplog.at_level(logging.WARNING, logger="workers.connect"):
        waiting = asyncio.create_task(connect(settings))
        async with asyncio.timeout(20):
            while not caplog.records:
                await asyncio.sleep(0.02)
        forward = await asyncio.start_server(_forward_to(server), "127.0.0.1", int(settings.address.rpartition(":")[2]))
        async with forward, asyncio.timeout(30):
            client = await waiting
            assert client.namespace == "default"
    assert "waiting for Temporal at" in caplog.text


def _forward_to(server: str):  # type: ignore[no-untyped-def]
    host, _, port = server.rpartition(":")

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, int(port))
        await asyncio.gather(pump(reader, back), pump(there, writer), return_exceptions=True)

    return forward


async def test_a_namespace_that_does_not_exist_is_no_reason_to_wait(server: str) -> None:
    with pytest.raises(NamespaceMissingError, match="has no namespace 'elsewhere'; create it"):
        await connect(TemporalSettings(address=server, namespace="elsewhere"))


async def test_a_certificate_that_cannot_be_read_names_its_key(tmp_path: Path) -> None:
    settings = TemporalSettings(address="127.0.0.1:1", tls_server_ca_file=tmp_path / "ca.pem")
    with pytest.raises(SettingsError, match=r"temporal\.tls_server_ca_file: expected a readable file"):
        await connect(settings)


async def test_a_key_file_is_read_without_its_line_end(tmp_path: Path, server: str) -> None:
    """A header must not contain a line end; editors add one to files."""
    key = tmp_path / "key"
    key.write_text("key-material\n", encoding="utf-8")
    client = await connect(TemporalSettings(address=server, api_key_file=key, tls=False), patience=SOON)
    assert client.service_client.config.api_key == "key-material"
