"""What of ours is left in Temporal: workflows that run, and the search attributes of the namespace."""

from __future__ import annotations

from temporalio.service import RPCError

from policy.episode.messages import Kind
from starter.client import Nodewarden
from starter.handles.episodes import ANSWER_WITHIN, unanswered
from starter.uninstall.leftover import Leftover
from workers.search_attributes import existing, required
from workflows.kit.ids import episode_id

MOST = 1000
QUOTE = "'"


async def workflows(warden: Nodewarden, cluster: str) -> list[Leftover]:
    """Those of the cluster that run, the scanner first: it would begin more."""
    query = f"Cluster = '{cluster.replace(QUOTE, '')}' AND ExecutionStatus = 'Running'"
    try:
        runs = [run async for run in warden.client.list_workflows(query, limit=MOST, rpc_timeout=ANSWER_WITHIN)]
    except RPCError as error:
        raise unanswered(error, what=f"workflows of {cluster}") from error
    found, beside = list[Leftover](), list[str]()
    for run in runs:
        node = run.id.removeprefix(episode_id(cluster, ""))
        if run.id == node:  # no episode: the scanner, and the check of the devices that ends with it
            beside.append(f"{run.workflow_type} {run.id}")
            continue
        if run.workflow_type == Kind.PRESERVATION:
            remove = f"nodewarden release {node} -c {cluster} --reason uninstalled"
        else:
            remove = f"nodewarden abort {node} -c {cluster} --reason uninstalled"
        found.append(Leftover(what=f"{run.workflow_type} {run.id}", remove=remove))
    stop = f"nodewarden scan stop -c {cluster} --reason uninstalled"
    return [*([Leftover(what=", ".join(sorted(beside)), remove=stop)] if beside else []), *found]


async def search_attributes(warden: Nodewarden) -> list[Leftover]:
    """They are the namespace's: of all clusters that are looked after from it."""
    try:
        there = [name for name in required() if name in await existing(warden.client)]
    except RPCError as error:
        raise unanswered(error, what="search attributes") from error
    if not there:
        return []
    namespace = warden.client.namespace
    names = " ".join(f"--name {name}" for name in there)
    what = f"{', '.join(there)} in namespace {namespace!r}: of every cluster that is looked after from it"
    return [Leftover(what=what, remove=f"temporal operator search-attribute remove -n {namespace} {names} --yes")]
