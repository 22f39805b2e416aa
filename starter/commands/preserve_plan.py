"""`nodewarden preserve plan -f FILE…`: which machines would be kept, released or given up, without any cluster or server."""

from __future__ import annotations

import json

import typer

from starter.commands.offline import FilesOption, NowOption, moment_of
from starter.commands.session import Exit, Output, OutputOption, run, session_of


def plan(
    context: typer.Context,
    *,
    filename: FilesOption = None,
    now: NowOption = "",
    output: OutputOption = None,
) -> None:
    """Show which machines in the files would be preserved, until when, and which would be given up. Nothing is done.

    The files hold Machines, MachineDeployments, Nodes, health checks and PreservationPolicies as kubectl get -o yaml prints them,
    or a block machineControllerManager. Exit code 1: some object could not be used; everything else was judged all the same.
    """
    session = session_of(context, output=output)

    async def work() -> Exit:
        from starter.plans.preserve_plans import as_json, as_table, planned_from_files
        from workers.configuration.setting_sources import SettingsError

        if not filename:
            raise SettingsError("-f: expected a file with Kubernetes objects, got nothing")
        found = planned_from_files(filename, moment_of(now))
        if session.output is Output.JSON:
            typer.echo(json.dumps(as_json(found), indent=2, ensure_ascii=False))
        else:
            from starter.output.display import fitting_console

            fitting_console().print(as_table(found))
        return Exit.FAILED if found.errors else Exit.OK

    run(session, work)
