"""The one place that settings come from: `nodewarden.yaml`, the environment, defaults that work without either.

Every key is also an environment variable: `scan.cap` is NODEWARDEN_SCAN__CAP (two underscores step inside; one would collide
with the variables Kubernetes injects for a Service called nodewarden). Temporal's own TEMPORAL_* variables are understood
too. The environment beats the file. Bad input is a `SettingsError` that names the key and what was expected; nothing here is
ever replaced by a default because it was wrong.
"""

from __future__ import annotations

import os
import re
import sys
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, InitSettingsSource, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings import SettingsError as SourceError

from policy.checks.fence_policies import MOST_PER_MINUTE, FencePolicies, PolicySource, ScopeCap, StormRule
from policy.checks.health_check import (
    DEFAULT_MIN_HEALTHY_PERIOD,
    EXPONENTIAL,
    LONGEST_PERIOD,
    MOST_RETRIES,
    NONE,
    Overlap,
    RetryBackoff,
    RetryRules,
)
from policy.history.offenders import OffenderAnswer, OffenderRules
from policy.objects.scopes import CLUSTER
from policy.preservation.requests import Pool, pool_of
from policy.remediation.remediation_objects import REMEDIATORS, Remediator
from policy.scan.repeat_alarm import RepeatAlarm
from policy.values.errors import PolicyError
from policy.values.mode import Mode
from policy.values.object_refs import FENCE_NAMESPACE
from workers.configuration.clusters import SAFE_NAME, ClusterSettings, default_clusters
from workers.configuration.process_settings import (
    EmbeddedSettings,
    EvidenceSettings,
    KdumpSettings,
    LogSettings,
    NotificationSettings,
    StreamSettings,
    TemporalSettings,
    TracingSettings,
    WorkerSettings,
)
from workers.configuration.setting_sources import PREFIX, STEP, explain, find_file, read_file, shared_variables
from workers.configuration.setting_types import (
    NAME,
    Duration,
    Section,
    UserPath,
    WebAddress,
    at_most,
    between,
    host_and_port,
    listed,
    scope_name,
    within,
)
from workers.errors import SettingsError

# What is done to nodes, when and how often: scans, fencing, remediation, preservation.


class ScanSettings(Section):
    """How scanners behave. Each cluster's scanner takes `cap` and `wait` when it is started; the rest is the workers'."""

    cap: int = Field(default=1, ge=1, le=1000, description="nodes of a cluster that may be disrupted at once")
    start_up_grace: Duration = Field(
        default=timedelta(seconds=30), description="no new episode this long after a worker's view has synced (S18)"
    )
    wait: Annotated[Duration, between("1s", "5m")] = Field(
        default=timedelta(seconds=60),
        description="a scan's long poll without news ends after this, one at rest after five times as long",
    )
    overlap: Overlap = Field(
        default=Overlap.STRICTEST,
        description="whether one open circuit breaker among the health checks that cover a node holds it",
    )
    mode: Mode | None = Field(
        default=None,
        description=(
            "how far programs may go with nodes: observe, cordon, drain or repair; without it a cluster in which nodes were"
            " repaired before has repair, and another one begins with observe; taken when the scanner is started (docs/modes.md)"
        ),
    )
    takeover: bool = Field(
        default=False, description="act on health checks although another controller acts on them; see docs/migrate.md"
    )
    at_risk_margin: Annotated[Duration, at_most("5m: no detachment is known longer beforehand", timedelta(minutes=5))] = Field(
        default=timedelta(minutes=1), description="people are notified this long before Kubernetes detaches volumes by force"
    )
    at_risk_repeat: Annotated[Duration, within("at least 2m", timedelta(minutes=2), timedelta.max)] = Field(
        default=timedelta(minutes=30), description="how often they are notified again"
    )


class RepeatAlarmSettings(Section):
    """When a node that is fenced again and again is told of; each cluster's scanner takes this when it is started."""

    count: int = Field(default=3, ge=2, le=50, description="how many fencings of a node for one reason raise it")
    window: Annotated[Duration, between("1m", "720h")] = Field(
        default=timedelta(hours=24), description="within which they are counted, at most 720h"
    )

    def alarm(self) -> RepeatAlarm:
        return RepeatAlarm(count=self.count, window=self.window)


class OffenderSettings(Section):
    """What is done about a machine that is repaired again and again, by its hardware: see docs/remediation.md, Offenders."""

    limit: int = Field(default=3, ge=2, le=50, description="how many repairs of one machine make it an offender")
    window: Annotated[Duration, between("1h", "2160h")] = Field(
        default=timedelta(days=28),
        description="within which they are counted, from 1h to 2160h; what Temporal has forgotten is not",
    )
    answer: OffenderAnswer = Field(
        default=OffenderAnswer.NOTIFY,
        description="notify: its episode says so; ask: and a person is asked before the machine is switched on again; keep: and "
        "it is only fenced, and stays off and cordoned, not replaced, until a person answers",
    )

    def rules(self) -> OffenderRules:
        """The same as the typed rules that everything downstream knows."""
        return OffenderRules(limit=self.limit, window=self.window, answer=self.answer)


class DeviceCheckSettings(Section):
    """How often all fence devices are read; each cluster's check takes this when its scanner is started."""

    enabled: bool = Field(default=True, description="false: only on request (nodewarden fence check)")
    every: Annotated[Duration, between("5m", "168h")] = Field(
        default=timedelta(hours=1), description="between two checks, from 5m to 168h"
    )

    def interval(self) -> timedelta | None:
        """For the check; None where it is off."""
        return self.every if self.enabled else None


class NodeFenceSettings(Section):
    """The NodeFences that mirror episodes, where their kind is installed."""

    group: Literal["nodewarden.io", "ha.k8s.io"] = Field(
        default="nodewarden.io",
        description="their API group: ha.k8s.io, the proposal's, only where its definition is installed and programs watch it",
    )
    kept_for: Duration = Field(default=timedelta(hours=1), description="how long one stays after its episode has ended")


class StormSettings(Section):
    """No new fencing while at or above that percentage of a group of the scope is unresponsive."""

    percentage: int = Field(ge=1, le=100, description="from this share of a group on")
    scope: Annotated[str, AfterValidator(scope_name)] = Field(
        default=CLUSTER, description="cluster, zone, pool or the key of a node label"
    )


class FencingSettings(Section):
    """Fence policies for all clusters of this worker; what a cluster's own fence-cluster-config says holds beside them."""

    enabled: bool = Field(default=True, description="false: nothing is fenced, and what is under way stops before its next act")
    storms: tuple[StormSettings, ...] = Field(default=(), description="groups in which too many nodes may fail at once")
    cap_per_scope: dict[str, Annotated[int, Field(ge=1, le=1000)]] = Field(
        default_factory=dict, description="nodes of one zone, pool or label value that may be disrupted at once"
    )
    quiet_time: Duration = Field(default=timedelta(0), description="between switching a node on and off again")
    max_attempts: int | None = Field(default=None, ge=1, le=1000, description="failed attempts on a node before a pause; 10")
    attempts_pause: Duration | None = Field(default=None, description="how long that pause is; 15m")
    storage_percentage: int | None = Field(default=None, ge=1, le=100, description="of nodes without storage: nothing is fenced")
    storage_conditions: tuple[str, ...] = Field(default=(), description="node conditions that say so")
    storage_events: tuple[str, ...] = Field(default=(), description="Events on a node that say so: REASON or SOURCE/REASON")
    storage_event_age: Duration | None = Field(default=None, description="how long such an Event counts; 5m")
    skip_if_host_lost_storage: bool = Field(default=False, description="a host that says so by storage_conditions is left alone")
    skip_if_host_renews_lease: bool = Field(default=False, description="a host is left alone while its Node Lease is renewed")
    pods_per_minute: int | None = Field(
        default=None, ge=1, le=MOST_PER_MINUTE, description="at most this many pods are freed by force, of all nodes together"
    )

    @field_validator("cap_per_scope")
    @classmethod
    def _known_scopes(cls, value: dict[str, int]) -> dict[str, int]:
        for scope in value:
            if scope_name(scope) == CLUSTER:
                raise ValueError("the cap of the whole cluster is scan.cap")
        return value

    def policies(self) -> FencePolicies:
        """The same as the typed policies that everything downstream knows."""
        return FencePolicies(
            storms=tuple(
                StormRule(name=f"fencing.storms[{index}]", percentage=each.percentage, scope=each.scope)
                for index, each in enumerate(self.storms)
            ),
            caps=tuple(ScopeCap(scope=scope, cap=cap) for scope, cap in sorted(self.cap_per_scope.items())),
            quiet_time=self.quiet_time or None,
            maximum_attempts=self.max_attempts,
            attempts_pause=self.attempts_pause,
            storage_percentage=self.storage_percentage,
            storage_conditions=self.storage_conditions,
            storage_events=self.storage_events,
            storage_event_age=self.storage_event_age,
            skip_lost_storage=self.skip_if_host_lost_storage,
            skip_renewed_lease=self.skip_if_host_renews_lease,
            pods_per_minute=self.pods_per_minute,
            switched_off=() if self.enabled else ("the setting fencing.enabled is false",),
        )


class PreservationSettings(Section):
    """Pools in which failed machines are kept automatically; a PreservationPolicy of the same name goes before one."""

    pools: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="by name, each as the spec of a PreservationPolicy"
    )

    @field_validator("pools")
    @classmethod
    def _readable(cls, value: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        for name, spec in value.items():
            try:
                pool_of(name, spec)
            except PolicyError as error:
                raise ValueError(str(error)) from error
        return value

    def known_pools(self) -> tuple[Pool, ...]:
        """The same as the typed pools that everything downstream knows."""
        return tuple(pool_of(name, spec) for name, spec in sorted(self.pools.items()))


class BackoffSettings(Section):
    """The pause after a remediation that did not last; it doubles with each retry up to the limit."""

    type: Literal["exponential", "none"] = Field(default="none", description="exponential: 30s, doubled with each retry")
    limit: Duration | None = Field(default=None, description="the longest pause; 10m")

    @model_validator(mode="after")
    def _limit_of_something(self) -> Self:
        if self.limit is None:
            return self
        if self.type == NONE:
            raise ValueError(f"limit: expected none without a backoff; set type to {EXPONENTIAL}")
        if not timedelta(seconds=1) <= self.limit <= LONGEST_PERIOD:
            raise ValueError("limit: expected at least 1s and at most a year")
        return self

    def pause(self) -> RetryBackoff | None:
        """For the rules; None where there is none."""
        if self.type == NONE:
            return None
        return RetryBackoff() if self.limit is None else RetryBackoff(limit=self.limit)


class RemediatorSettings(Section):
    """What the remediation objects of one more kind say, by their conditions; without a row it is medik8s' contract."""

    group: str = Field(min_length=1, description="of their API, without a version")
    kind: str = Field(min_length=1, description="of the objects, not of their templates")
    working: str = Field(default="Processing", description="True while it is at work; empty: it does not say")
    succeeded: str = Field(default="Succeeded", description="True once it is done")
    failed: str = Field(
        default="Succeeded", description="False once it has failed; if it is not `succeeded`: and `working` is not True"
    )
    node_goes: str = Field(default="PermanentNodeDeletionExpected", description="True where the Node is to be deleted for good")


class RemediationSettings(Section):
    """How a replacement that fails is remediated in its turn, where its health check says nothing of that (by annotation)."""

    max_retry: int | None = Field(default=None, ge=0, le=MOST_RETRIES, description="then a person is asked; unset: no limit")
    retry_period: Annotated[Duration, at_most("a year", LONGEST_PERIOD)] = Field(
        default=timedelta(0), description="between two remediations of a sequence"
    )
    min_healthy_period: Annotated[Duration, at_most("a year", LONGEST_PERIOD)] = Field(
        default=DEFAULT_MIN_HEALTHY_PERIOD, description="a failure this long after the last one begins a new sequence"
    )
    backoff: BackoffSettings = BackoffSettings()
    remediators: tuple[RemediatorSettings, ...] = Field(
        default=(), description="other controllers' remediation objects that speak in words of their own"
    )

    def known_remediators(self) -> tuple[Remediator, ...]:
        """These, which go first, and those that are known without them."""
        return (*(Remediator(**each.model_dump()) for each in self.remediators), *REMEDIATORS)

    def retries(self) -> RetryRules:
        """The same as the typed rules that everything downstream knows."""
        return RetryRules(
            max_retry=self.max_retry,
            retry_period=self.retry_period,
            min_healthy_period=self.min_healthy_period,
            backoff=self.backoff.pause(),
        )


def _default_state() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "nodewarden"
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".local" / "state") / "nodewarden"


class Settings(BaseSettings):
    """Everything that can be set. Build it with `load`, which turns bad input into `SettingsError`."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter=STEP, extra="forbid", frozen=True, env_ignore_empty=True
    )

    temporal: TemporalSettings = TemporalSettings()
    clusters: dict[str, ClusterSettings] = Field(
        default_factory=dict,
        description="clusters to serve, by name; default: the current kubeconfig context, or the one we run in",
    )
    sites: Annotated[tuple[str, ...], NoDecode, BeforeValidator(listed)] = Field(
        default=("default",), description="sites with power devices that this worker reaches"
    )
    secrets_directory: UserPath | None = Field(
        default=None, description="credentials of power devices as files, <namespace>/<name>/<key>; default: the cluster's API"
    )
    fence_namespace: str = Field(
        default=FENCE_NAMESPACE,
        pattern=f"^{NAME}$",
        description="namespace in which fence configuration is read from ConfigMaps, by name",
    )
    template_namespaces: Annotated[tuple[str, ...], NoDecode, BeforeValidator(listed)] = Field(
        default=("nodewarden",),
        description="namespaces in which FencingTemplates count, also for the Machine health checks that live there",
    )
    request_namespaces: Annotated[tuple[str, ...], NoDecode, BeforeValidator(listed)] = Field(
        default=(), description="namespaces in which FenceAgentsRemediations are obeyed: those of your operators"
    )
    machine_namespaces: Annotated[tuple[str, ...], NoDecode, BeforeValidator(listed)] = Field(
        default=(),
        description="namespaces in which Machines and MachineHealthChecks count, beside openshift-machine-api for OpenShift's;"
        " `*`: all",
    )
    scan: ScanSettings = ScanSettings()
    repeat_alarm: RepeatAlarmSettings = RepeatAlarmSettings()
    offenders: OffenderSettings = OffenderSettings()
    fence_check: DeviceCheckSettings = DeviceCheckSettings()
    node_fence: NodeFenceSettings = NodeFenceSettings()
    fencing: FencingSettings = FencingSettings()
    page_url: WebAddress = Field(
        default="", description="where people find the page (nodewarden ui), for links in notifications and in Temporal"
    )
    docs_url: WebAddress = Field(default="", description="where your people read this documentation, for links to its runbooks")
    shared_tokens: bool = Field(
        default=False, description="all clusters trust one identity provider: the page may show each a person's token for another"
    )
    node_name: str = Field(default="", description="the node we run on, never acted on from here (S16); else NODE_NAME")
    metrics: Annotated[str, host_and_port("127.0.0.1:9464")] = Field(
        default="", description="host:port for Prometheus metrics; empty: none"
    )
    log: LogSettings = LogSettings()
    worker: WorkerSettings = WorkerSettings()
    kdump: KdumpSettings = KdumpSettings()
    evidence: EvidenceSettings = EvidenceSettings()
    preservation: PreservationSettings = PreservationSettings()
    remediation: RemediationSettings = RemediationSettings()
    notifications: tuple[NotificationSettings, ...] = Field(default=(), description="who is notified; see docs/notifications.md")
    tracing: TracingSettings | None = Field(default=None, description="who takes traces of episodes; see docs/metrics.md")
    stream: StreamSettings = StreamSettings()
    embedded: EmbeddedSettings = EmbeddedSettings()
    state: Path = Field(
        default_factory=_default_state,
        description="directory of the embedded server's data and log, and of signing keys; default: ~/.local/state/nodewarden",
    )

    @field_validator("clusters")
    @classmethod
    def _usable_names(cls, value: dict[str, ClusterSettings]) -> dict[str, ClusterSettings]:
        for name in value:
            if not SAFE_NAME.fullmatch(name):
                raise ValueError(f"expected a cluster name of letters, digits, '-', '_' and '.', at most 63, got {name!r}")
        return value

    @field_validator("state")
    @classmethod
    def _home(cls, value: Path) -> Path:
        return value.expanduser().absolute()

    def policy_source(self) -> PolicySource:
        """Where the fence policies of every cluster come from."""
        return PolicySource(
            namespace=self.fence_namespace,
            templates=self.template_namespaces,
            requests=self.request_namespaces,
            machines=self.machine_namespaces,
            policies=self.fencing.policies(),
        )

    def connections(self) -> dict[str, ClusterSettings]:
        """The clusters to serve: the configured ones, else the one kubectl would talk to; empty if there is none."""
        if self.clusters:
            return dict(self.clusters)
        try:
            return default_clusters()
        except ValueError as error:
            raise SettingsError(str(error)) from error


def load(*, config: Path | None = None, **given: Any) -> Settings:
    """Settings from arguments, our variables, Temporal's variables and the file; earlier beats later.

    Raises SettingsError with one line for each key that cannot be used.
    """
    file = find_file(os.environ, named=config)
    from_file = read_file(file) if file else {}
    from_shared = shared_variables(os.environ)

    class Sourced(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the signature is theirs
            file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - same
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return (
                init_settings,
                env_settings,
                InitSettingsSource(settings_cls, init_kwargs=from_shared),
                InitSettingsSource(settings_cls, init_kwargs=from_file),
            )

    try:
        return Sourced(**given)
    except ValidationError as error:
        raise explain(error, model=Settings, file=file, written=from_file) from error
    except SourceError as error:
        field = re.search(r'field "(\w+)"', str(error))
        message = f'{PREFIX}{field[1].upper() if field else "*"}: expected JSON, such as {{"prod": {{"context": "prod"}}}}'
        raise SettingsError(message) from error
