"""What the values of deploy/chart/nodewarden may be. `values.schema.json` and the table of docs/install.md are made from it.

The defaults stand twice, here and with their reasons in `values.yaml`; tests/deploy/test_chart_values.py holds them equal.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from policy.episode.events import When
from policy.episode.messages import Outcome
from starter.deploy.features import SHIPPED, Feature
from workers.configuration.settings import Settings

_NAME = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_OBJECT = rf"{_NAME}(\.{_NAME})*"
_BUILD = r"^[A-Za-z0-9]([-A-Za-z0-9._+]{0,30}[A-Za-z0-9])?$"

SecretName = Annotated[str, Field(pattern=f"^({_OBJECT})?$")]
Network = Annotated[str, Field(pattern=r"^[0-9a-fA-F.:]+/[0-9]{1,3}$")]
Digest = Annotated[str, Field(pattern=r"^(sha256:[0-9a-f]{64})?$")]
Labels = dict[str, str]
Objects = list[dict[str, Any]]


class _Values(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Image(_Values):
    repository: str = Field(default="nodewarden", description="with the registry; `make image` builds it")
    tag: str = Field(default="", description="default: the chart's appVersion")
    digest: Digest = Field(default="", description="goes before the tag")
    pullPolicy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    pullSecrets: list[SecretName] = Field(default=[], description="Secrets for the registry")


class Worker(_Values):
    """One Deployment."""

    role: Literal["all", "workflows", "cluster", "power"] = Field(description="what it serves, as `nodewarden worker --role`")
    site: str = Field(
        default="", pattern=f"^({_NAME})?$", description="site with power devices that it reaches; else settings.sites"
    )
    replicas: int = Field(default=2, ge=0, le=100, description="two, on two nodes: none acts on the node that it runs on")
    resources: dict[str, Any] = Field(default={}, description="default: resources")
    nodeSelector: Labels = Field(default={}, description="default: nodeSelector")
    tolerations: Objects = Field(default=[], description="default: tolerations")
    affinity: dict[str, Any] = Field(default={}, description="default: affinity")


class ServiceAccount(_Values):
    annotations: Labels = Field(default={}, description="such as those by which a cloud gives workers an identity of their own")


class Notification(_Values):
    """Who is told what. The Secret's key `urls` has addresses as Apprise has them, one a line."""

    secret: str = Field(pattern=f"^{_OBJECT}$")
    when: list[When] = list(When)
    clusters: list[str] = []
    checks: list[str] = []
    labels: dict[str, Any] = {}
    outcomes: list[Outcome] = []


class Secrets(_Values):
    """By name, in the namespace nodewarden."""

    temporalApiKey: SecretName = Field(default="", description="key `api-key`")
    temporalTls: SecretName = Field(default="", description="type kubernetes.io/tls: our certificate to Temporal")
    temporalCa: SecretName = Field(default="", description="key `ca.crt`: who vouches for Temporal")
    notifications: list[Notification] = Field(
        default=[], description="each `{secret, when, clusters, checks, labels, outcomes}`; key `urls`"
    )


class Keys(_Values):
    create: bool = Field(default=True, description="false: others make nodewarden-signing-keys and nodewarden-payload-keys")
    encryptPayloads: bool = Field(default=False, description="what is told to Temporal is encrypted (docs/security.md)")


class Build(_Values):
    """A build that still has open episodes."""

    buildId: str = Field(pattern=_BUILD)
    tag: str = ""
    digest: Digest = ""


class Versioning(_Values):
    deployment: str = Field(default="", description="the worker deployment's name; empty: workers are unversioned")
    buildId: str = Field(
        default="", pattern=rf"^$|{_BUILD}", description="of image; default: its tag, else the chart's appVersion"
    )
    previous: list[Build] = Field(
        default=[], description="builds that still run beside it, each `{buildId, tag, digest}`; tag's default is buildId"
    )


class Install(_Values):
    install: bool = True


class LeasesNamespace(_Values):
    create: bool = Field(default=True, description="medik8s-leases, where it is missing; it is never deleted")


class NetworkValues(_Values):
    enabled: bool = Field(default=False, description="a NetworkPolicy for the workers, as `nodewarden deploy network`")
    bmc: list[Network] = Field(default=[], description="networks of power devices")
    api: list[Network] = Field(default=[], description="of API servers; default: anywhere, at 443 and 6443")
    temporal: str = Field(default="temporal", description="namespace or network of Temporal's frontend")
    metricsFrom: list[str] = Field(default=[], description="namespaces that read metrics")
    pageFrom: list[str] = Field(default=[], description="namespaces that may reach the page; default: all that can")
    cloud: bool = Field(default=False, description="machines are switched by EC2 or Compute Engine")


class Proxy(_Values):
    image: str = Field(default="", description="kube-rbac-proxy by a digest that you trust; empty: none, and no Service")


class ServiceMonitor(_Values):
    enabled: bool = Field(default=False, description="needs the Prometheus operator, and metrics.proxy.image")
    interval: str = "30s"
    labels: Labels = {}


class Metrics(_Values):
    proxy: Proxy = Proxy()
    serviceMonitor: ServiceMonitor = ServiceMonitor()


class Shown(_Values):
    enabled: bool = False
    labels: Labels = {}


class PageTls(_Values):
    secretName: SecretName = Field(
        default="", description="type kubernetes.io/tls: the page speaks TLS itself, and shows a renewed certificate by itself"
    )


class Page(_Values):
    """`nodewarden ui` in the cluster."""

    enabled: bool = Field(default=False, description="the page, for all who have a token of the cluster (docs/page.md)")
    replicas: int = Field(default=1, ge=1, le=20, description="more than one needs sessionKeys")
    tls: PageTls = PageTls()
    behindProxy: bool = Field(
        default=False, description="a proxy or an Ingress speaks TLS before it, and hands on the Authorization header"
    )
    sessionKeys: SecretName = Field(
        default="", description="a Secret with `session-keys` that seal browsers' sessions; empty: a restart ends all of them"
    )
    readsObjects: bool = Field(
        default=True,
        description="it lists nodes, Machines, health checks and the like, and changes none; false: the fleet, the checks of a "
        "node and a changed check are not shown",
    )
    host: str = Field(default="0.0.0.0", pattern=r"^[0-9a-fA-F.:]+$", description="`::` in a cluster of IPv6")  # noqa: S104 - a pod's
    annotations: Labels = Field(default={}, description="of the Service")
    resources: dict[str, Any] = {"requests": {"cpu": "50m", "memory": "160Mi"}, "limits": {"memory": "512Mi"}}
    extraVolumes: Objects = Field(default=[], description="such as one with a kubeconfig that settings.clusters names")
    extraVolumeMounts: Objects = []


class Values(_Values):
    """All values."""

    image: Image = Image()
    workers: list[Worker] = Field(
        default=[Worker(role="all")],
        min_length=1,
        description="the Deployments, each `{role, site, replicas, …}`: one with role all, or some of workflows, cluster, power; "
        "of each 2 replicas where it says nothing",
    )
    serviceAccount: ServiceAccount = ServiceAccount()
    features: list[Feature] = Field(
        default=[each for each in Feature if each in SHIPPED],
        description="what may be changed, as `nodewarden deploy rbac --features`",
    )
    deviceSecrets: list[Annotated[str, Field(pattern=f"^({_OBJECT}/)?{_OBJECT}$")]] = Field(
        default=[], description="the only Secrets of devices that are read, NAME or NAMESPACE/NAME; default: all in nodewarden"
    )
    taints: list[str] = Field(default=[], description="keys of taints that fence configurations name (method taint)")
    settings: Settings = Field(description="nodewarden.yaml as it is, without its secrets")
    secrets: Secrets = Secrets()
    keys: Keys = Keys()
    versioning: Versioning = Versioning()
    crds: Install = Field(default=Install(), description="our definitions; kept when the release goes")
    leasesNamespace: LeasesNamespace = LeasesNamespace()
    admission: Install = Field(default=Install(), description="the API server holds our patches of Nodes to our own fields")
    people: Install = Field(default=Install(), description="who may say what, by Kubernetes' own rights (docs/security.md)")
    network: NetworkValues = NetworkValues()
    ui: Page = Page()
    metrics: Metrics = Metrics()
    alerts: Shown = Field(default=Shown(), description="a PrometheusRule; needs the Prometheus operator")
    dashboard: Shown = Field(default=Shown(labels={"grafana_dashboard": "1"}), description="a ConfigMap for Grafana's sidecar")
    priorityClassName: str = "system-cluster-critical"
    terminationGracePeriodSeconds: int = Field(
        default=45, ge=1, description="at least settings.worker.graceful_shutdown and ten seconds"
    )
    resources: dict[str, Any] = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}
    podLabels: Labels = {}
    podAnnotations: Labels = {}
    nodeSelector: Labels = {}
    tolerations: Objects = []
    affinity: dict[str, Any] = {}
    extraVolumes: Objects = Field(default=[], description="such as one for evidence.directory")
    extraVolumeMounts: Objects = []
    global_: dict[str, Any] = Field(default={}, alias="global", description="Helm's own; nothing here reads it")
