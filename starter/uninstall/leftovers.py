"""What of ours is left, where, and what removes it: looked for side by side, printed for people and programs. Nothing is removed.

Where the account may not look, that is said and counts as left: something may be there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text
from temporalio.exceptions import ApplicationError

from starter.client import Nodewarden
from starter.errors import RequestError
from starter.uninstall import kubernetes, temporal
from starter.uninstall.kubernetes import Leftover
from workers.configuration.clusters import open_cluster
from workers.configuration.setting_sources import SettingsError
from workers.configuration.settings import Settings
from workers.errors import NamespaceMissingError, TemporalUnreachableError

Look = Callable[[], Awaitable[list[Leftover]]]
LOOK = "look again with an account that may, or once it answers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What was found at one place; in the order in which it should go."""

    place: str
    left: tuple[Leftover, ...]


async def left_of(settings: Settings, cluster: str) -> tuple[Looked, ...]:
    """Everything of ours: first what runs, then what it has left, then what it ran on."""
    async with AsyncExitStack() as stack:
        looks: dict[str, Look] = {}
        missing = list[Looked]()
        try:
            warden = await stack.enter_async_context(Nodewarden.connect(settings))
            looks["open workflows"] = partial(temporal.workflows, warden, cluster)
            looks["search attributes"] = partial(temporal.search_attributes, warden)
        except (TemporalUnreachableError, NamespaceMissingError, SettingsError) as error:
            missing.append(Looked(place="Temporal", left=(Leftover(what=f"not looked at: {error}", remove=LOOK),)))
        if (known := settings.connections().get(cluster)) is None:
            what = f"not looked at: how the API of {cluster} is reached is not known here"
            missing.append(Looked(place="Kubernetes", left=(Leftover(what=what, remove=LOOK),)))
        else:
            connection, machines = await stack.enter_async_context(open_cluster(cluster, known))
            looks |= {
                "Nodes": partial(kubernetes.nodes, connection),
                "Machines": partial(kubernetes.machines, connection, machines),
                "NodeFences": partial(kubernetes.node_fences, connection),
                "Leases": partial(kubernetes.leases, connection),
                "admission policies": partial(kubernetes.policies, connection),
                "rights": partial(kubernetes.rights, connection),
                "definitions": partial(kubernetes.definitions, connection),
                "namespaces": partial(kubernetes.namespaces, connection),
            }
        found = await asyncio.gather(*(_look(place, look) for place, look in looks.items()))
    last = "search attributes"
    return (*missing, *(each for each in found if each.place != last), *(each for each in found if each.place == last))


async def _look(place: str, look: Look) -> Looked:
    try:
        left = await look()
    except ApplicationError as error:
        left = [Leftover(what=f"not looked at: {error.message}", remove=LOOK)]
    except (RequestError, SettingsError) as error:
        left = [Leftover(what=f"not looked at: {error}", remove=LOOK)]
    return Looked(place=place, left=tuple(left))


def as_table(found: Sequence[Looked]) -> RenderableType:
    """What is left at each place, and below it the command that removes it."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for looked in found:
        if not looked.left:
            table.add_row(looked.place, Text("nothing", style="green"))
        for first, each in enumerate(looked.left):
            table.add_row(looked.place if first == 0 else "", Text(f"{each.what}\n").append(f"> {each.remove}", style="dim"))
    return table


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftAt:
    """One thing that is left, where, and what removes it."""

    place: str
    what: str
    remove: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UninstallAnswer:
    """All that is left of nodewarden."""

    cluster: str
    left: tuple[LeftAt, ...]


def as_model(cluster: str, found: Sequence[Looked]) -> UninstallAnswer:
    """For programs."""
    return UninstallAnswer(
        cluster=cluster,
        left=tuple(LeftAt(place=looked.place, what=each.what, remove=each.remove) for looked in found for each in looked.left),
    )
