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
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from pydantic_settings import (
    SettingsError as SourceError,
)

from policy.checks.fence_policies import MOST_PER_MINUTE, FencePolicies, PolicySource, ScopeCap, StormRule
from policy.checks.overlaps import Overlap
from policy.checks.retries import (
    DEFAULT_MIN_HEALTHY_PERIOD,
    EXPONENTIAL,
    LONGEST_PERIOD,
    MOST_RETRIES,
    NONE,
    RetryBackoff,
    RetryRules,
)
from policy.episode.events import When
from policy.episode.messages import Outcome
from policy.episode.notices import NoticeRule, Severity, Wording
from policy.fence.credential_hosts import hosts_written
from policy.fence.insecure_devices import InsecureDevices
from policy.objects.scopes import CLUSTER, is_scope
from policy.objects.scopes import EXPECTED as EXPECTED_SCOPE
from policy.preservation.pools import Pool, pool_of
from policy.scan.repeats import RepeatAlarm
from policy.values.durations import parse_duration
from policy.values.errors import PolicyError
from policy.values.fields import Fields
from policy.values.object_names import FENCE_NAMESPACE
from policy.values.selectors import Selector, parse_selector
from workers.configuration.clusters import SAFE_NAME, ClusterSettings, UserPath, default_clusters
from workers.configuration.setting_sources import PREFIX, STEP, SettingsError, explain, find_file, read_file, shared_variables

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_NAME = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
"""Of a namespace, as Kubernetes takes it."""
_SECRET = rf"^({_NAME}/{_NAME}(\.{_NAME})*)?$"
_SAME_ELSEWHERE = "the same as a Secret, namespace/name, of the cluster we run in; an empty one is filled by the first worker"
_DURATION = re.compile(r"(\d+(?:\.\d+)?(?:ms|s|m|h))+")


def _duration(value: object) -> object:
    """`90s`, `1m30s`, `500ms` as Kubernetes objects write them; bare numbers are refused because their unit is a guess."""
    if isinstance(value, timedelta):
        return value
    if isinstance(value, str) and _DURATION.fullmatch(value.strip()):
        parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h)", value)
        return timedelta(seconds=sum(float(number) * _UNITS[unit] for number, unit in parts))
    raise ValueError(f"expected a duration such as 30s, 5m or 1h30m, got {value!r}")


def _listed(value: object) -> object:
    """`a,b` from the environment; lists from the file."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _hosts(value: tuple[str, ...]) -> tuple[str, ...]:
    return hosts_written(" ".join(value))


Duration = Annotated[timedelta, BeforeValidator(_duration)]


def _web_address(value: str) -> str:
    """Without a slash at its end, so that paths are put behind it."""
    scheme, _, rest = value.partition("://")
    if value and (scheme not in {"http", "https"} or not rest or set(rest) & set("?#@ ")):
        raise ValueError(f"expected an address such as https://nodes.example.com, got {value!r}")
    return value.rstrip("/")


WebAddress = Annotated[str, AfterValidator(_web_address)]


class LogFormat(StrEnum):
    """plain: one line for people. json: one object a line, for collectors."""

    PLAIN = "plain"
    JSON = "json"


def _within(expected: str, least: timedelta, most: timedelta) -> AfterValidator:
    def check(value: timedelta) -> timedelta:
        if not least <= value <= most:
            raise ValueError(f"expected {expected}")
        return value

    return AfterValidator(check)


def _between(least: str, most: str) -> AfterValidator:
    return _within(f"between {least} and {most}", parse_duration(least), parse_duration(most))


def _at_most(words: str, most: timedelta) -> AfterValidator:
    return _within(f"at most {words}", timedelta.min, most)


def _host_and_port(example: str) -> AfterValidator:
    def check(value: str) -> str:
        parts = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/]+):(\d{1,5})", value)
        if value and (parts is None or not 1 <= int(parts[2]) <= 65535):
            raise ValueError(f"expected host:port such as {example}, got {value!r}")
        return value

    return AfterValidator(check)


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine is spoken to by that name or address."""
    try:
        return host == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _scope(value: str) -> str:
    if not is_scope(value):
        raise ValueError(f"expected {EXPECTED_SCOPE}, got {value!r}")
    return value


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TemporalSettings(_Section):
    """The Temporal service. Without an address `nodewarden up` runs one of its own, and other commands find that one."""

    address: Annotated[str, _host_and_port("localhost:7233")] = Field(default="", description="host:port of the frontend")
    namespace: str = Field(default="default", description="namespace of the service")
    ui_url: WebAddress = Field(default="", description="address of Temporal's web UI, to link to; default: the embedded one's")
    api_key: SecretStr | None = Field(default=None, description="API key of the service")
    api_key_file: UserPath | None = Field(default=None, description="file with the API key, instead of the key itself")
    tls: bool | None = Field(default=None, description="default: on with an API key or a certificate, else off")
    tls_server_ca_file: UserPath | None = Field(default=None, description="CA certificates of the service; default: the system's")
    tls_client_cert_file: UserPath | None = Field(default=None, description="our certificate, with tls_client_key_file")
    tls_client_key_file: UserPath | None = Field(default=None, description="the key of our certificate")
    tls_server_name: str = Field(default="", description="name that the service's certificate bears; default: its host")
    payload_keys_file: UserPath | None = Field(
        default=None,
        description="keys that encrypt what we tell Temporal, one to a line, newest first; default: nothing is encrypted",
    )
    payload_keys_secret: str = Field(default="", pattern=_SECRET, description=_SAME_ELSEWHERE)
    insecure: bool = Field(default=False, description="go without TLS to a Temporal that is not on this machine")
    patience: Duration = Field(default=timedelta(seconds=5), description="how long a command waits for it; workers wait for ever")
    register_search_attributes: bool = Field(default=True, description="create the missing ones where we may")

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if (self.tls_client_cert_file is None) != (self.tls_client_key_file is None):
            raise ValueError("tls_client_cert_file and tls_client_key_file go together")
        if self.api_key is not None and self.api_key_file is not None:
            raise ValueError("give api_key or api_key_file, not both")
        if self.payload_keys_file is not None and self.payload_keys_secret:
            raise ValueError("give payload_keys_file or payload_keys_secret, not both")
        return self

    @model_validator(mode="after")
    def _nobody_in_between(self) -> Self:
        """Whoever stands between us and Temporal would read all histories and could speak in anybody's name."""
        secret = self.api_key is not None or self.api_key_file is not None or self.tls_client_cert_file is not None
        encrypted = self.tls if self.tls is not None else secret
        if self.address and not (encrypted or self.insecure or is_loopback(self.address.rpartition(":")[0])):
            expected = "expected TLS (temporal.tls, a certificate or an API key) to a Temporal that is not on this machine"
            raise ValueError(f"{expected}, or temporal.insecure: true; got {self.address} without")
        return self


class ScanSettings(_Section):
    """How scanners behave; each cluster's scanner takes these when it is started."""

    cap: int = Field(default=1, ge=1, le=1000, description="nodes of a cluster that may be disrupted at once")
    start_up_grace: Duration = Field(
        default=timedelta(seconds=30), description="no new episode this long after a worker's view has synced (S18)"
    )
    wait: Annotated[Duration, _between("1s", "5m")] = Field(
        default=timedelta(seconds=60), description="a scan's long poll without news ends after this"
    )
    overlap: Overlap = Field(
        default=Overlap.STRICTEST, description="whether one closed brake among the health checks that cover a node holds it"
    )
    takeover: bool = Field(
        default=False, description="act on health checks although another controller acts on them; see docs/migrate.md"
    )
    at_risk_margin: Annotated[Duration, _at_most("5m: no detachment is known longer beforehand", timedelta(minutes=5))] = Field(
        default=timedelta(minutes=1), description="how long before Kubernetes detaches volumes by force people are told of it"
    )
    at_risk_repeat: Annotated[Duration, _within("at least 2m", timedelta(minutes=2), timedelta.max)] = Field(
        default=timedelta(minutes=30), description="how often they are told again"
    )


class RepeatAlarmSettings(_Section):
    """When a node that is fenced again and again is told of; each cluster's scanner takes this when it is started."""

    count: int = Field(default=3, ge=2, le=50, description="so many fencings of a node for one reason raise it")
    window: Annotated[Duration, _between("1m", "720h")] = Field(
        default=timedelta(hours=24), description="within which they are counted, at most 720h"
    )

    def alarm(self) -> RepeatAlarm:
        """For the scanner."""
        return RepeatAlarm(count=self.count, window=self.window)


class FenceCheckSettings(_Section):
    """How often all fence devices are read; each cluster's check takes this when its scanner is started."""

    enabled: bool = Field(default=True, description="false: only when somebody asks (nodewarden fence check)")
    every: Annotated[Duration, _between("5m", "168h")] = Field(
        default=timedelta(hours=1), description="between two checks, from 5m to 168h"
    )

    def interval(self) -> timedelta | None:
        """For the check; None where it is off."""
        return self.every if self.enabled else None


class NodeFenceSettings(_Section):
    """The NodeFences that mirror episodes, where their kind is installed."""

    kept_for: Duration = Field(default=timedelta(hours=1), description="how long one stays after its episode has ended")


class StormSettings(_Section):
    """No new fencing while at or above that percentage of a group of the scope is unresponsive."""

    percentage: int = Field(ge=1, le=100, description="from this share of a group on")
    scope: Annotated[str, AfterValidator(_scope)] = Field(
        default=CLUSTER, description="cluster, zone, pool or the key of a node label"
    )


class FencingSettings(_Section):
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
    skip_if_host_renews_lease: bool = Field(default=False, description="a host whose Node Lease is still renewed is left alone")
    pods_per_minute: int | None = Field(
        default=None, ge=1, le=MOST_PER_MINUTE, description="so many pods are freed by force at most, of all nodes together"
    )

    @field_validator("cap_per_scope")
    @classmethod
    def _known_scopes(cls, value: dict[str, int]) -> dict[str, int]:
        for scope in value:
            if _scope(scope) == CLUSTER:
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


class LogSettings(_Section):
    """What is written to stderr."""

    format: LogFormat = Field(default=LogFormat.PLAIN, description="plain: a line for people; json: an object a line")
    level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="the least that is written")


class WorkerSettings(_Section):
    """How much one worker process takes on."""

    cached_workflows: int = Field(default=1000, ge=1, description="open episodes kept in memory, about 0.4 MiB each")
    power_slots: int = Field(default=32, ge=1, le=200, description="power devices of one site acted on at once")
    fence_agents: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_listed)] = Field(
        default=(), description="fence agents taken besides those of the published package that switch and read a device"
    )
    cloud_endpoints: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_listed)] = Field(
        default=(), description="APIs beside Google's and Amazon's own that are given this worker's own cloud identity, as URLs"
    )
    credential_hosts: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_listed), AfterValidator(_hosts)] = Field(
        default=("*",), description="hosts of power devices to whom credentials go that do not say so themselves, networks also"
    )
    insecure_devices: InsecureDevices = Field(
        default=InsecureDevices.WARN,
        description="power devices where others could listen or answer: no TLS, or none that is verified; refuse, warn or allow",
    )
    signing_keys_file: UserPath | None = Field(
        default=None, description="keys by which the workers of a deployment know each other's words, one to a line, newest first"
    )
    signing_keys_secret: str = Field(default="", pattern=_SECRET, description=_SAME_ELSEWHERE)
    words: Literal["any", "verified"] = Field(
        default="any", description="verified: what a person says is refused where Kubernetes does not attest who they are"
    )
    graceful_shutdown: Duration = Field(
        default=timedelta(seconds=30), description="what a stopping worker lets its running activities take"
    )
    sticky_timeout: Duration = Field(
        default=timedelta(seconds=10), description="how long a workflow's next step waits for the worker that had it"
    )

    @model_validator(mode="after")
    def _one_source_of_keys(self) -> Self:
        if self.signing_keys_file is not None and self.signing_keys_secret:
            raise ValueError("give signing_keys_file or signing_keys_secret, not both")
        return self


class KdumpSettings(_Section):
    """The listener for fence_kdump messages, which tell that a node writes a crash dump."""

    listen: Annotated[str, _host_and_port("0.0.0.0:7410")] = Field(
        default="", description="host:port (UDP) to listen on, such as 0.0.0.0:7410; empty: not at all"
    )


class EvidenceSettings(_Section):
    """What is kept of a machine's failure when its preservation begins. The same directory is mounted on all workers."""

    directory: UserPath | None = Field(default=None, description="where evidence is written; without it none is collected")
    file_bytes: int = Field(default=1024 * 1024, ge=4096, le=64 * 1024 * 1024, description="the longest file; more is cut off")
    bundle_bytes: int = Field(
        default=8 * 1024 * 1024, ge=64 * 1024, le=1024 * 1024 * 1024, description="all files of one preservation together"
    )
    patience: Annotated[Duration, _between("1s", "45s")] = Field(
        default=timedelta(seconds=20), description="how long one worker spends on one preservation's evidence, from 1s to 45s"
    )


class PreservationSettings(_Section):
    """Pools whose failed machines are kept without anybody asking; a PreservationPolicy of the same name goes before one."""

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


class BackoffSettings(_Section):
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


class RemediationSettings(_Section):
    """How a replacement that fails is remediated in its turn, where its health check says nothing of that (by annotation)."""

    max_retry: int | None = Field(default=None, ge=0, le=MOST_RETRIES, description="then a person is asked; unset: no limit")
    retry_period: Annotated[Duration, _at_most("a year", LONGEST_PERIOD)] = Field(
        default=timedelta(0), description="between two remediations of a sequence"
    )
    min_healthy_period: Annotated[Duration, _at_most("a year", LONGEST_PERIOD)] = Field(
        default=DEFAULT_MIN_HEALTHY_PERIOD, description="whatever befalls a machine so long after the last is a new sequence"
    )
    backoff: BackoffSettings = BackoffSettings()

    def retries(self) -> RetryRules:
        """The same as the typed rules that everything downstream knows."""
        return RetryRules(
            max_retry=self.max_retry,
            retry_period=self.retry_period,
            min_healthy_period=self.min_healthy_period,
            backoff=self.backoff.pause(),
        )


class EmbeddedSettings(_Section):
    """The Temporal server that `nodewarden up` runs. The ports are wishes: taken ones are replaced, and kept from then on."""

    port: int = Field(default=7233, ge=1, le=65535, description="of the frontend")
    ui_port: int = Field(default=8233, ge=1, le=65535, description="of the web UI")


class TextSettings(_Section):
    """Title and text of a message, with fields in braces; what is not given is ours."""

    title: str = ""
    text: str = ""

    @field_validator("title", "text")
    @classmethod
    def _with_known_fields(cls, value: str) -> str:
        Wording(text=value)
        return value


def _selector(spec: dict[str, Any]) -> Selector:
    return parse_selector(Fields(spec, subject="labels"), [])


class NotificationSettings(_Section):
    """Who is told what by which services. The addresses are Apprise's, one a line; they contain tokens, so they are in a file."""

    url_file: UserPath = Field(description="file with addresses as Apprise has them, one a line; read at each sending")
    when: Annotated[tuple[When, ...], Field(min_length=1)] = Field(default=tuple(When), description="what is told; default: all")
    clusters: tuple[str, ...] = Field(default=(), description="of these clusters; none: of all")
    nodes: tuple[str, ...] = Field(default=(), description="of these nodes, by name with * and ?; none: of all")
    checks: tuple[str, ...] = Field(
        default=(), description="of nodes that these health checks cover, as `status` names them, with * and ?; none: of all"
    )
    labels: dict[str, Any] = Field(
        default_factory=dict,
        description="of nodes with these labels: a Kubernetes selector, `matchLabels` and `matchExpressions`",
    )
    outcomes: tuple[Outcome, ...] = Field(default=(), description="of episodes that have ended so; none: however")
    severity: Severity = Field(default=Severity.INFO, description="of what is at least so grave")
    after: Duration = Field(
        default=timedelta(0), description="of an episode that needs a person, once it has waited so long: escalation"
    )
    texts: dict[When, TextSettings] = Field(default_factory=dict, description="other words for some of it")

    @field_validator("labels")
    @classmethod
    def _selects(cls, value: dict[str, Any]) -> dict[str, Any]:
        try:
            _selector(value)
        except PolicyError as error:
            raise ValueError(str(error)) from error
        return value

    def rule(self) -> NoticeRule:
        """The same as the typed rule that everything downstream knows."""
        return NoticeRule(
            when=frozenset(self.when),
            clusters=frozenset(self.clusters),
            nodes=self.nodes,
            checks=self.checks,
            labels=_selector(self.labels),
            outcomes=frozenset(self.outcomes),
            severity=self.severity,
            after=self.after,
            wordings={when: Wording(title=each.title, text=each.text) for when, each in self.texts.items()},
        )


class TracingSettings(_Section):
    """Who takes the traces of episodes, by OTLP over HTTP. Needs the extra `otel`."""

    endpoint: str = Field(description="URL that takes traces, such as https://collector.example.org/v1/traces")
    headers_file: UserPath | None = Field(default=None, description="file with headers, `Name: value`, one a line: tokens")
    ca_file: UserPath | None = None
    insecure: bool = Field(default=False, description="go without TLS to one that is not on this machine")

    @model_validator(mode="after")
    def _nobody_in_between(self) -> Self:
        """Spans name clusters and nodes, and what is wrong with them."""
        found = urlsplit(self.endpoint)
        if found.scheme not in {"http", "https"} or not found.hostname or not found.path.strip("/"):
            raise ValueError(f"expected an endpoint such as https://collector.example.org/v1/traces, got {self.endpoint!r}")
        if found.scheme == "http" and not (self.insecure or is_loopback(found.hostname)):
            raise ValueError("expected https to an endpoint that is not on this machine, or insecure: true")
        return self


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
    sites: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_listed)] = Field(
        default=("default",), description="sites whose power devices this worker reaches"
    )
    secrets_directory: UserPath | None = Field(
        default=None, description="credentials of power devices as files, <namespace>/<name>/<key>; default: the cluster's API"
    )
    fence_namespace: str = Field(
        default=FENCE_NAMESPACE,
        pattern=f"^{_NAME}$",
        description="namespace in which fence configuration is read from ConfigMaps, by name",
    )
    template_namespaces: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_listed)] = Field(
        default=("nodewarden",),
        description="namespaces whose FencingTemplates count, beside that of the Machine health check which names one",
    )
    scan: ScanSettings = ScanSettings()
    repeat_alarm: RepeatAlarmSettings = RepeatAlarmSettings()
    fence_check: FenceCheckSettings = FenceCheckSettings()
    node_fence: NodeFenceSettings = NodeFenceSettings()
    fencing: FencingSettings = FencingSettings()
    page_url: WebAddress = Field(
        default="", description="where people find the page (nodewarden ui), for links in notifications and in Temporal"
    )
    node_name: str = Field(default="", description="the node we run on, never acted on from here (S16); else NODE_NAME")
    metrics: Annotated[str, _host_and_port("127.0.0.1:9464")] = Field(
        default="", description="host:port for Prometheus metrics; empty: none"
    )
    log: LogSettings = LogSettings()
    worker: WorkerSettings = WorkerSettings()
    kdump: KdumpSettings = KdumpSettings()
    evidence: EvidenceSettings = EvidenceSettings()
    preservation: PreservationSettings = PreservationSettings()
    remediation: RemediationSettings = RemediationSettings()
    notifications: tuple[NotificationSettings, ...] = Field(default=(), description="who is told what; see docs/notifications.md")
    tracing: TracingSettings | None = Field(default=None, description="who takes traces of episodes; see docs/metrics.md")
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
        return PolicySource(namespace=self.fence_namespace, templates=self.template_namespaces, policies=self.fencing.policies())

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
