"""How one process runs: which Temporal it talks to, how much it takes on, where its logs and traces go."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, field_validator, model_validator
from pydantic_settings import NoDecode

from policy.episode.events import When
from policy.episode.messages import Outcome
from policy.episode.notices import NoticeRule, Severity, Wording
from policy.fence.credential_hosts import hosts_written
from policy.fence.power import InsecureDevices
from policy.values.errors import PolicyError
from policy.values.fields import Fields
from policy.values.selectors import Selector, parse_selector
from workers.configuration.setting_types import (
    SAME_ELSEWHERE,
    SECRET_NAME,
    Duration,
    Section,
    UserPath,
    WebAddress,
    between,
    host_and_port,
    is_loopback,
    listed,
)


class TemporalSettings(Section):
    """The Temporal service. Without an address `nodewarden up` runs one of its own, and other commands find that one."""

    address: Annotated[str, host_and_port("localhost:7233")] = Field(default="", description="host:port of the frontend")
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
    payload_keys_secret: str = Field(default="", pattern=SECRET_NAME, description=SAME_ELSEWHERE)
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
    def _private_connection(self) -> Self:
        """A listener between us and Temporal would read all histories and could command in any name."""
        secret = self.api_key is not None or self.api_key_file is not None or self.tls_client_cert_file is not None
        encrypted = self.tls if self.tls is not None else secret
        if self.address and not (encrypted or self.insecure or is_loopback(self.address.rpartition(":")[0])):
            expected = "expected TLS (temporal.tls, a certificate or an API key) to a Temporal that is not on this machine"
            raise ValueError(f"{expected}, or temporal.insecure: true; got {self.address} without")
        return self


class LogFormat(StrEnum):
    """plain: one line for people. json: one object a line, for collectors."""

    PLAIN = "plain"
    JSON = "json"


class LogSettings(Section):
    """What is written to stderr."""

    format: LogFormat = Field(default=LogFormat.PLAIN, description="plain: a line for people; json: an object a line")
    level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="the least that is written")


def _hosts(value: tuple[str, ...]) -> tuple[str, ...]:
    return hosts_written(" ".join(value))


class WorkerSettings(Section):
    """How much one worker process takes on."""

    cached_workflows: int = Field(default=1200, ge=1, description="open episodes kept in memory, about 0.4 MiB each")
    power_slots: int = Field(default=32, ge=1, le=200, description="power devices of one site acted on at once")
    fence_agents: Annotated[tuple[str, ...], NoDecode, BeforeValidator(listed)] = Field(
        default=(), description="fence agents taken besides those of the published package that switch and read a device"
    )
    cloud_endpoints: Annotated[tuple[str, ...], NoDecode, BeforeValidator(listed)] = Field(
        default=(), description="APIs beside Google's and Amazon's own that are given this worker's own cloud identity, as URLs"
    )
    credential_hosts: Annotated[tuple[str, ...], NoDecode, BeforeValidator(listed), AfterValidator(_hosts)] = Field(
        default=(),
        description="hosts and networks of power devices that get credentials which name no hosts themselves; "
        "default: Secrets go where the check of devices met them first, files and variables to none",
    )
    credential_variables: dict[str, tuple[Annotated[str, Field(pattern="^NODEWARDEN_CREDENTIAL_[A-Za-z0-9_]+$")], ...]] = Field(
        default_factory=dict, description="variables of this worker that fence configuration may name (env:), by cluster"
    )
    insecure_devices: InsecureDevices = Field(
        default=InsecureDevices.WARN,
        description="power devices without TLS, or without TLS that is verified: refuse, warn or allow",
    )
    signing_keys_file: UserPath | None = Field(
        default=None, description="keys by which the workers of a deployment verify messages, one to a line, newest first"
    )
    signing_keys_secret: str = Field(default="", pattern=SECRET_NAME, description=SAME_ELSEWHERE)
    commands: Literal["any", "verified"] = Field(
        default="verified",
        description="verified: what a person says is refused where Kubernetes does not attest who they are (docs/security.md); "
        "any: a client of Temporal can have a healthy machine switched off, and pods freed on its word",
    )
    graceful_shutdown: Duration = Field(
        default=timedelta(seconds=30), description="how long a stopping worker waits for its running activities"
    )
    sticky_timeout: Duration = Field(
        default=timedelta(seconds=10), description="how long a workflow's next step waits for the worker that had it"
    )

    @model_validator(mode="after")
    def _one_source_of_keys(self) -> Self:
        if self.signing_keys_file is not None and self.signing_keys_secret:
            raise ValueError("give signing_keys_file or signing_keys_secret, not both")
        return self


class KdumpSettings(Section):
    """The listener for fence_kdump messages, which tell that a node writes a crash dump."""

    listen: Annotated[str, host_and_port("0.0.0.0:7410")] = Field(
        default="", description="host:port (UDP) to listen on, such as 0.0.0.0:7410; empty: not at all"
    )


class EvidenceSettings(Section):
    """What is kept of a machine's failure when its preservation begins. The same directory is mounted on all workers."""

    directory: UserPath | None = Field(default=None, description="where evidence is written; without it none is collected")
    file_bytes: int = Field(default=1024 * 1024, ge=4096, le=64 * 1024 * 1024, description="the longest file; more is cut off")
    bundle_bytes: int = Field(
        default=8 * 1024 * 1024, ge=64 * 1024, le=1024 * 1024 * 1024, description="all files of one preservation together"
    )
    patience: Annotated[Duration, between("1s", "45s")] = Field(
        default=timedelta(seconds=20), description="how long one worker spends on one preservation's evidence, from 1s to 45s"
    )


class OtlpSettings(Section):
    """Who takes what is sent by OTLP over HTTP. Needs the extra `otel`."""

    example: ClassVar[str]

    endpoint: str
    headers_file: UserPath | None = Field(default=None, description="file with headers, `Name: value`, one a line: tokens")
    ca_file: UserPath | None = None
    insecure: bool = Field(default=False, description="go without TLS to one that is not on this machine")

    @model_validator(mode="after")
    def _private_endpoint(self) -> Self:
        """It names clusters and nodes, and what is wrong with them."""
        found = urlsplit(self.endpoint)
        if found.scheme not in {"http", "https"} or not found.hostname or not found.path.strip("/"):
            raise ValueError(f"expected an endpoint such as {self.example}, got {self.endpoint!r}")
        if found.scheme == "http" and not (self.insecure or is_loopback(found.hostname)):
            raise ValueError("expected https to an endpoint that is not on this machine, or insecure: true")
        return self


class TracingSettings(OtlpSettings):
    """Who takes the traces of episodes, by OTLP over HTTP. Needs the extra `otel`."""

    example = "https://collector.example.org/v1/traces"

    endpoint: str = Field(description=f"URL that takes traces, such as {example}")


class LogsSettings(OtlpSettings):
    """Who takes the decision stream as logs, by OTLP over HTTP. Needs the extra `otel`."""

    example = "https://collector.example.org/v1/logs"

    endpoint: str = Field(description=f"URL that takes logs, such as {example}")


class StreamSettings(Section):
    """Where the decision stream goes: every decision as a record, for a store of yours."""

    file: UserPath | None = Field(default=None, description="file that lines of JSON are appended to; `-`: standard output")
    otlp: LogsSettings | None = Field(default=None, description="who takes the same as logs")


RETENTION = timedelta(days=90)
"""How long the embedded server remembers closed workflows where nothing else is set."""


class EmbeddedSettings(Section):
    """The Temporal server that `nodewarden up` runs. The ports are wishes: taken ones are replaced, and kept from then on."""

    port: int = Field(default=7233, ge=1, le=65535, description="of the frontend")
    ui_port: int = Field(default=8233, ge=1, le=65535, description="of the web UI")
    retention: Annotated[Duration, between("24h", "87600h")] = Field(
        default=RETENTION, description="how long it remembers what has ended, from 24h to 87600h (ten years)"
    )


# Who is notified of what, by which services, in which words.


class TextSettings(Section):
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


class NotificationSettings(Section):
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
    outcomes: tuple[Outcome, ...] = Field(default=(), description="of episodes with these outcomes; none: any outcome")
    severity: Severity = Field(default=Severity.INFO, description="of at least this severity")
    after: Duration = Field(default=timedelta(0), description="once an episode has waited this long for a person: escalation")
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
