"""Which of the messages of Google's package are taken, and that all are where its source is not written as expected."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from activities.power.gce.client import _our_messages

SOURCE = """import proto
__protobuf__ = proto.module(
    manifest={
        "Disk",
        "Instance",
        "Other",
    },
)

class Disk(proto.Message):
    kind: "Kind"

class Instance(proto.Message):
    disks = proto.RepeatedField(proto.MESSAGE, number=1, message="Disk")
    any = proto.Field(proto.MESSAGE, number=2, message=any_pb2.Any)

class Other(proto.Message):
    instance = proto.Field(proto.MESSAGE, number=1, message="Instance")

__all__ = tuple(sorted(__protobuf__.manifest))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("types/compute.py", SOURCE), ("services/instances/client.py", "compute.Instance, compute.v1")):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_what_a_message_consists_of_comes_with_it_and_nothing_else(folder: Path) -> None:
    found = _our_messages(folder) or ""
    assert re.findall(r"^class (\w+)", found, re.MULTILINE) == ["Disk", "Instance"]
    assert set(re.findall(r"'(\w+)'", found.partition("manifest=")[2].partition("}")[0])) == {"Disk", "Instance"}
    assert "__all__" not in found


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ('message="Disk"', 'message="Disk.Kind2", enum="Gone"'),
        ("manifest={", "manifest=frozenset({"),
        ("(proto.Message)", "(Base)"),
    ],
)
def test_of_a_source_that_is_written_otherwise_all_are_taken(folder: Path, written: str, instead: str) -> None:
    (folder / "types" / "compute.py").write_text(SOURCE.replace(written, instead))
    assert _our_messages(folder) is None
