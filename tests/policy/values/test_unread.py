"""What could not be read, by its cause."""

from __future__ import annotations

from policy.values.errors import Unread, unread_text


def test_one_silent_server_is_one_cause_with_the_count_and_the_kinds() -> None:
    checks = "/apis/remediation.medik8s.io/v1alpha1/nodehealthchecks/workers"
    found = [
        Unread(what="the node", why="GET /api/v1/nodes/node-1: no answer in time"),
        Unread(what="its health check", why=f"GET {checks}: no answer in time"),
        Unread(what="the permit", why="no scanner answers"),
    ]
    silent = "2 things could not be read (no answer in time): the node, its health check"
    assert unread_text(found) == f"{silent}; the permit could not be read: no scanner answers"


def test_the_request_is_named_where_it_alone_has_failed() -> None:
    found = [Unread(what="the node", why="GET /api/v1/nodes/node-1: 403 Forbidden: nodes is forbidden")]
    assert unread_text(found) == "the node could not be read: GET /api/v1/nodes/node-1: 403 Forbidden: nodes is forbidden"
    assert unread_text([]) == ""
