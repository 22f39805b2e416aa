"""Keeps histories of workflow tests for the replay tests: `RECORD_HISTORIES=1 pytest tests/workflows
tests/starter/test_client.py` writes them anew.

A history is stored once and then stays: it stands for the runs that are open somewhere while a new version is rolled out.
Record again only when the sequence of commands is meant to change, and say so in the CHANGELOG.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowHandle

HISTORIES = Path(__file__).parent / "histories"
KEPT = {
    "test_a_dead_node_is_isolated_switched_off_proven_freed_switched_on_and_restored": "fencing-recovered",
    "test_a_lost_answer_to_off_is_read_and_never_repeated": "fencing-lost-answer",
    "test_a_restart_of_the_flow_keeps_what_is_proven": "fencing-restarted",
    "test_a_persons_word_stands_for_the_proof": "fencing-acknowledged",
    "test_an_abort_after_off_finishes_consequences_and_leaves_the_power_off": "fencing-left-off",
    "test_a_slow_boot_asks_for_a_person_and_is_not_fenced_again": "fencing-slow-boot",
    "test_a_node_that_comes_back_during_the_wait_is_only_uncordoned": "fencing-way-back",
    "test_a_manual_start_asks_for_a_permit_and_waits_in_the_queue": "fencing-queued",
    "test_both_supplies_must_be_off": "fencing-two-supplies",
    "test_a_hold_stops_before_the_next_act_until_resumed": "fencing-held",
    "test_s52_a_mode_that_is_raised_lets_it_go_on_with_a_new_permit": "fencing-mode",
    "test_a_signal_that_nothing_confirms_gives_no_path_back": "fencing-path-word",
    "test_pods_of_a_trusted_dump_are_freed_before_power_off_which_follows_all_the_same": "fencing-crash-dump",
    "test_a_ready_node_fenced_by_hand_is_freed_only_once_it_is_seen_down": "fencing-by-hand",
    "test_a_drain_that_a_release_ends_is_not_called_a_drain_that_went_well": "preservation-drain",
    "test_one_node_at_a_time_and_the_next_at_once_after_a_release": "scanner-one-at-a-time",
    "test_a_person_is_granted_queued_or_refused": "scanner-requests",
    "test_a_scanner_without_memory_finds_its_holders_again_before_it_admits": "scanner-rebuilt",
    "test_stop_gives_the_lease_back": "scanner-stopped",
    "test_diagram_2_a_node_that_is_healthy_before_the_timeout_runs_on": "preservation-recovered",
    "test_a_recovered_machine_whose_pods_were_freed_gets_its_path_back_after_a_restart": "preservation-isolated",
    "test_diagram_2_value_false_terminates_a_failed_machine_at_once": "remediation-replaced",
    "test_a_machine_is_deleted_on_a_server_and_replaced": "remediation-machine-deleted",
    "test_a_ladder_on_a_server_ends_with_a_person_who_has_it_begin_anew": "remediation-ladder",
    "test_a_deletion_on_a_server_goes_on_in_a_new_history": "remediation-new-history",
    "test_a_repetition_makes_no_second_record": "observation",
    "test_a_device_that_falls_silent_and_comes_back_is_told_exactly_once_each_way": "device-check-hourly",
}


async def keep_history(handle: WorkflowHandle[Any, Any]) -> None:
    """Write the history of the current test's workflow, if it is one to keep and recording is on."""
    test = re.search(r"::(\w+)", os.environ.get("PYTEST_CURRENT_TEST", ""))
    name = KEPT.get(test.group(1)) if test else None
    if not os.environ.get("RECORD_HISTORIES") or name is None:
        return
    history = await handle.fetch_history()
    stored = {"workflow_id": handle.id, "history": _scrubbed(json.loads(history.to_json()))}
    (HISTORIES / f"{name}.json").write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")


def _scrubbed(value: Any) -> Any:
    """Without what says more about the machine that recorded it than about the run: host names, paths in stack traces."""
    if isinstance(value, dict):
        return {
            key: ("recorded" if key == "identity" else "" if key == "stackTrace" else _scrubbed(inner))
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_scrubbed(inner) for inner in value]
    return value
