"""The doctor: all checks of an installation, side by side, each with what to do about what it finds. One that fails is a finding
of its own and hides no other.

First what a finding is and how the checks are run; then the checks: of the settings, of Temporal, of the cluster, of its health
checks and fence configuration; last how the answer is printed.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text
from temporalio.exceptions import ApplicationError

from activities.cluster.acts.node_actions import doubt_of
from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.api.paths import (
    CAPI_MACHINE_HEALTH_CHECKS,
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    FENCE_AGENTS_REMEDIATIONS,
    FENCE_CONFIGS,
    FENCING_TEMPLATES,
    LEASES,
    MACHINE_DELETIONS,
    NODE_ACTIONS,
    NODE_FENCES,
    NODE_HEALTH_CHECKS,
    NODES,
    OPENSHIFT_MACHINE_HEALTH_CHECKS,
    PODS,
    PRESERVATION_POLICIES,
    REBOOTS,
    SECRETS,
    VOLUME_DETACHMENTS,
    Resource,
    versions_of,
)
from activities.cluster.api.refusals import ObjectNotFound
from activities.cluster.api.served_cluster import Connections
from activities.cluster.live.plans import Configurations
from activities.cluster.objects.check_statuses import leader_lease
from activities.cluster.objects.decoding import NODE_DECODING
from activities.cluster.objects.object_reader import read_views, reading_once
from activities.errors import ErrorType, error_type
from policy.checks.circuit_breakers import FENCE_AGENTS_REMEDIATION_LEASE, LEADER_LEASES, TAKEOVER, conflict
from policy.checks.fence_policies import PolicySource
from policy.episode.node_action import SETTLED
from policy.fence.device_check import acted_on, devices_of
from policy.fence.plan import CredentialKind, CredentialRef, PowerDevice
from policy.fence.plan_compiler import compile_config
from policy.fence.power import InsecureDevices
from policy.objects.machines import EVERY_NAMESPACE
from policy.objects.nodes import NodeView
from policy.remediation.ladder import TemplateSight, Unusable
from policy.scan import obstacles
from policy.scan.evaluation import evaluate
from policy.values.display_text import counted, some_of
from policy.values.errors import PolicyError
from policy.values.times import written
from starter import wording
from starter.client import Nodewarden
from starter.deploy.features import SHIPPED
from starter.deploy.manifests import crds
from starter.deploy.rights import RIGHTS, Right
from starter.errors import MissingError, RequestError
from starter.output.evaluation import described
from starter.plans.cluster_objects import read_live
from workers.configuration.clusters import open_cluster
from workers.configuration.settings import Settings
from workers.errors import NamespaceMissingError, SearchAttributesError, SettingsError, TemporalUnreachableError
from workers.temporal_namespace import ensure_search_attributes, retention
from workflows.kit.options import WORKFLOW_QUEUE, cluster_queue, power_queue


class Level(StrEnum):
    """warning: it works, and is not as it should be, or that is not known. problem: something will not be done."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line. check: the name of the one that has found it. what: a sentence about what is; do: what a person does about it, ""
    where nothing is to be done."""

    check: str = ""
    level: Level
    what: str
    do: str = ""


Check = Callable[[], Awaitable[list[Finding]]]
Checks = Mapping[str, Check]
"""By the name that people read."""


def ok(what: str) -> Finding:
    return Finding(level=Level.OK, what=what)


def warning(what: str, do: str) -> Finding:
    return Finding(level=Level.WARNING, what=what, do=do)


def problem(what: str, do: str) -> Finding:
    return Finding(level=Level.PROBLEM, what=what, do=do)


CHECK_WITHIN = 60.0
"""Seconds. One that takes longer is a finding."""
REPORT = "open an issue in nodewarden's repository with what docs/troubleshooting.md names at its end"


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorAnswer:
    """What was found of an installation."""

    cluster: str
    findings: tuple[Finding, ...]

    @property
    def has_problems(self) -> bool:
        """Whether something will not be done."""
        return any(each.level is Level.PROBLEM for each in self.findings)


async def examine(settings: Settings, cluster: str, *, fix: bool = False) -> DoctorAnswer:
    """Everything, in the order in which people would look. fix: mend what is ours and harmless."""
    ours, theirs, open_to_others = await asyncio.gather(
        _temporal(settings, cluster, fix=fix),
        _kubernetes(settings, cluster, fix=fix),
        _one("protection", partial(protection, settings)),
    )
    return DoctorAnswer(cluster=cluster, findings=(*ours, *theirs, *open_to_others))


async def _temporal(settings: Settings, cluster: str, *, fix: bool) -> list[Finding]:
    try:
        async with Nodewarden.connect(settings) as warden:
            answers = replace(ok(f"it answers, namespace {warden.client.namespace!r}"), check="Temporal")
            checks: Checks = {
                "search attributes": partial(search_attributes, warden, fix=fix),
                "memory": partial(memory, warden),
                "workers": partial(workers, warden, cluster, settings.sites),
                "scanner": partial(scanner, warden, cluster),
                "fence devices": partial(devices, warden, cluster),
            }
            return [answers, *await _all(checks)]
    except (TemporalUnreachableError, NamespaceMissingError, SettingsError) as error:
        return [replace(problem(str(error), "nothing is begun without it; start it, or correct that"), check="Temporal")]


async def _kubernetes(settings: Settings, cluster: str, *, fix: bool) -> list[Finding]:
    known = settings.connections().get(cluster)
    if known is None:
        what = f"how the API of {cluster} is reached is not known here: nothing of it was looked at"
        return [replace(warning(what, "name it under `clusters` in nodewarden.yaml"), check="Kubernetes")]
    async with open_cluster(cluster, known) as (connection, machines):
        answers = await _one("Kubernetes", partial(reached, connection))
        if any(each.level is Level.PROBLEM for each in answers):
            return answers
        checks: Checks = {
            "clocks": partial(clocks, connection),
            "rights": partial(rights, connection),
            "definitions": partial(definitions, connection, fix=fix),
            "people's words": partial(people, connection, required=settings.worker.commands == "verified"),
            "health checks": partial(health_checks, settings, connection, machines),
            "credentials": partial(credentials, connection, machines, settings.policy_source())
            if settings.secrets_directory is None
            else partial(mounted, settings.secrets_directory),
            "other controllers": partial(operators, connection, takeover=settings.scan.takeover),
            "forced detachment": partial(force_detach, connection, cluster=cluster, expected=known.force_detach_on_timeout),
        }
        return [*answers, *await _all(checks)]


async def _all(checks: Checks) -> list[Finding]:
    found = await asyncio.gather(*(_one(name, check) for name, check in checks.items()))
    return [each for findings in found for each in findings]


async def _one(name: str, check: Check) -> list[Finding]:
    try:
        async with asyncio.timeout(CHECK_WITHIN):
            findings = await check()
    except TimeoutError:
        findings = [problem(f"no answer within {CHECK_WITHIN:.0f} s", "try again")]
    except ApplicationError as error:
        findings = [problem(error.message, "see what the API server says")]
    except Exception as error:  # noqa: BLE001 - an unforeseen error in one check hides nothing that others have found
        findings = [problem(f"this check failed: {' '.join(str(error).split()) or type(error).__name__}", REPORT)]
    return [replace(each, check=name) for each in findings]


async def protection(settings: Settings) -> list[Finding]:
    """What the settings leave open, each by its name. By those that are read here; a worker elsewhere may have others."""
    worker, temporal = settings.worker, settings.temporal
    hosts = worker.credential_hosts
    insecure = worker.insecure_devices is not InsecureDevices.REFUSE
    has_keys = bool(temporal.payload_keys_file or temporal.payload_keys_secret)
    found: list[tuple[bool, str, str]] = [
        (worker.commands == "any", "worker.commands: verified", "any Temporal client can fence a healthy machine, in any name"),
        (
            not hosts or "*" in hosts,
            "worker.credential_hosts: [NETWORK]",
            "a Secret without hosts goes where it first went",
        ),
        (insecure, "worker.insecure_devices: refuse", "passwords may travel unencrypted"),
        (not has_keys, "temporal.payload_keys_secret: NAMESPACE/NAME", "readers of Temporal read names, addresses and reasons"),
        (
            EVERY_NAMESPACE in settings.machine_namespaces,
            "machine_namespaces: [NAMESPACE]",
            "who may write Machines and MachineHealthChecks anywhere can have a healthy node repaired",
        ),
        (temporal.insecure, "temporal.insecure: false", "an attacker between us and Temporal is a client of Temporal"),
    ]
    open_ones = [
        warning(f"{to_set.partition(':')[0]}: {what}", f"set {to_set} (docs/security.md)")
        for is_open, to_set, what in found
        if is_open
    ]
    return open_ones or [ok("no setting leaves open what it could close")]


# Temporal's side of the installation: search attributes, who asks the task queues for work, the scanner, the fence devices.

EXPECTED_MEMORY = timedelta(days=90)
"""As the Temporal that we ship remembers: a quarter, so that a month can be compared with the one before."""
ASKS_WITHIN = timedelta(seconds=75)
"""Temporal answers a worker that asks for work within a minute, also with nothing, and the worker asks again."""
MOST_SHOWN = 5
"""Devices with a problem; `nodewarden fence check` shows the others."""


async def search_attributes(warden: Nodewarden, *, fix: bool) -> list[Finding]:
    """Whether episodes can be found at all. fix: make those that are missing."""
    try:
        made = await ensure_search_attributes(warden.client, create=fix)
    except SearchAttributesError as error:
        return [problem(str(error), "`nodewarden doctor --fix` makes those that are missing, where you may")]
    return [ok(f"made {', '.join(made)}" if made else "all there")]


async def memory(warden: Nodewarden) -> list[Finding]:
    """How far back `history`, `report` and `compare` can look: Temporal deletes what ended before."""
    kept = await retention(warden.client)
    if kept is None:
        what = "how long Temporal remembers what has ended can't be read: the namespace may not be described"
        return [warning(what, f"ask its administrator for the retention of {warden.client.namespace!r}")]
    what = f"what has ended is remembered for {counted(kept // timedelta(days=1), 'day')}"
    if kept >= EXPECTED_MEMORY:
        return [ok(what)]
    what += ": `history` and `compare --since` see nothing older, and count too little where they are asked for more"
    raise_it = f"`temporal operator namespace update -n {warden.client.namespace} --retention 90d`, or in Temporal Cloud"
    return [warning(what, raise_it)]


async def workers(warden: Nodewarden, cluster: str, sites: Iterable[str]) -> list[Finding]:
    """Whether a worker asks for the work that an episode makes. Temporal lists one for some five minutes after it has ended."""
    queues = {
        WORKFLOW_QUEUE: "nodewarden worker --role workflows",
        cluster_queue(cluster): f"nodewarden worker --role cluster -c {cluster}",
        **{power_queue(site): f"nodewarden worker --role power --site {site}" for site in sites},
    }
    found = []
    for queue, command in queues.items():
        asked = await warden.last_polled(queue, workflows=queue == WORKFLOW_QUEUE)
        age = datetime.now(UTC) - asked if asked is not None else None
        if age is not None and age <= ASKS_WITHIN:
            found.append(ok(f"a worker serves {queue}: it last asked for work {wording.span(age)} ago"))
            continue
        since = f"for {wording.span(age)}" if age is not None else "lately"
        found.append(problem(f"no worker has asked for work on {queue} {since}", f"start one: `{command}`, or `nodewarden up`"))
    return found


async def scanner(warden: Nodewarden, cluster: str) -> list[Finding]:
    """Whether anything is begun without a person."""
    try:
        status = await warden.scanner_status(cluster)
    except MissingError as error:
        without_its_own = re.sub(r"[;:] `nodewarden scan start` starts it$", "", str(error))
        return [problem(without_its_own, f"`nodewarden scan start -c {cluster}` starts it")]
    except RequestError as error:
        return [problem(str(error), "look at the log of the worker that serves workflows")]
    view = wording.view(status, datetime.now(UTC))
    if halted := obstacles.halted(status.report, status.pauses):
        return [warning(f"it runs, and begins nothing: {halted}", "end it once it is no longer meant")]
    report = status.report
    if status.problem or report is None or report.view.stale or not report.view.synced or report.lease.problem:
        return [problem(f"it runs, and begins nothing: {view}", "look at the log of the cluster's worker")]
    if status.stopping:
        return [warning("it is being stopped", f"`nodewarden scan start -c {cluster}` starts another")]
    if mode := status.modes.limited:
        return [warning(f"it runs, and {mode}", "docs/modes.md says how to arm nodes, and how to take it back")]
    return [ok(f"it runs: {view}")]


async def devices(warden: Nodewarden, cluster: str) -> list[Finding]:
    """What the last check of the fence devices has found, and open episodes since. None is read for this."""
    read = f"`nodewarden fence check -c {cluster}` reads them now"
    try:
        report = await warden.device_check(cluster).last_report()
    except MissingError:
        return [warning("no workflow checks the fence devices regularly: that begins with the scanner", read)]
    if report is None:
        return [warning("they have not been checked since this check was begun", read)]
    when = f"at {written(report.ended)}"
    report = acted_on(report, wording.failing((await warden.status(cluster)).episodes))
    found = [problem(f"{row.node}: {row.named}", f"correct it; {read}") for row in report.rows if row.problem]
    if len(found) > MOST_SHOWN:
        found = [*found[:MOST_SHOWN], problem(f"{report.problems - MOST_SHOWN} more", f"`nodewarden fence check -c {cluster}`")]
    unread = dict.fromkeys(f"{row.node}: {row.warning}" for row in report.rows if row.held and not row.problem)
    held = [warning(each, "look at what its episode says of it") for each in unread]
    known = f"{counted(report.devices, 'device')} of {counted(report.nodes, 'node')}"
    answered = f"{report.answering} of {known} answered {when}"
    last = warning(answered, "a node can't be fenced while its device does not answer") if found else ok(answered)
    return [*found, *held[:MOST_SHOWN], last]


# The cluster itself: whether it is reached, by which clock it lives, who else acts on its nodes, what detaches its volumes; then
# the rights that this account has there, and the kinds that its API server has.

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
    """Whether Kubernetes attests who speaks. required: no other command is accepted."""
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
RIGHTS_AT_ONCE = 20
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
    gate = asyncio.Semaphore(RIGHTS_AT_ONCE)

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
    found = [_missing(right, verbs) for right, verbs in missing.items()]
    if not found:
        return [ok(f"this account has all {counted(len(questions), 'right')} that nodewarden asks for")]
    return [*found, warning(f"these are the rights of the account that doctor used at {connection.url}", OTHER_ACCOUNTS)]


OTHER_ACCOUNTS = (
    "run doctor in a worker's pod (`kubectl exec -n nodewarden deploy/nodewarden -- nodewarden doctor`) for its account's"
)


def _missing(right: Right, verbs: list[str]) -> Finding:
    what = f"may not {', '.join(verbs)}"
    if not right.features:
        return problem(f"{what}: always needed", PRINT)
    return warning(f"{what}: needed by {', '.join(sorted(right.features))}", f"{PRINT}; or leave that feature unused")


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
    supported = {each.api_version.partition("/")[2] for each in versions_of(resource)}
    if supported.isdisjoint(there[name]):
        what = f"{name} is served as {', '.join(there[name]) or 'nothing'}, and supported are {', '.join(sorted(supported))}"
        return problem(what, APPLY if ours else "serve that version, or use a nodewarden that knows it")
    return None


# The health checks and fence configuration of a cluster: whether they can be used, before a node dies.
#
# The cluster is read once, as `nodewarden explain` reads it.

MOST_NODES = 200
MOST_NAMED = 5
NODES_AT_ONCE = 4
PLAN = "`nodewarden fence plan NODE` says why"


async def health_checks(settings: Settings, connection: ClusterConnection, machines: ClusterConnection | None) -> list[Finding]:
    """Whether each can be used, selects a target, and names templates that exist."""
    cluster = await read_live(settings, connection, machines, leased=False)
    found = [problem(described(each), "correct that object" if each.ref else "see `rights`") for each in cluster.mistakes]
    known = cluster.ledger.known(cluster.now)
    if ignored := cluster.ledger.ignored_text:
        found.append(warning(ignored, "name the namespaces of your administrators in machine_namespaces (docs/security.md)"))
    checks, lacking = evaluate(known), [each for each in known.bad.values() if each.reason is not Unusable.OBJECT]
    if not (checks or lacking):
        return [*found, warning("there is no health check: nothing is done but what people ask for", "write a NodeHealthCheck")]
    found += [problem(f"{each.reason}: {each.error}", "correct it, or name another template") for each in lacking]
    for check in checks:
        key = check.check.ref.key
        own = [warning(f"{key}: {each}", "correct its selector, or delete it") for each in check.warnings]
        own += [
            warning(f"{key} names {template.key}, and it is not known whether that exists: {seen.problem}", "grant `get` on it")
            for template, seen in cluster.templates[key].items()
            if seen.sight is TemplateSight.UNKNOWN
        ]
        found += own or [ok(f"{key}: {counted(check.counts.total, 'target')}, its templates exist")]
    return found


async def mounted(directory: Path) -> list[Finding]:
    """Where no Secret is read: credentials are mounted into the workers."""
    return [ok(f"power workers read them below {directory} (secrets_directory); `nodewarden fence check` uses them")]


@dataclass(slots=True)
class _Named:
    """What nodes' configurations name. devices: of each credential one that needs it."""

    devices: dict[str, PowerDevice] = field(default_factory=dict)
    unusable: dict[str, str] = field(default_factory=dict)


async def credentials(connection: ClusterConnection, machines: ClusterConnection | None, source: PolicySource) -> list[Finding]:
    """Whether the Secrets that nodes would be fenced with exist, and have the keys that are named. Only names stay."""
    nodes = await read_views(connection, NODES, NODE_DECODING)
    named = await _named(connection, machines, nodes[:MOST_NODES], source)
    without = defaultdict[str, list[str]](list)
    for node, why in named.unusable.items():
        without[why.replace(f"node-{node}", "node-NODE")].append(node)
    found = [
        warning(f"no fence configuration can be used for {some_of(affected, MOST_NAMED)}: {why}", PLAN)
        for why, affected in sorted(without.items(), key=lambda each: -len(each[1]))[:MOST_NAMED]
    ]
    objects: dict[str, frozenset[str] | Finding] = {}
    for device in named.devices.values():
        for reference in device.credentials:
            if reference.kind in {CredentialKind.SECRET, CredentialKind.CONFIG_MAP} and _key(reference) not in objects:
                objects[_key(reference)] = await _keys(connection, reference)
    found += [each for each in objects.values() if isinstance(each, Finding)]
    keys = {name: each for name, each in objects.items() if not isinstance(each, Finding)}
    found += dict.fromkeys(each for device in named.devices.values() for each in _lacking(device, keys))
    if len(nodes) > MOST_NODES:
        found.append(
            warning(f"of {len(nodes)} nodes the first {MOST_NODES} were looked at", "`nodewarden fence check` reads all")
        )
    return found or [ok(f"{counted(len(objects), 'object')} with credentials: there, with the keys that are needed")]


async def _named(
    connection: ClusterConnection, machines: ClusterConnection | None, nodes: list[NodeView], source: PolicySource
) -> _Named:
    connections = Connections(nodes=connection, machines=machines or connection, machine_namespaces=source.machines)
    configured = Configurations(reading_once(connections), source)
    gate, named = asyncio.Semaphore(NODES_AT_ONCE), _Named()

    async def one(node: NodeView) -> None:
        async with gate:
            try:
                config = await configured.of(node)
                if config.errors:
                    raise PolicyError(config.subject, "spec", "; ".join(config.errors))
                devices = devices_of(compile_config(config))
            except PolicyError as error:
                named.unusable[node.name] = str(error)
            except ApplicationError as error:
                named.unusable[node.name] = error.message
            else:
                for each in devices:
                    key = f"{each.device.driver} {sorted(each.device.parameters)} {each.device.credentials}"
                    named.devices.setdefault(key, each.device)

    await asyncio.gather(*(one(node) for node in nodes))
    return named


def _key(reference: CredentialRef) -> str:
    return f"{reference.kind.value}/{reference.namespace}/{reference.name}"


async def _keys(connection: ClusterConnection, reference: CredentialRef) -> frozenset[str] | Finding:
    resource = SECRETS if reference.kind is CredentialKind.SECRET else CONFIG_MAPS
    try:
        found = await connection.get(resource.path(reference.name, namespace=reference.namespace))
    except ObjectNotFound:
        return problem(f"{_key(reference)} does not exist, and fence configuration names it", "create it (docs/fencing.md)")
    except ApplicationError as error:
        if error_type(error) is not ErrorType.FORBIDDEN:
            raise
        do = "ask a person who may, or run doctor in a power worker's pod; `deploy rbac --secrets` grants it by name"
        return warning(f"{_key(reference)}: this account may not read it, so whether it exists is not known", do)
    return frozenset(found.get("data") or {})


def _lacking(device: PowerDevice, objects: Mapping[str, frozenset[str]]) -> Iterator[Finding]:
    """What the objects lack that a device's references name, as far as they could be read."""
    for reference in device.credentials:
        named = {reference.properties} if reference.properties else set(reference.keys.values())
        there = objects.get(_key(reference), frozenset(named))
        if lacking := sorted(named - there):
            yield problem(f"{_key(reference)} lacks {', '.join(lacking)}, which fence configuration names", "add the key")


# What was found, as people and programs read it.

STYLE = {Level.OK: "green", Level.WARNING: "yellow", Level.PROBLEM: "bold red"}


def as_table(found: DoctorAnswer) -> RenderableType:
    """A line for each finding, and below it what to do about it. The name of a check stands at its first one."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, findings in groupby(found.findings, key=lambda each: each.check):
        for number, finding in enumerate(findings):
            what = Text(finding.what).append(f"\n> {finding.do}" if finding.do else "", style="dim")
            table.add_row(name if number == 0 else "", Text(finding.level.value, style=STYLE[finding.level]), what)
    return table
