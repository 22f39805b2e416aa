"""The command `nodewarden`. Each command lives in `starter/commands/` and is a thin skin over `starter/client.py`.

Heavy imports happen inside the commands: help and completion answer before Temporal's SDK would be loaded.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperOption

from starter.commands import (
    deploy,
    episodes,
    explain,
    fence,
    history,
    installation,
    mode,
    preserve,
    processes,
    remediate,
    scan,
    servers,
)
from starter.commands.arguments import ClusterOption, OutputOption
from starter.commands.session import EXIT_CODES, Session

_type_shown = TyperOption.display_type_rich
# A flag takes no value, but typer shows `<bool>` after each, also after its own --help: the class of that one can't be chosen.
TyperOption.display_type_rich = lambda option, ctx: "" if option.is_flag else _type_shown(option, ctx)  # type: ignore[method-assign]

app = typer.Typer(
    name="nodewarden",
    help="Keeps the nodes of Kubernetes clusters working: durable remediation and fencing on Temporal.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def globals_(
    context: typer.Context,
    *,
    cluster: ClusterOption = "",
    output: OutputOption = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", help="Settings file; default: nodewarden.yaml in ~/.config/nodewarden.", metavar="FILE"),
    ] = None,
    kube_context: Annotated[
        str, typer.Option("--context", help="Kubeconfig context of the cluster, as kubectl's.", metavar="NAME")
    ] = "",
    kubeconfig: Annotated[
        Path | None, typer.Option("--kubeconfig", help="Kubeconfig file, as kubectl's; default: $KUBECONFIG.", metavar="FILE")
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an unexpected error comes from.")] = False,
    show_version: Annotated[  # noqa: ARG001 - its callback has answered by then
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=installation.print_and_exit)
    ] = False,
) -> None:
    """Options that every command understands."""
    context.obj = Session(cluster=cluster, output=output, config=config, debug=debug, context=kube_context, kubeconfig=kubeconfig)


app.command("up")(processes.up)
app.command("worker")(processes.worker)
app.add_typer(scan.app, name="scan")
app.command("pause")(scan.pause)
app.command("unpause")(scan.unpause)
app.add_typer(mode.app, name="mode")
app.command("status")(scan.status)
app.command("ui")(servers.ui)
app.command("history")(history.history)
app.command("record")(history.record)
app.command("compare")(history.compare)
app.command("offenders")(history.offenders)
app.command("report")(history.report)
app.command("doctor")(installation.doctor)
app.command("evaluate")(explain.evaluate)
app.command("explain")(explain.explain)
app.add_typer(fence.app, name="fence")
app.add_typer(remediate.app, name="remediate")
app.add_typer(preserve.app, name="preserve")
app.command("release")(preserve.release)
app.command("preserved")(preserve.preserved)
app.add_typer(servers.app, name="codec")
app.command("abort")(episodes.abort)
app.command("ack-off")(episodes.ack_off)
app.command("hold")(episodes.hold)
app.command("resume")(episodes.resume)
app.command("return-path")(episodes.return_path)
app.add_typer(deploy.app, name="deploy")
app.add_typer(installation.app, name="settings")
app.command("uninstall")(installation.uninstall)
app.command("version")(installation.version)


def main() -> None:
    """Entry point of the console script."""
    run_as("nodewarden")


def run_as(name: str, *, at_last: str = "") -> None:
    """Run the command line under a name. An unexpected error passes through, for its traceback. at_last: a line printed last."""
    try:
        app(prog_name=name)
    except SystemExit as ending:
        if at_last:
            typer.echo(at_last)
        if "temporalio.bridge" not in sys.modules:
            raise
        from workers.os_process import leave

        leave(ending.code if isinstance(ending.code, int) else int(bool(ending.code)))


if __name__ == "__main__":
    main()
