"""Which clusters there are and how each is reached, as settings say it; with none named, the one kubectl would talk to.

Names and places first; then their connections, opened. The client is loaded with the first.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import yaml
from pydantic import Field, model_validator

from workers.configuration.setting_types import Section, UserPath
from workers.errors import SettingsError

if TYPE_CHECKING:
    from activities.cluster.api.connection import ClusterConnection

SAFE_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
IN_CLUSTER_NAME = "in-cluster"


class ConnectionSettings(Section):
    """A way to an API server: a kubeconfig context (the default), the pod's own service account, or a URL with a token.

    qps, burst and the like are absent on purpose: the watch cache makes a handful of requests in a cluster of any size.
    """

    kubeconfig: UserPath | None = Field(default=None, description="a kubeconfig file; default: as kubectl finds it")
    context: str = Field(default="", description="a context of the kubeconfig; default: its current one")
    in_cluster: bool = Field(default=False, description="use the service account of the pod we run in")
    server: str = Field(default="", description="URL of the API server, with token_file and ca_file")
    token_file: UserPath | None = Field(default=None, description="file with the bearer token, read again when it changes")
    ca_file: UserPath | None = Field(default=None, description="file with the CA certificates of `server`")

    @model_validator(mode="after")
    def _one_way_in(self) -> Self:
        by_kubeconfig = self.kubeconfig is not None or self.context != ""
        if by_kubeconfig + self.in_cluster + (self.server != "") > 1:
            raise ValueError("give one of: kubeconfig/context, in_cluster, server")
        if self.server and not self.server.startswith(("http://", "https://")):
            raise ValueError(f"server: expected a URL such as https://api.example.com:6443, got {self.server!r}")
        if not self.server and (self.token_file or self.ca_file):
            raise ValueError("token_file and ca_file belong to server, which is not set")
        return self


class ClusterSettings(ConnectionSettings):
    """One cluster. Its nodes are found over its own connection, and so is everything else but for `machines`."""

    machines: ConnectionSettings | None = Field(
        default=None, description="the management cluster, where Cluster API keeps this cluster's Machines and health checks"
    )
    force_detach_on_timeout: bool = Field(
        default=True, description="false where kube-controller-manager runs with --disable-force-detach-on-timeout"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentContext:
    """What kubectl would use: the context's name and the file it was read from."""

    name: str
    kubeconfig: Path


def safe_name(name: str) -> str:
    """A context's name as a cluster's: it becomes part of workflow ids (`episode/<cluster>/<node>`) and of a queue's name."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:63].strip("-._")
    return safe or "cluster"


def cluster_named(context: str) -> str:
    """What the cluster of that context is called where the settings do not name it. Raises ValueError where another context of
    the kubeconfig would be called so as well: requests go by the name, and would reach that cluster's workers (S9)."""
    name = safe_name(context)
    if alike := [each for each in contexts() if each != context and safe_name(each) == name]:
        raise ValueError(f"the contexts {context!r} and {alike[0]!r} would both be called {name}; give each a name in `clusters`")
    return name


def kubeconfig_files() -> list[Path]:
    """The files kubectl reads, in its order: $KUBECONFIG's, else ~/.kube/config."""
    listed = [Path(entry).expanduser() for entry in os.environ.get("KUBECONFIG", "").split(os.pathsep) if entry]
    return listed or [Path.home() / ".kube" / "config"]


def current_context() -> CurrentContext | None:
    """The current context: the first file that names one wins, as in kubectl. None where no readable file names one.

    Raises ValueError naming the file that cannot be read as a kubeconfig.
    """
    for path, parsed in _kubeconfigs():
        if name := parsed.get("current-context"):
            return CurrentContext(name=str(name), kubeconfig=path)
    return None


def contexts() -> list[str]:
    """All contexts of the files that kubectl reads. Raises ValueError as `current_context` does."""
    listed = (each for _, parsed in _kubeconfigs() for each in parsed.get("contexts") or ())
    return [str(each["name"]) for each in listed if isinstance(each, dict) and each.get("name")]


def _kubeconfigs() -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in kubeconfig_files():
        if not path.is_file():
            continue
        try:
            parsed = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ValueError(f"{path}: expected a readable kubeconfig: {str(error).splitlines()[0]}") from error
        if isinstance(parsed, dict):
            yield path, parsed


def default_clusters() -> dict[str, ClusterSettings]:
    """The cluster meant when none is named: the current kubeconfig context, else the one we run in; empty if neither is."""
    context = current_context()
    if context is not None:
        return {cluster_named(context.name): ClusterSettings(context=context.name)}
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return {IN_CLUSTER_NAME: ClusterSettings(in_cluster=True)}
    return {}


async def open_connection(name: str, cluster: ConnectionSettings) -> ClusterConnection:
    """The connection that the settings describe. It is made when first used: an API that is down now is no mistake."""
    from temporalio.exceptions import ApplicationError

    from activities.cluster.api.connection import ClusterConnection

    try:
        if cluster.in_cluster:
            return ClusterConnection.in_cluster()
        if cluster.server:
            return ClusterConnection.to(cluster.server, token_file=cluster.token_file, certificate_authority=cluster.ca_file)
        return await ClusterConnection.from_kubeconfig(cluster.kubeconfig, cluster.context)
    except ApplicationError as error:
        raise SettingsError(f"clusters.{name}: {error.message}") from error


@asynccontextmanager
async def open_cluster(name: str, cluster: ClusterSettings) -> AsyncIterator[tuple[ClusterConnection, ClusterConnection | None]]:
    """Its connection, and that to where Cluster API's objects live, None where they live in the cluster itself."""
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(await open_connection(name, cluster))
        machines = None
        if cluster.machines is not None:
            machines = await stack.enter_async_context(await open_connection(f"{name}.machines", cluster.machines))
        yield connection, machines
