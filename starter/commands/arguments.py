"""The options and arguments that many commands have."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from starter.commands import completing
from starter.commands.session import Output


class Overridable(StrEnum):
    """What a person may override; see `policy/episode/words.py`."""

    CIRCUIT_BREAKER = "circuit-breaker"
    DEVICE_READS_ON = "device-reads-on"


ClusterOption = Annotated[
    str,
    typer.Option("--cluster", "-c", help="Cluster; default: the current kubeconfig context.", autocompletion=completing.clusters),
]
OutputOption = Annotated[Output | None, typer.Option("--output", "-o", help="How to print the answer.")]
ReasonOption = Annotated[str, typer.Option("--reason", "-r", help="Why, for the decision record.")]
WhoOption = Annotated[str, typer.Option("--who", help="Who asks, for the decision record; default: you.")]
NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="Name of the node.", autocompletion=completing.nodes)]
OpenArgument = Annotated[
    str,
    typer.Argument(metavar="NODE", help="Name of the node that an open episode is about.", autocompletion=completing.open_nodes),
]
ForOption = Annotated[str, typer.Option("--for", metavar="DURATION", help="How long, such as 2h.")]
QuestionOption = Annotated[
    int, typer.Option("--question", metavar="NUMBER", help="The number of what it asks, as `nodewarden status` shows it.")
]
OfOption = Annotated[
    str, typer.Option("--of", metavar="NAME", help="Owner of the one to end, as shown; default: your own. The owner is told.")
]
OverrideOption = Annotated[
    list[Overridable] | None,
    typer.Option(
        "--override",
        help="circuit-breaker: pass over the open circuit breaker, for this node only; you need the right `override`. "
        "device-reads-on, of ack-off: a device says on, and is wrong or was read too early.",
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; needed where there is no terminal.")]
UntilOption = Annotated[str, typer.Option("--until", metavar="RFC3339", help="Until when.")]
