"""Which nodes the scanner begins nothing for by itself."""

from __future__ import annotations

from datetime import UTC, datetime

from workflows.kit.messages import Backoff, ScannerState
from workflows.scanner.holding_off import HoldingOff


def test_a_node_is_left_alone_that_is_held_off_or_whose_episode_has_just_ended() -> None:
    """S19: neither alone is leave to clean up there."""
    holding = HoldingOff(
        ScannerState(started=datetime(2026, 11, 1, tzinfo=UTC), held_off=(Backoff(node="held", reason="failed"),))
    )
    holding.settling.add("settling")
    assert [holding.leaves_alone(node) for node in ("held", "settling", "other")] == [True, True, False]
