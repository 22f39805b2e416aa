"""What an agent's words mean."""

from __future__ import annotations

import pytest

from activities.power.fence_agent import is_listed


@pytest.mark.parametrize(
    ("plug", "switch", "listed", "there"),
    [
        ("7", "1", {"1": "7", "2": "8"}, False),
        ("7", "2", {"2:1": "7", "2:2": "8"}, False),
        ("7", "2", {"2:7": "db", "2:8": ""}, True),
        ("7", "1", {"7": "db"}, True),
        ("db", "1", {"7": "db"}, True),
        ("7", "1", {"5f6b-a1": "7"}, True),
        ("7", "1", {"outlet-1": "7", "2": "8"}, True),
    ],
)
def test_a_number_is_no_other_plugs_name_where_plugs_have_numbers(
    plug: str, switch: str, listed: dict[str, str], there: bool
) -> None:
    """S3: an agent takes it for the number, and calls an outlet off that the strip does not have; people name outlets by the
    unit of the rack that they feed."""
    assert is_listed(plug, switch, listed) is there
