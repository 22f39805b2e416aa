"""`nodewarden preserve plan -f FILE…`: which machines would be kept, released or given up, without any cluster or server."""

from __future__ import annotations

import typer

from starter.commands.arguments import OutputOption
from starter.commands.offline import FilesOption, NowOption, moment_of
from starter.commands.session import Exit, session_of, show, working
from starter.output import PIPE_WIDTH


@working
async def plan(
    context: typer.Context,
    *,
    filename: FilesOption = None,
    now: NowOption = "",
    output: OutputOption = None,
) -> Exit:
    """Show which machines in the files would be preserved, until when, and which would be given up. Nothing is done.

    The files hold Machines, MachineDeployments, Nodes, health checks and PreservationPolicies as kubectl get -o yaml prints them,
    or a block machineControllerManager. Exit code 1: some object could not be used; everything else was judged all the same.
    """
    from starter.plans.preserve_plans import as_model, as_table, planned_from_files
    from workers.configuration.setting_sources import SettingsError

    session = session_of(context, output=output)
    if not filename:
        raise SettingsError("-f: expected a file with Kubernetes objects, got nothing")
    found = planned_from_files(filename, moment_of(now))
    show(session, lambda: as_model(found), lambda: as_table(found), width=PIPE_WIDTH)
    return Exit.FAILED if found.errors else Exit.OK
