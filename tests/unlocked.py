"""The page without its lock, for tests that ask what it shows and says. Who gets in is asked by `tests/security`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from starter.client import Nodewarden
from starter.handles.node_actions import Opening
from starter.web.app import serving
from starter.web.auth import Caller, OwnHouse
from starter.web.views import Views


@asynccontextmanager
async def no_way(_: str) -> AsyncIterator[None]:
    """Of a caller who has no way of their own to a cluster."""
    yield None


class Unlocked(OwnHouse):
    """Each request is the local user's."""

    def __init__(self, warden: Nodewarden, opening: Opening = no_way, *, name: str = "") -> None:
        super().__init__(warden, opening, name=name)
        self.way_in = ""

    async def caller(self, token: str, cluster: str, address: str = "") -> Caller:
        """Always the same."""
        return self._caller


def unlocked(views: Views, *, port: int = 0) -> AbstractAsyncContextManager[str]:
    """Serves these views so; the page's address."""
    return serving(views, host="127.0.0.1", port=port, keeper=Unlocked(views.warden))
