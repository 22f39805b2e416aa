"""`nodewarden fence plan NODE`: what would be done to fence it, without doing it; live, or from files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands.arguments import ClusterOption, NodeArgument, OutputOption
from starter.commands.offline import FilesOption
from starter.commands.session import Exit, Session, session_of, show, working

if TYPE_CHECKING:
    from policy.values.object_refs import ObjectRef


TemplateOption = Annotated[
    str,
    typer.Option("--template", metavar="NAMESPACE/NAME", help="FencingTemplate; default: the node's check's, or the only one."),
]


@working
async def plan(
    context: typer.Context,
    node: NodeArgument,
    *,
    filename: FilesOption = None,
    template: TemplateOption = "",
    cluster: ClusterOption = "",
    output: OutputOption = None,
) -> Exit:
    """Show which fence configuration holds for NODE and what each step of it would do. Nothing is done, and no secret is shown.

    Without -f the cluster is read; with it, only the files are. Exit code 1: the configuration has errors and would be refused;
    4: there is no such node.
    """
    session = session_of(context, cluster=cluster, output=output)
    return await show_plan(session, node, template_of(template), files=filename or ())


async def show_plan(session: Session, node: str, template: ObjectRef | None, *, files: Sequence[str] = ()) -> Exit:
    """Print what fencing the node would do. template: the one that is to be carried out, None for the node's own. files: what is
    read instead of the cluster."""
    from activities.cluster.objects.live_node import all_names
    from policy.fence.config import shown_config
    from starter.errors import NoSuchNodeError
    from starter.plans.fence_plans import as_table, planned, planned_from_files

    settings = session.settings()
    source = settings.policy_source()
    if files:
        found = await planned_from_files(files, node, template, source=source)
    else:
        async with session.reading(settings) as (_, connection, machines):
            try:
                found = await planned(connection, node, template, source=source, machines=machines)
            except NoSuchNodeError:
                raise NoSuchNodeError(node, await all_names(connection)) from None
    show(session, lambda: shown_config(found), lambda: as_table(found), soft_wrap=True)
    return Exit.FAILED if found.errors else Exit.OK


def template_of(text: str) -> ObjectRef | None:
    """What --template names, None for nothing. Raises SettingsError."""
    from policy.fence.templates import GROUP, KIND, VERSION
    from policy.values.object_refs import ObjectRef
    from workers.configuration.setting_sources import SettingsError

    if not text:
        return None
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise SettingsError(f"--template: expected NAMESPACE/NAME of a {KIND}, got {text!r}")
    return ObjectRef(api_version=f"{GROUP}/{VERSION}", kind=KIND, name=name, namespace=namespace)
