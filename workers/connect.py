"""Reaching Temporal: one client with our plugin, patience while the service is not up yet.

The SDK's own connect fails at once on a closed port; workers start before their service often enough that waiting is theirs
by default, while a command at a terminal gives up after seconds. A worker that serves asks again and again whether it still
answers. Which address that is: `workers/configuration/settings.py`.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from textwrap import shorten
from typing import Any

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client, Plugin, TLSConfig
from temporalio.service import RPCError, RPCStatusCode

from activities.contracts import metrics
from workers.configuration.process_settings import TemporalSettings
from workers.deployment_keys import Clusters, encryption_of, no_clusters
from workers.errors import NamespaceMissingError, SettingsError, TemporalUnreachableError
from workers.payloads.converter import converter_with
from workers.payloads.encryption import Encryption
from workers.runtime import runtime

_log = logging.getLogger(__name__)

FIRST_PAUSE = timedelta(milliseconds=100)
LONGEST_PAUSE = timedelta(seconds=10)
ATTEMPT_TIMEOUT = timedelta(seconds=5)
ASK_EVERY, ASK_TIMEOUT, FAILED_IN_A_ROW = timedelta(seconds=4), timedelta(seconds=3), 2
"""One of a process asks so often whether Temporal answers. Two that fail take at most 14 s, and one slow answer is no outage."""

_MISCONFIGURED = {RPCStatusCode.UNAUTHENTICATED, RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.INVALID_ARGUMENT}
_SILENT = {
    RPCStatusCode.UNAVAILABLE,
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.CANCELLED,
    RPCStatusCode.INTERNAL,
    RPCStatusCode.UNKNOWN,
}


async def connect(
    settings: TemporalSettings,
    *,
    clusters: Clusters = no_clusters,
    patience: timedelta | None = None,
    identity: str | None = None,
    runs_workflows: bool = True,
) -> Client:
    """A client with our converter, once the service answers and knows the namespace.

    clusters: of which one may have the keys for payloads. patience None: wait for ever, saying so. runs_workflows
    False: without the sandbox, and without loading what runs workflows, which takes a command a tenth of a second.

    Raises TemporalUnreachableError when it runs out, SettingsError at once for credentials that are refused and keys that can't
    be read, NamespaceMissingError for a namespace that does not exist.
    """
    encryption = await encryption_of(settings, clusters, patience=patience)
    clock = asyncio.get_running_loop().time
    deadline = None if patience is None else clock() + patience.total_seconds()
    pause = FIRST_PAUSE
    attempt = 0
    while True:
        attempt += 1
        try:
            async with asyncio.timeout(ATTEMPT_TIMEOUT.total_seconds()):
                return await _connect_once(settings, encryption, identity=identity, runs_workflows=runs_workflows)
        except (RuntimeError, RPCError, TimeoutError) as error:
            refusal = _refusal(error, settings)
            if refusal is not None:
                raise refusal from error
            wait = pause.total_seconds() * random.uniform(0.8, 1.2)  # noqa: S311 - spreads reconnects, no secret
            if deadline is not None and clock() + wait > deadline:
                raise TemporalUnreachableError(f"cannot reach Temporal at {settings.address}: {_one_line(error)}") from error
            if attempt in {3, 6} or attempt % 30 == 0:
                _log.warning("waiting for Temporal at %s: %s", settings.address, _one_line(error))
            await asyncio.sleep(wait)
            pause = min(pause * 2, LONGEST_PAUSE)


async def watch_temporal(client: Client, meanwhile: Sequence[Callable[[], Coroutine[Any, Any, None]]]) -> None:
    """Ask for ever whether Temporal answers this process. Where it does not, the metric and the log say so within 15 s (S37).

    meanwhile: what goes on while it is away; begun then, and cancelled once it answers again. An error of one is logged, and ends
    no other.
    """
    gauge = metrics.TEMPORAL_AWAY.on(runtime().metric_meter)
    while True:
        gauge.set(0)
        failed, problem = 0, ""
        while failed < FAILED_IN_A_ROW:
            await asyncio.sleep(ASK_EVERY.total_seconds())
            problem = await _silence_of(client)
            failed = failed + 1 if problem else 0
        _log.error("Temporal does not answer, nothing is begun: %s", problem)
        gauge.set(1)
        async with _running(meanwhile):
            while problem:
                await asyncio.sleep(ASK_EVERY.total_seconds())
                problem = await _silence_of(client)
        _log.warning("Temporal answers again")


async def connect_meanwhile(
    connecting: Coroutine[Any, Any, Client], meanwhile: Sequence[Callable[[], Coroutine[Any, Any, None]]]
) -> Client:
    """What `connect` does; where that takes as long as `watch_temporal` takes to notice, the same goes on meanwhile, and the
    metric says so."""
    task = asyncio.create_task(connecting)
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(FAILED_IN_A_ROW * (ASK_EVERY + ASK_TIMEOUT).total_seconds()):
                return await asyncio.shield(task)
        metrics.TEMPORAL_AWAY.on(runtime().metric_meter).set(1)
        async with _running(meanwhile):
            return await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def _running(functions: Sequence[Callable[[], Coroutine[Any, Any, None]]]) -> AsyncIterator[None]:
    """They run while the block does, and are cancelled with it."""
    tasks = [asyncio.create_task(each()) for each in functions]
    for task in tasks:
        task.add_done_callback(_log_failure)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _silence_of(client: Client) -> str:
    """Why it does not answer, "" where it does. A refusal is an answer."""
    try:
        async with asyncio.timeout(ASK_TIMEOUT.total_seconds()):
            await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
    except TimeoutError:
        return f"no answer within {ASK_TIMEOUT.total_seconds():.0f} s"
    except RPCError as error:
        return _one_line(error) if error.status in _SILENT else ""
    return ""


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("what goes on while Temporal is away has failed: %s", error, exc_info=error)


async def _connect_once(
    settings: TemporalSettings, encryption: Encryption | None, *, identity: str | None, runs_workflows: bool
) -> Client:
    plugins: list[Plugin] = []
    if runs_workflows:
        from workers.plugin import plugin_with

        plugins = [plugin_with(encryption)]
    api_key = settings.api_key.get_secret_value() if settings.api_key is not None else None
    if api_key is None and settings.api_key_file:
        api_key = _read("temporal.api_key_file", settings.api_key_file).decode().strip()
    client = await Client.connect(
        settings.address,
        namespace=settings.namespace,
        api_key=api_key,
        tls=_tls(settings),
        identity=identity,
        data_converter=converter_with(encryption),
        plugins=plugins,
        runtime=runtime(),
        connect_timeout=ATTEMPT_TIMEOUT,
    )
    await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=settings.namespace))
    return client


def _tls(settings: TemporalSettings) -> bool | TLSConfig | None:
    if settings.tls is False:
        return False
    files = (settings.tls_server_ca_file, settings.tls_client_cert_file, settings.tls_client_key_file)
    if not any(files) and not settings.tls_server_name:
        return settings.tls
    authority, certificate, key = files
    return TLSConfig(
        server_root_ca_cert=_read("temporal.tls_server_ca_file", authority) if authority else None,
        domain=settings.tls_server_name or None,
        client_cert=_read("temporal.tls_client_cert_file", certificate) if certificate else None,
        client_private_key=_read("temporal.tls_client_key_file", key) if key else None,
    )


def _read(key: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{key}: expected a readable file: {error}") from error


def _refusal(error: Exception, settings: TemporalSettings) -> Exception | None:
    if not isinstance(error, RPCError):
        return None
    if error.status is RPCStatusCode.NOT_FOUND:
        return NamespaceMissingError(
            f"Temporal at {settings.address} has no namespace {settings.namespace!r}; "
            f"create it (temporal operator namespace create -n {settings.namespace}) or set temporal.namespace"
        )
    if error.status in _MISCONFIGURED:
        return SettingsError(f"{_credentials(settings)}: {settings.address} refuses them: {_one_line(error)}")
    return None


def _credentials(settings: TemporalSettings) -> str:
    """By which setting, and from which file, we have them."""
    named = {"temporal.api_key_file": settings.api_key_file, "temporal.tls_client_cert_file": settings.tls_client_cert_file}
    found = [f"{key} ({path})" for key, path in named.items() if path is not None]
    found += ["temporal.api_key (TEMPORAL_API_KEY)"] if settings.api_key is not None else []
    none = "none are set: temporal.api_key_file, or temporal.tls_client_cert_file with its key"
    return f"credentials of {' and '.join(found)}" if found else f"credentials ({none})"


def _one_line(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {ATTEMPT_TIMEOUT.total_seconds():g} s"
    text = str(error) or type(error).__name__
    said = re.search(r'(?:message|error): "([^"]+)"', text)  # the innermost, of Rust's own errors
    return said[1] if said else shorten(text, 200, placeholder=" …")
