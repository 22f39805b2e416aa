"""Which of the messages of Google's package are taken, and that all are where its source is not written as expected."""

from __future__ import annotations

import re

import pytest

from activities.power.gce.client import ANSWERS, _our_messages

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

class Operation(proto.Message):
    error = proto.Field(proto.MESSAGE, number=1, message="Error")

class SerialPortOutput(proto.Message):
    contents = proto.Field(proto.STRING, number=1)

class Error(proto.Message):
    code = proto.Field(proto.STRING, number=1)

class Other(proto.Message):
    instance = proto.Field(proto.MESSAGE, number=1, message="Instance")

__all__ = tuple(sorted(__protobuf__.manifest))
"""


def test_what_an_answer_consists_of_comes_with_it_and_nothing_else() -> None:
    found = _our_messages(SOURCE)
    assert re.findall(r"^class (\w+)", found, re.MULTILINE) == ["Disk", "Instance", "Operation", "SerialPortOutput", "Error"]
    assert set(re.findall(r"'(\w+)'", found.partition("manifest=")[2].partition("}")[0])) == {*ANSWERS, "Error"}
    assert "__all__" not in found


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ('message="Error"', 'message="Error.Kind2", enum="Gone"'),
        ("manifest={", "manifest=frozenset({"),
        ("(proto.Message)", "(Base)"),
        ("class Disk(", "class PersistentDisk("),
    ],
)
def test_of_a_source_that_is_written_otherwise_all_are_taken(written: str, instead: str) -> None:
    changed = SOURCE.replace(written, instead)
    assert _our_messages(changed) == changed
