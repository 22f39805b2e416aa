"""What of ours is left in Temporal: workflows that run, and the search attributes of the namespace."""

from __future__ import annotations

from temporalio.service import RPCError

from policy.episode.messages import Kind, device_check_id, episode_id, scanner_id
from starter.client import Nodewarden
from starter.handles.calls import ANSWER_WITHIN, unanswered
from starter.uninstall.kubernetes import Leftover
from workers.temporal_namespace import existing_search_attributes, required_search_attributes

MOST = 1000


async def workflows(warden: Nodewarden, cluster: str) -> list[Leftover]:
    """Those of the cluster that run, the scanner first: it would begin more. Found by their ids, as the search attributes may be
    gone already."""
    scanner, check, episodes = scanner_id(cluster), device_check_id(cluster), episode_id(cluster, "")
    ours = f"(WorkflowId IN ({_quoted(scanner)}, {_quoted(check)}) OR WorkflowId STARTS_WITH {_quoted(episodes)})"
    try:
        found = warden.client.list_workflows(f"ExecutionStatus = 'Running' AND {ours}", limit=MOST, rpc_timeout=ANSWER_WITHIN)
        runs = {run.id: run.workflow_type or "" async for run in found}
    except RPCError as error:
        raise unanswered(error, what=f"workflows of {cluster}") from error
    left = list[Leftover]()
    beside = [f"{runs.pop(each)} {each}" for each in (check, scanner) if each in runs]
    if any(each.endswith(scanner) for each in beside):
        left.append(Leftover(what=", ".join(beside), remove=f"nodewarden scan stop -c {cluster} --reason uninstalled"))
    elif beside:  # it ends some seconds after its scanner, but only a worker can end it; it acts on nothing
        terminate = f"temporal workflow terminate -n {warden.client.namespace} --workflow-id {check}"
        left.append(Leftover(what=beside[0], remove=terminate))
    for run, kind in runs.items():
        node = run.removeprefix(episodes)
        word = "release" if kind == Kind.PRESERVATION else "abort"
        left.append(Leftover(what=f"{kind} {run}", remove=f"nodewarden {word} {node} -c {cluster} --reason uninstalled"))
    return left


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


async def search_attributes(warden: Nodewarden) -> list[Leftover]:
    """They are the namespace's: of all clusters that are looked after from it."""
    try:
        there = [name for name in required_search_attributes() if name in await existing_search_attributes(warden.client)]
    except RPCError as error:
        raise unanswered(error, what="search attributes") from error
    if not there:
        return []
    namespace = warden.client.namespace
    names = " ".join(f"--name {name}" for name in there)
    what = f"{', '.join(there)} in namespace {namespace!r}: of every cluster that is looked after from it"
    return [Leftover(what=what, remove=f"temporal operator search-attribute remove -n {namespace} {names} --yes")]
