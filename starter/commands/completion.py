"""Names of nodes and clusters for the shell's completion: asked of the cluster's API, else of the scanner's view.

A person who presses TAB waits, and reads no errors: what takes longer, or can't be asked, completes nothing. The process does
nothing else, and ends with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from starter.client import Nodewarden
    from starter.commands.session import Session
    from workers.configuration.settings import Settings

WITHIN = 2.0
"""Seconds, for all that is asked."""


def nodes(context: typer.Context, incomplete: str) -> list[str]:
    """Every node of the cluster."""
    return _completed(context, incomplete, _nodes)


def open_nodes(context: typer.Context, incomplete: str) -> list[str]:
    """Those that an open episode holds: only these take commands."""
    return _completed(context, incomplete, _open_nodes)


def clusters(context: typer.Context, incomplete: str) -> list[str]:
    """The clusters of the settings, else the one that kubectl would talk to."""

    async def known(_session: Session, settings: Settings) -> Sequence[str]:
        return list(settings.connections())

    return _completed(context, incomplete, known)


def _completed(
    context: typer.Context, incomplete: str, ask: Callable[[Session, Settings], Awaitable[Sequence[str]]]
) -> list[str]:
    from starter.commands.session import Session

    given = {**context.find_root().params, **{name: value for name, value in context.params.items() if value}}
    session = Session(
        cluster=given.get("cluster") or "",
        config=given.get("config"),
        context=given.get("kube_context") or "",
        kubeconfig=given.get("kubeconfig"),
    )

    async def within() -> Sequence[str]:
        async with asyncio.timeout(WITHIN):
            return await ask(session, session.settings())

    logging.disable()
    try:
        found = asyncio.run(within())
    except Exception:  # noqa: BLE001 - see the module: a half-typed command is no place for an error
        return []
    return sorted(name for name in found if name.startswith(incomplete))


async def _nodes(session: Session, settings: Settings) -> Sequence[str]:
    from activities.cluster.api.paths import NODES
    from activities.cluster.objects.decoding import NODE_DECODING
    from starter.client import Nodewarden
    from starter.errors import SilentError
    from workers.configuration.setting_sources import SettingsError

    try:
        async with session.reading(settings) as (_, connection, _machines):
            pages = connection.list_pages(NODES.path())
            return [item.key async for page in pages for item in NODE_DECODING.items(page.body)]
    except (SilentError, SettingsError):
        async with Nodewarden.connect(settings) as warden:
            return await _seen(warden, session.one_cluster(settings))


async def _seen(warden: Nodewarden, cluster: str) -> Sequence[str]:
    report = (await warden.scanner_status(cluster)).report
    return [row.node for row in report.rows] if report is not None else []


async def _open_nodes(session: Session, settings: Settings) -> Sequence[str]:
    from policy.episode.messages import episode_id
    from starter.client import Nodewarden

    async with Nodewarden.connect(settings) as warden:
        cluster = session.one_cluster(settings)
        return [run.id.removeprefix(episode_id(cluster, "")) for run in await warden.history.open(cluster)]
