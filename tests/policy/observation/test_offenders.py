"""Machines that are repaired again and again, by their hardware."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from policy.observation.offenders import MOST_NAMES, OffenderRules, Repair, hardware_of, machines, offence

UUID = "4c4c4544-0042-3510-8052-b7c04f565931"
NOW = datetime(2026, 11, 28, 3, 12, tzinfo=UTC)


def repair(node: str = "node-7", *, hardware: str = UUID, days_ago: int = 1, reason: str = "ReadyUnknown") -> Repair:
    return Repair(hardware=hardware, node=node, kind="Fencing", reason=reason, started=NOW - timedelta(days=days_ago))


@pytest.mark.parametrize(
    ("said", "known"),
    [
        (UUID, UUID),
        (UUID.upper(), UUID),
        (UUID.replace("-", ""), UUID),
        ("", ""),
        ("sys-7", ""),
        ("00000000-0000-0000-0000-000000000000", ""),
        ("03000200-0400-0500-0006-000700080009", ""),
        (f"{UUID}' OR Node = 'x", ""),
        (f"{UUID[:-1]}\x1b", ""),
        (f"{UUID[:-1]}٣", ""),
        (f"{UUID}{UUID}", ""),
    ],
    ids=[
        "as it is",
        "capitals",
        "machine-id",
        "none",
        "no UUID",
        "zeros",
        "of a board",
        "a query",
        "an escape",
        "a digit",
        "long",
    ],
)
def test_s41_a_kubelets_word_becomes_one_spelling_of_a_uuid_or_nothing(said: str, known: str) -> None:
    assert hardware_of(said) == known


def test_it_offends_from_the_limit_on_the_repair_under_way_included() -> None:
    rules = OffenderRules(limit=3)
    assert offence(UUID, "node-7", [repair()], rules) == ""
    assert offence(UUID, "node-9", [repair(), repair()], rules) == (
        f"this machine (system UUID {UUID}) was repaired 3 times within 28 days: as node-7 2 times, node-9 1 time; "
        "`nodewarden offenders` lists its repairs"
    )


def test_a_kubelet_that_takes_many_names_makes_no_long_sentence() -> None:
    names = [repair(f"node-{number}") for number in range(50)]
    said = offence(UUID, "node-0", names, OffenderRules(window=timedelta(hours=36)))
    assert f"and {50 - MOST_NAMES} more names" in said
    assert "within 36h" in said
    assert len(said) < 300


def test_a_machine_that_was_renamed_is_one_and_the_latest_name_comes_first() -> None:
    other = "7d2f0a31-1111-4222-8333-944455556666"
    found = machines(
        [
            repair("node-7", days_ago=20, reason="DiskFailed"),
            repair("gpu-1", days_ago=2),
            repair("node-7", days_ago=9),
            repair("node-2", hardware=other, days_ago=1),
        ],
        OffenderRules(limit=3),
    )
    assert [(each.hardware, each.nodes, len(each.repairs), each.offends) for each in found] == [
        (UUID, ("gpu-1", "node-7"), 3, True),
        (other, ("node-2",), 1, False),
    ]
    assert found[0].reasons == ("ReadyUnknown", "DiskFailed")
