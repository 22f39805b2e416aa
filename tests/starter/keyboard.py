"""A command as at a keyboard, in this process."""

from __future__ import annotations

import asyncio

from typer.testing import CliRunner, Result

from starter.cli import app


async def nodewarden(*arguments: str, text: str | None = None) -> Result:
    """text: what comes by standard input. In a thread, because a command has an event loop of its own."""
    return await asyncio.to_thread(CliRunner().invoke, app, list(arguments), input=text, prog_name="nodewarden")
