"""`nodewarden deploy …`: print what a cluster needs, for `kubectl apply -f -`, or write the chart with all of it; nothing is
asked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from starter.commands.session import working
from starter.deploy.features import ALL, MEANINGS, ON_DEMAND, Process, features_of, processes_of

if TYPE_CHECKING:
    from collections.abc import Iterable

app = typer.Typer(help="Print what a cluster needs for `kubectl apply -f -`, or write the Helm chart.", no_args_is_help=True)

_FEATURES = (
    f"{ALL} (all but {', '.join(sorted(ON_DEMAND))}), or some of: "
    f"{'; '.join(f'{each} ({text})' for each, text in MEANINGS.items())}."
)


@app.command()
@working
async def rbac(
    context: typer.Context,
    *,
    features: Annotated[str, typer.Option("--features", metavar="A,B", help=_FEATURES)] = ALL,
    roles: Annotated[
        str,
        typer.Option(
            "--roles", metavar="A,B", help="Roles to grant, as nodewarden worker --role: all, or cluster,power,workflows."
        ),
    ] = Process.ALL,
    secrets: Annotated[
        str,
        typer.Option("--secrets", metavar="A,NAMESPACE/B", help="The only Secrets with credentials; default: all in nodewarden."),
    ] = "",
) -> None:
    """Print the rights of nodewarden's ServiceAccounts: exactly what these features need, with the reason for each."""
    from starter.deploy.rights import rbac as printed

    granted, processes = features_of(_listed(features)), processes_of(_listed(roles))
    _print(printed(features=granted, processes=processes, secrets=_listed(secrets)))


@app.command()
@working
async def leases(context: typer.Context) -> None:
    """Print the namespace of the node leases: to be applied first, and never deleted while medik8s' operators share it."""
    from starter.deploy.rights import leases as printed

    _print(printed())


@app.command()
@working
async def admission(
    context: typer.Context,
    *,
    taints: Annotated[
        str, typer.Option("--taints", metavar="KEY,KEY", help="Keys of taints that fence configurations name (method taint).")
    ] = "",
) -> None:
    """Print the policies by which the API server holds nodewarden's own patches of Nodes to nodewarden's own fields."""
    from starter.deploy.admission import admission as printed

    _print(printed(taints=_listed(taints)))


@app.command()
@working
async def network(
    context: typer.Context,
    *,
    bmc: Annotated[
        str, typer.Option("--bmc", metavar="NETWORKS", help="Of power devices, such as 10.20.0.0/16,10.21.0.0/16.")
    ] = "",
    api: Annotated[
        str, typer.Option("--api", metavar="NETWORKS", help="Of API servers; default: anywhere, at ports 443 and 6443.")
    ] = "",
    temporal: Annotated[
        str, typer.Option("--temporal", metavar="PLACE", help="The namespace, or the network, of Temporal's frontend.")
    ] = "temporal",
    metrics_from: Annotated[
        str, typer.Option("--metrics-from", metavar="NAMESPACES", help="Namespaces that may read metrics; default: none.")
    ] = "",
    cloud: Annotated[bool, typer.Option("--cloud", help="Machines are switched by EC2 or Compute Engine.")] = False,
) -> None:
    """Print a NetworkPolicy for the workers' pods: nothing reaches them, and they reach these places only."""
    from starter.deploy.network import network as printed

    _print(printed(bmc=_listed(bmc), api=_listed(api), temporal=temporal, metrics_from=_listed(metrics_from), cloud=cloud))


@app.command()
@working
async def crds(context: typer.Context) -> None:
    """Print the definitions of our kinds, such as FencingTemplate and NodeAction."""
    from starter.deploy import manifests

    typer.echo(manifests.printed(*manifests.crds()), nl=False)


@app.command()
@working
async def people(context: typer.Context) -> None:
    """Print what lets people command nodewarden by Kubernetes' own rights: a policy, and a ClusterRole to bind to people."""
    from starter.deploy import manifests

    typer.echo(manifests.printed(manifests.people()), nl=False)


@app.command()
@working
async def alerts(context: typer.Context) -> None:
    """Print rules for Prometheus: a file for rule_files, or the spec of a PrometheusRule."""
    from starter.deploy import manifests

    typer.echo(manifests.printed(manifests.alerts()), nl=False)


@app.command()
@working
async def dashboard(context: typer.Context) -> None:
    """Print the dashboard for Grafana, as JSON to import."""
    from starter.deploy import manifests

    typer.echo(manifests.printed(manifests.dashboard()), nl=False)


@app.command()
@working
async def chart(
    context: typer.Context,
    directory: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="Where it is written; must not be there yet.")],
) -> None:
    """Write the Helm chart of this version, for `helm upgrade --install nodewarden DIRECTORY --namespace nodewarden`."""
    from starter.deploy.manifests import write_chart

    write_chart(directory)
    typer.echo(f"wrote {directory}")


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _print(objects: Iterable[dict[str, Any]]) -> None:
    from starter.deploy.manifests import to_yaml

    typer.echo(to_yaml(objects), nl=False)
