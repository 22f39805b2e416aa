"""`nodewarden fence NODE`: start a fencing by hand, or join the same request; with --wait, see it through. `fence plan` shows
what would be done, live or from files; `fence check` reads the devices, and does nothing.

A node that is called like a command of the group is fenced by the command's full name, `nodewarden fence begin NODE`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands.arguments import (
    BEGIN,
    FilesOption,
    NodeArgument,
    NodeOrCommand,
    OverrideOption,
    ReasonOption,
    WhoOption,
    YesOption,
    for_a_cluster,
)
from starter.commands.episodes import FENCING, confirmed, follow
from starter.commands.session import Exit, Session, given, show
from starter.errors import NoSuchNodeError
from starter.output import PIPE_WIDTH
from workers.errors import SettingsError

if TYPE_CHECKING:
    from policy.values.object_refs import ObjectRef

TemplateOption = Annotated[
    str,
    typer.Option("--template", metavar="NAMESPACE/NAME", help="FencingTemplate; default: the node's check's, or the only one."),
]

app = typer.Typer(
    cls=NodeOrCommand,
    help="Fence a node (`fence NODE` is `fence begin NODE`), or see what fencing it would do, or whether it could.",
)


@app.command(BEGIN)
@for_a_cluster
async def begin(
    session: Session,
    node: NodeArgument,
    *,
    reason: ReasonOption = "",
    who: WhoOption = "",
    template: TemplateOption = "",
    override: OverrideOption = None,
    yes: YesOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be done, as `fence plan` does. Needs no reason.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait for the end; exit 1 if the node was not repaired.")] = False,
) -> Exit | None:
    """Power-cycle NODE, free its pods once it is proven off, and bring it back. Needs a reason, and a permit from the cluster's
    scanner.
    """
    named = template_of(template)
    if dry_run:
        return await show_plan(session, node, named)
    why = given("--reason", reason)
    question = f"Switch {node} off and on again, and delete its pods?"
    if (refused := await confirmed(FENCING, question, node, yes=yes, override=override)) is not None:
        return refused
    async with session.connected() as (warden, _, name):
        episode = await warden.fence(name, node, reason=why, requester=who, template=named, override=",".join(override or ()))
        return await follow(session, episode, FENCING, to_its_end=wait)


@app.command("plan")
@for_a_cluster
async def plan(
    session: Session,
    node: NodeArgument,
    *,
    filename: FilesOption = None,
    template: TemplateOption = "",
) -> Exit:
    """Show which fence configuration holds for NODE and what each step of it would do. Nothing is done, and no secret is shown.

    Without -f the cluster is read; with it, only the files are. Exit code 1: the configuration has errors and would be refused;
    4: there is no such node.
    """
    return await show_plan(session, node, template_of(template), files=filename or ())


async def show_plan(session: Session, node: str, template: ObjectRef | None, *, files: Sequence[str] = ()) -> Exit:
    """Print what fencing the node would do. template: the one that is to be carried out, None for the node's own. files: what is
    read instead of the cluster."""
    from activities.cluster.objects.live_node import all_names
    from policy.fence.config import shown_config
    from starter.plans.fence_plans import as_table, planned, planned_from_files

    settings = session.settings()
    source = settings.policy_source()
    if files:
        found = await planned_from_files(files, node, template, source=source)
    else:
        async with session.reading(settings) as (connection, machines):
            try:
                found = await planned(connection, node, template, source=source, machines=machines)
            except NoSuchNodeError:
                raise NoSuchNodeError(node, await all_names(connection)) from None
    show(session, lambda: shown_config(found), lambda: as_table(found), width=PIPE_WIDTH)
    return Exit.FAILED if found.errors else Exit.OK


def template_of(text: str) -> ObjectRef | None:
    """What --template names, None for nothing. Raises SettingsError."""
    from policy.fence.template_reader import GROUP, KIND, VERSION
    from policy.values.object_refs import ObjectRef

    if not text:
        return None
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise SettingsError(f"--template: expected NAMESPACE/NAME of a {KIND}, got {text!r}")
    return ObjectRef(api_version=f"{GROUP}/{VERSION}", kind=KIND, name=name, namespace=namespace)


@app.command("check")
@for_a_cluster
async def check(
    session: Session,
    *,
    node: Annotated[str, typer.Option("--node", metavar="NODE", help="Only this node's devices.")] = "",
    admit: Annotated[
        bool, typer.Option("--admit", help="With --node: credentials that name no hosts may go to its devices from now on.")
    ] = False,
) -> Exit:
    """Read the state of every configured fence device, and show how fast it answered and when it last did. Never acts.

    Exit code 1: some device did not answer, or some node has no usable fence configuration.
    """
    from starter.output.status_table import devices_table

    if admit and not node:
        raise typer.BadParameter("expected --node with it: each new address is one person's decision", param_hint="--admit")
    async with session.connected() as (warden, settings, name):
        if node:
            await session.expect_node(settings, name, node)
        report = await warden.check_devices(name, node, admit=admit)
    show(session, lambda: report, lambda: devices_table(report), width=PIPE_WIDTH)
    return Exit.FAILED if report.problems else Exit.OK
