"""Groups whose first word may be a node's name: what is no command of theirs begins something with that node.

A node that is called like a command is named by the command's full name, `nodewarden fence begin NODE`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from typer.core import TyperGroup

BEGIN = "begin"


class NodeOrCommand(TyperGroup):
    """A group whose default command takes what is no command's name."""

    def spelled_out(self, args: list[str], *, also: Collection[str] = ()) -> list[str]:
        """The arguments with the default command before them, unless they begin with a command or with one of `also`."""
        return args if args and args[0] in {*self.commands, *also} else [BEGIN, *args]

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """The commands of the group, and the nodes that may stand in their place."""
        begin = self.commands[BEGIN]
        nodes = (found for each in begin.params if each.name == "node" for found in each.shell_complete(ctx, incomplete))
        return [*super().shell_complete(ctx, incomplete), *nodes]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Help stays the group's own, and so does the completion of its first word."""
        if ctx.resilient_parsing and not args:
            return super().parse_args(ctx, args)
        return super().parse_args(ctx, self.spelled_out(args, also=ctx.help_option_names))
