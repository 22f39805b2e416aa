"""What a person is shown before a word about a machine: which volumes it may write to, and what its devices say (S8)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from temporalio.exceptions import ApplicationError

from activities.cluster.api.connection import ClusterConnection
from activities.cluster.objects.workload import read_pods
from activities.errors import ErrorType, error_type
from policy.episode.messages import EpisodeStatus
from policy.fence.device_check import Reachability
from policy.values.display_text import counted, some_of
from starter.client import Nodewarden
from starter.errors import RequestError
from starter.wording import span

MOST_NAMED = 5
SECONDS_TO_READ = 10.0


async def pods_on(connection: ClusterConnection, node: str) -> str:
    """The pods there, and the claims by which they write, as far as the caller's rights let that be seen."""
    try:
        pods = await read_pods(connection, node, cached=True)
    except ApplicationError as error:
        return unread("what runs on it", error)
    claims = sorted({f"{pod.metadata.namespace}/{claim}" for pod in pods if not pod.finished for claim in pod.claims})
    named = some_of(claims, MOST_NAMED)
    return f"{counted(len(pods), 'pod')} on it, with {counted(len(claims), 'persistent volume')}{named and f': {named}'}"


async def device_lines(warden: Nodewarden, episode: EpisodeStatus) -> list[str]:
    """What each device of its node says now, and what it has last said to the episode."""
    said = list[str]()
    try:
        async with asyncio.timeout(SECONDS_TO_READ):
            for row in (await warden.check_devices(episode.cluster, episode.node)).rows:
                last = f"; it answered {_age(row.last_success)} ago" if row.last_success is not None else ""
                answers = row.answer is Reachability.ANSWERS
                said.append(f"{row.endpoint} {f'says {row.state.value} now' if answers else f'does not answer now{last}'}")
    except (RequestError, TimeoutError) as error:
        said.append(unread("its devices", error))
    return said + [f"{each.endpoint} said {each.state.value} {_age(each.at)} ago" for each in episode.readings]


def unread(what: str, error: Exception) -> str:
    """Only an API server that refuses it says something of the caller's rights."""
    why = error.message if isinstance(error, ApplicationError) else str(error) or f"no answer within {SECONDS_TO_READ:g}s"
    return f"{what} can't be read {'with your rights' if error_type(error) is ErrorType.FORBIDDEN else 'now'}: {why}"


def _age(at: datetime) -> str:
    return span(datetime.now(UTC) - at)
