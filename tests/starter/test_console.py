"""How lines are broken on a narrow terminal."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from tests.starter.drawing import drawn

PATH = "/apis/nodewarden.io/v1alpha1/namespaces/nodewarden/fencingtemplates"


def test_what_is_longer_than_a_line_is_broken_where_it_has_a_joint() -> None:
    assert drawn(Text(f"it waits: GET {PATH}: no answer in time"), width=44) == [
        "it waits: GET",
        "/apis/nodewarden.io/v1alpha1/namespaces/",
        "nodewarden/fencingtemplates: no answer in",
        "time",
    ]


def test_so_are_the_cells_of_a_table_whatever_they_are_made_of() -> None:
    table = Table.grid()
    table.add_column(overflow="fold")
    table.add_row(f"GET {PATH}")
    table.add_row(Text(f"run `nodewarden explain node-7` for {PATH}"))
    assert drawn(table, width=44) == [
        "GET /apis/nodewarden.io/v1alpha1/namespaces/",
        "nodewarden/fencingtemplates",
        "run `nodewarden explain node-7` for",
        "/apis/nodewarden.io/v1alpha1/namespaces/",
        "nodewarden/fencingtemplates",
    ]


def test_a_word_without_a_joint_is_not_lost() -> None:
    assert "".join(drawn(Text("x" * 50), width=20)) == "x" * 50
