"""What an API server, or whoever answers in its place, may say: a value or one of our types, and no list that is none (S18)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from temporalio.exceptions import ApplicationError

from activities.cluster.api import paths
from activities.cluster.api.connection import ClusterConnection, Timeouts
from activities.cluster.live.node_leases import foreign_lease
from activities.cluster.objects.decoding import NODE_DECODING, OBJECT_DECODING
from activities.cluster.objects.live_node import read_node
from activities.cluster.objects.object_reader import read_views
from activities.cluster.objects.workload import read_standing
from activities.errors import ErrorType, error_type
from tests.fuzz.strange import A_LEASE, A_POD, A_VOLUME, DEEP, PATIENCE, Server, a_node, as_bytes, changed, examples, flow, served
from tests.vectors.objects import NOW

pytestmark = PATIENCE

Ask = Callable[[ClusterConnection], Awaitable[object]]


async def watched(connection: ClusterConnection) -> object:
    lines = connection.watch("/api/v1/nodes", resource_version="1", seconds=1, silence=1.0)
    return [line async for line in lines]


READS: dict[str, Ask] = {
    "get": lambda c: c.get("/x"),
    "node": lambda c: read_node(c, "node-1"),
    "nodes": lambda c: read_views(c, paths.NODES, NODE_DECODING),
    "objects": lambda c: read_views(c, paths.CONFIG_MAPS, OBJECT_DECODING),
    "list": lambda c: c.list_objects("/x"),
    "workload": lambda c: read_standing(c, "node-1"),
    "version": lambda c: c.server_version(),
    "uid": lambda c: c.cluster_uid(live=True),
    "lease": lambda c: foreign_lease(c, "node-1", "us", NOW),
    "watch": watched,
}
WRITES: dict[str, Ask] = {
    "create": lambda c: c.create("/x", {}),
    "replace": lambda c: c.replace("/x", {}),
    "patch": lambda c: c.patch_json("/x", [{"op": "test", "path": "/a", "value": 1}]),
    "delete": lambda c: c.delete("/x"),
}
STATUS = flow("""
{kind: Status, metadata: {}, status: Failure, message: m, reason: r, code: 500,
 details: {causes: [{reason: r, message: m, field: f}], retryAfterSeconds: 1}}""")
LIST = {"kind": "List", "metadata": {"resourceVersion": "1", "continue": ""}, "items": [a_node(), A_POD, A_VOLUME]}
SAID = [STATUS, LIST, a_node(), A_LEASE, {"major": "1", "minor": "36+"}, {"type": "ADDED", "object": a_node()}]
NO_OBJECT = [b"", *b'<html>|null|[]|"x"|{|\xff\xfe\x00|{"items":|\x1f\x8b\x08|{}\n{}\n'.split(b"|"), b"[" * 5000]
DATE = "Date: Mon, 20 Nov 1995 19:12:08 +99999999999999"
HEADERS = [
    *["Content-Type: text/html", "Content-Encoding: gzip", "X: \x01", "Location: http://127.0.0.1:1/", "Date: x"],
    *["Retry-After: 5", "Retry-After: 99999999999999999999", "Retry-After: -1", "Retry-After: ٣", "Transfer-Encoding: chunked"],
    DATE,
]
HEADERS.append(f"Retry-After: {'9' * 5000}")
BODIES = st.one_of(
    st.sampled_from([*NO_OBJECT, b"{}", *map(as_bytes, SAID)]),
    st.sampled_from(SAID).flatmap(changed).map(as_bytes),
    st.tuples(st.sampled_from(SAID).map(as_bytes), st.integers(1, 400)).map(lambda cut: cut[0][: cut[1]]),
)
STATUSES = (200, 200, 200, 200, 201, 204, 206, 302, 304, 400, 401, 403, 404, 409, 410, 422, 429, 500, 503, 504, 999)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with served() as running:
        yield running


async def asked(url: str, ask: Ask) -> object:
    """The answer, or the error."""
    async with ClusterConnection.to(url, timeouts=Timeouts(connect=2, read=2, write=2, page=2)) as connection:
        try:
            return await ask(connection)
        except ApplicationError as error:
            return error


@examples(150)
@given(
    ask=st.sampled_from(sorted(READS | WRITES)),
    status=st.sampled_from(STATUSES),
    body=BODIES,
    headers=st.lists(st.sampled_from(HEADERS), max_size=2, unique=True),
)
@example("workload", 200, as_bytes(STATUS), [])  # was a node on which nothing stands
@example("create", 200, b"", [])  # was tried again
@example("node", 200, as_bytes(a_node() | {"x": DEEP}), [])
@example("get", 503, b"", [HEADERS[-1]])
@example("get", 200, b"{}", [DATE])
@example("uid", 200, b"{}", [])
def test_whatever_a_server_says_is_a_value_or_an_error_of_ours(
    server: Server, ask: str, status: int, body: bytes, headers: list[str]
) -> None:
    server.say(status, body, *headers)
    answer = server.runner.run(asked(server.url, (READS | WRITES)[ask]))
    if not isinstance(answer, ApplicationError):
        assert status < 300 or (ask, status) == ("lease", 404)
        assert body != as_bytes(STATUS) or status == 404 or ask == "watch", "a failure is no empty list, and no object"
        return
    assert error_type(answer) is not None, answer
    assert len(answer.message) < 3000
    if ask in WRITES and status < 300 and body in NO_OBJECT:
        assert error_type(answer) is ErrorType.AMBIGUOUS, "it may have been written"
