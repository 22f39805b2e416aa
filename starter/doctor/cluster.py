"""The cluster itself: whether it is reached, by which clock it lives, who else acts on its nodes, what detaches its volumes; then
the rights that this account has there, and the kinds that its API server has."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.api.paths import (
    CAPI_MACHINE_HEALTH_CHECKS,
    CUSTOM_RESOURCE_DEFINITIONS,
    FENCE_AGENTS_REMEDIATIONS,
    FENCE_CONFIGS,
    FENCING_TEMPLATES,
    LEASES,
    MACHINE_DELETIONS,
    NODE_ACTIONS,
    NODE_FENCES,
    NODE_HEALTH_CHECKS,
    OPENSHIFT_MACHINE_HEALTH_CHECKS,
    PODS,
    PRESERVATION_POLICIES,
    REBOOTS,
    VOLUME_DETACHMENTS,
    Resource,
    versions_of,
)
from activities.cluster.objects.check_statuses import leader_lease
from activities.cluster.report.node_actions import doubt_of
from policy.checks.circuit_breakers import FENCE_AGENTS_REMEDIATION_LEASE, LEADER_LEASES, TAKEOVER, conflict
from policy.episode.operator_commands import SETTLED
from policy.values.display_text import counted
from policy.values.times import written
from starter.deploy.features import SHIPPED
from starter.deploy.rights import RIGHTS, Right
from starter.deploy.shipped import crds
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


# Whether the account of this connection has the rights of the one table (`starter/deploy/rights.py`), by asking the API server.
#
# Each is asked for by itself (SelfSubjectAccessReview): the list that SelfSubjectRulesReview gives is incomplete where another
# authorizer than RBAC decides.

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
AT_ONCE = 20
PRINT = "`nodewarden deploy rbac | kubectl apply -f -` gives it to nodewarden's ServiceAccounts"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    right: Right
    attributes: dict[str, str]

    @property
    def sentence(self) -> str:
        at = self.attributes
        resource = ".".join(filter(None, (at["resource"], at["group"])))
        subresource = f"/{at['subresource']}" if at["subresource"] else ""
        name = f" {at['name']}" if at["name"] else ""
        return f"{at['verb']} {resource}{subresource}{name}" + (f" in {at['namespace']}" if at["namespace"] else "")


async def rights(connection: ClusterConnection) -> list[Finding]:
    """One line for each right that is missing; what needs it says how bad that is."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def allowed(question: _Question) -> bool:
        review: dict[str, Any] = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": question.attributes},
        }
        async with gate:
            answer = await connection.create(REVIEWS, review)
        return bool((answer.get("status") or {}).get("allowed"))

    questions = list(_questions())
    answers = await asyncio.gather(*(allowed(question) for question in questions))
    missing: dict[Right, list[str]] = {}
    for question, granted in zip(questions, answers, strict=True):
        if not granted:
            missing.setdefault(question.right, []).append(question.sentence)
    found = [_missing(right, words) for right, words in missing.items()]
    if not found:
        return [ok(f"this account has all {counted(len(questions), 'right')} that nodewarden asks for")]
    return [*found, warning(f"these are the rights of the account that doctor used at {connection.url}", OTHER_ACCOUNTS)]


OTHER_ACCOUNTS = (
    "run doctor in a worker's pod (`kubectl exec -n nodewarden deploy/nodewarden -- nodewarden doctor`) for its account's"
)


def _missing(right: Right, words: list[str]) -> Finding:
    said = f"may not {', '.join(words)}"
    if not right.features:
        return problem(f"{said}: always needed", PRINT)
    return warning(f"{said}: needed by {', '.join(sorted(right.features))}", f"{PRINT}; or leave that feature unused")


def _questions() -> Iterator[_Question]:
    """Of everything that is shipped, each question once."""
    asked = set[tuple[str, ...]]()
    for right in RIGHTS:
        if right.features and right.features.isdisjoint(SHIPPED):
            continue
        for group in right.groups:
            for resource in right.resources:
                for verb in right.verbs:
                    for name in right.names or ("",):
                        plural, _, subresource = resource.partition("/")
                        attributes = {
                            "verb": verb,
                            "group": group,
                            "resource": plural,
                            "subresource": subresource,
                            "name": name,
                            "namespace": right.place.namespace if right.place is not None else "",
                        }
                        if (key := tuple(attributes.values())) not in asked:
                            asked.add(key)
                            yield _Question(right=right, attributes=attributes)


# Which kinds the API server has: ours, which have to be there, and those of others, in a version that we speak.

APPLY = "`nodewarden deploy crds | kubectl apply -f -`"

OURS = (
    FENCE_CONFIGS,
    FENCING_TEMPLATES,
    MACHINE_DELETIONS,
    NODE_ACTIONS,
    NODE_FENCES,
    PRESERVATION_POLICIES,
    REBOOTS,
    VOLUME_DETACHMENTS,
)
OTHERS = (
    NODE_HEALTH_CHECKS,
    OPENSHIFT_MACHINE_HEALTH_CHECKS,
    CAPI_MACHINE_HEALTH_CHECKS,
    FENCE_AGENTS_REMEDIATIONS,
)
CHECKS = OTHERS[:3]


def definition_name(resource: Resource) -> str:
    """How its definition is called."""
    return f"{resource.plural}.{resource.api_version.partition('/')[0]}"


async def definitions(connection: ClusterConnection, *, fix: bool) -> list[Finding]:
    """Whether our kinds are served, and those of others in a version that we speak. fix: make those of ours that are missing."""
    there = await served(connection)
    made = [name for each in OURS if (name := definition_name(each)) not in there] if fix else []
    for name in made:
        await connection.create(CUSTOM_RESOURCE_DEFINITIONS.path(), shipped(name))
    if made:
        there = await served(connection)
    found = [each for resource in (*OURS, *OTHERS) if (each := _judged(resource, there)) is not None]
    if not any(definition_name(each) in there for each in CHECKS):
        found.append(
            warning(
                "no kind of health check is served: nothing is done but what people ask for",
                "install the NodeHealthCheck of medik8s, or apply simulator/crds/nodehealthchecks.yaml",
            )
        )
    named = f"; made {', '.join(made)}" if made else ""
    return found or [ok(f"all of ours are served, and those of others in versions that we speak{named}")]


def shipped(name: str) -> dict[str, Any]:
    """Our definition of that name."""
    [file] = [each for each in crds() if each.stem == name]
    document: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return document


async def served(connection: ClusterConnection) -> dict[str, tuple[str, ...]]:
    """The versions that are served of each kind that has a definition."""
    return {
        each["metadata"]["name"]: _versions(each) for each in await connection.list_objects(CUSTOM_RESOURCE_DEFINITIONS.path())
    }


def _versions(definition: JsonObject) -> tuple[str, ...]:
    versions = (definition.get("spec") or {}).get("versions") or ()
    return tuple(str(each["name"]) for each in versions if each.get("served"))


def _judged(resource: Resource, there: dict[str, tuple[str, ...]]) -> Finding | None:
    name, ours = definition_name(resource), resource in OURS
    if name not in there:
        return problem(f"{name} is not there", f"{APPLY}, or `nodewarden doctor --fix`") if ours else None
    spoken = {each.api_version.partition("/")[2] for each in versions_of(resource)}
    if spoken.isdisjoint(there[name]):
        what = f"{name} is served as {', '.join(there[name]) or 'nothing'}, and we speak {', '.join(sorted(spoken))}"
        return problem(what, APPLY if ours else "serve that version, or use a nodewarden that knows it")
    return None
