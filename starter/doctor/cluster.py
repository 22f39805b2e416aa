"""The cluster itself: whether it is reached, by which clock it lives, who else acts on its nodes, what detaches its volumes."""

from __future__ import annotations

from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.paths import LEASES, PODS
from activities.cluster.objects.conflicts import leader_lease
from activities.cluster.report.node_actions import doubt_of
from policy.checks.rival_controllers import FENCE_AGENTS_REMEDIATION_LEASE, LEADER_LEASES, TAKEOVER, conflict
from policy.episode.operator_commands import SETTLED
from policy.values.times import written
from starter.doctor.findings import Finding, ok, problem, warning

CONTROLLER_MANAGER = "kube-controller-manager"
FLAG = "--disable-force-detach-on-timeout"
OFF = ("=false", "=0", "=f", "=False", "=FALSE", "=F")


async def reached(connection: ClusterConnection) -> list[Finding]:
    """Whether the API server answers us, and which it is."""
    version = await connection.server_version()
    return [ok(f"{connection.url} answers, version {version.major}.{version.minor}")]


async def clocks(connection: ClusterConnection) -> list[Finding]:
    """Ours against what the API server's answers say."""
    await connection.get("/version")
    if connection.clock_skew is None:
        return [warning("the API server does not say what time it is", "compare the clocks yourself: timeouts go by both")]
    if connection.skewed:
        return [problem(connection.skewed, "set the wrong clock by NTP: too early a clock puts off every timeout")]
    return [ok("this clock and the API server's agree")]


async def people(connection: ClusterConnection, *, required: bool) -> list[Finding]:
    """Whether Kubernetes attests who speaks. required: no other word is heard."""
    if doubt := await doubt_of(connection, {"metadata": {"creationTimestamp": written(connection.now() + SETTLED)}}):
        then = "no person's command is accepted" if required else "names are not verified"
        return [(problem if required else warning)(f"{doubt}; {then}", "apply it (docs/security.md)")]
    return [ok("the API server checks who speaks")]


async def operators(connection: ClusterConnection, *, takeover: bool) -> list[Finding]:
    """Leader Leases of controllers that act on the same objects."""
    found = []
    for name in (*LEADER_LEASES.values(), FENCE_AGENTS_REMEDIATION_LEASE):
        for each in await connection.list_objects(LEASES.path(), query={"fieldSelector": f"metadata.name={name}"}):
            key = f"{each['metadata'].get('namespace')}/{name}"
            if why := conflict([leader_lease(key, each)], (), (), connection.now()):
                then = "scan.takeover is true: both act" if takeover else "its objects are only looked at"
                do = "scale that controller to nothing" + ("" if takeover else f", or {TAKEOVER}") + " (docs/migrate.md)"
                found.append(warning(f"{why.removesuffix('; ' + TAKEOVER)}; {then}", do))
    return found or [ok("no other controller of health checks or fencings is at work")]


async def force_detach(connection: ClusterConnection, *, cluster: str, expected: bool) -> list[Finding]:
    """Whether Kubernetes detaches volumes by force, as the settings say. expected: force_detach_on_timeout."""
    setting = f"clusters.{cluster}.force_detach_on_timeout"
    pods = await connection.list_objects(PODS.path(namespace="kube-system"), label=("component", CONTROLLER_MANAGER))
    words = [
        str(word)
        for pod in pods
        for container in (pod.get("spec") or {}).get("containers") or ()
        for word in (*(container.get("command") or ()), *(container.get("args") or ()))
    ]
    says = f"{setting} is {str(expected).lower()}"
    if not words:
        return [warning(f"{says}, and no pod of {CONTROLLER_MANAGER} can be seen", f"ask whether it runs with {FLAG}")]
    detaches = not any(word.startswith(FLAG) and not word.endswith(OFF) for word in words)
    if detaches is not expected:
        flag = "without" if detaches else "with"
        return [problem(f"{says}, and {CONTROLLER_MANAGER} runs {flag} {FLAG}", f"set {setting} to {str(detaches).lower()}")]
    if detaches:
        what = f"{says}, as it is: after 6 minutes Kubernetes detaches the volumes of a node that may still write"
        return [warning(what, f"where the out-of-service taint is honoured (1.28), run {CONTROLLER_MANAGER} with {FLAG}")]
    return [ok(f"{says}, as it is: volumes stay until a node is proven off")]
