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
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, InitSettingsSource, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings import SettingsError as SourceError

from policy.checks.fence_policies import PolicySource
from policy.values.object_refs import FENCE_NAMESPACE
from workers.configuration.acting_settings import (
    DeviceCheckSettings,
    FencingSettings,
    NodeFenceSettings,
    OffenderSettings,
    PreservationSettings,
    RemediationSettings,
    RepeatAlarmSettings,
    ScanSettings,
)
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
from workers.configuration.setting_types import NAME, UserPath, WebAddress, host_and_port, listed
from workers.errors import SettingsError


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
