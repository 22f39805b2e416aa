"""Running several things of which any failure ends all, as one plain exception."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def alongside(main: Awaitable[T], *companions: Coroutine[Any, Any, Any]) -> T:
    """Await `main` while the companions run; they are cancelled when it ends, and it when one of them fails.

    Raises what failed first, not a group of it: callers and people want the one reason.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(companion) for companion in companions]
            result = await main
            for task in tasks:
                task.cancel()
        return result
    except BaseExceptionGroup as failures:
        raise _first(failures) from None


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    inner: BaseException = failures
    while isinstance(inner, BaseExceptionGroup):
        inner = inner.exceptions[0]
    return inner
