"""`nodewarden fence NODE`: start a fencing by hand, or join the same request; with --wait, see it through.

A node that is called like a command of the group is fenced by the command's full name, `nodewarden fence begin NODE`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands import fence_check, fence_plan
from starter.commands.beginning import FENCING, see_through, tell_the_decision
from starter.commands.groups import BEGIN, NodeOrCommand
from starter.commands.session import (
    ClusterOption,
    Exit,
    NodeArgument,
    OutputOption,
    ReasonOption,
    WhoOption,
    given,
    run,
    session_of,
)

if TYPE_CHECKING:
    from policy.values.object_refs import ObjectRef

app = typer.Typer(
    cls=NodeOrCommand,
    help="Fence a node (`fence NODE` is `fence begin NODE`), or see what fencing it would do, or whether it could.",
)
app.command("plan")(fence_plan.plan)
app.command("check")(fence_check.check)


@app.command(BEGIN)
def begin(
    context: typer.Context,
    node: NodeArgument,
    *,
    reason: ReasonOption = "no reason given",
    who: WhoOption = "",
    template: Annotated[
        str,
        typer.Option(
            "--template", metavar="NAMESPACE/NAME", help="FencingTemplate; default: the node's check's, or the only one."
        ),
    ] = "",
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait for the end; exit 1 if the node was not repaired.")] = False,
    cluster: ClusterOption = "",
    output: OutputOption = None,
) -> None:
    """Power-cycle NODE, free its pods once it is proven off, and bring it back. Needs a permit from the cluster's scanner."""
    session = session_of(context, cluster=cluster, output=output)

    async def work() -> Exit | None:
        named = _template(template)
        async with session.connected() as (warden, _, name):
            episode = await warden.fence(name, node, reason=given("--reason", reason), requester=who, template=named)
            if wait:
                return await see_through(session, episode, FENCING)
            return await tell_the_decision(session, episode, FENCING)

    run(session, work)


def _template(text: str) -> ObjectRef | None:
    from policy.fence.specs import GROUP, VERSION
    from policy.fence.templates import KIND
    from policy.values.object_refs import ObjectRef
    from workers.configuration.setting_sources import SettingsError

    if not text:
        return None
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise SettingsError(f"--template: expected NAMESPACE/NAME of a {KIND}, got {text!r}")
    return ObjectRef(api_version=f"{GROUP}/{VERSION}", kind=KIND, name=name, namespace=namespace)
