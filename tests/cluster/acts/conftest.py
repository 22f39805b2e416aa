"""A fresh world per test: an API server on a free loopback port, with the sick node in it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.cluster.acts.world import World, empty_world


@pytest_asyncio.fixture
async def empty() -> AsyncIterator[World]:
    """A cluster without nodes."""
    async with empty_world() as world:
        yield world


@pytest_asyncio.fixture
async def world(empty: World) -> World:
    """The cluster with its sick node."""
    await empty.add_node()
    return empty
