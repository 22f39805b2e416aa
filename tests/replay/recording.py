"""Keeps histories of workflow tests for the replay tests: `RECORD_HISTORIES=1 pytest tests/workflows
tests/starter/test_client.py` writes them anew.

A history is stored once and then stays: it stands for the runs that are open somewhere while a new version is rolled out.
Record again only when the sequence of commands is meant to change, and say so in the CHANGELOG.
"""

from __future__ import annotations

import base64
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


RESTS = {
    "test_fencing::test_a_machine_is_left_off_until_it_can_be_seen_whether_it_is_preserved": (
        "fencing-rests-for-a-licence",
        "until the licence is looked at again",
    ),
    "test_fencing::test_a_clean_up_waits_until_its_node_can_be_looked_at": (
        "fencing-rests-before-it-cleans-up",
        "until the node can be looked at",
    ),
    "test_fencing_people::test_a_hold_after_off_keeps_the_permit": ("fencing-rests-held-after-off", ""),
    "test_fencing_requests::test_words_in_between_hold_nothing_up_and_the_last_one_is_tried_until_it_is_written": (
        "fencing-rests-before-a-write",
        "until .* is tried again",
    ),
    "test_fencing_changed_targets::test_no_taint_goes_on_freeing_while_power_cannot_be_read": (
        "fencing-rests-for-workloads",
        "until the workloads are looked at again",
    ),
    "test_fencing_changed_targets::test_a_taint_that_could_not_be_removed_is_tried_again_while_a_person_is_waited_for[a hold]": (
        "fencing-rests-under-its-taint",
        "until the out-of-service taint is tried again",
    ),
    "test_fencing_changed_targets::test_the_boot_that_came_of_our_first_on_is_a_restart_however_often_it_is_tried": (
        "fencing-rests-for-on",
        "until on is read again",
    ),
    "test_fencing_isolation::test_a_drain_is_repeated_until_it_is_done_and_does_not_wait_for_the_proof": (
        "fencing-rests-for-a-drain",
        "until the drain is looked at again",
    ),
    "test_fencing_isolation::test_a_volume_that_stays_attached_frees_nothing": (
        "fencing-rests-for-volumes",
        "until the volumes are read again",
    ),
    "test_fencing_isolation::test_a_story[story6]": ("fencing-rests-for-a-reading", "until the machine is read again"),
    "test_fencing_isolation::test_a_person_s_node_waits_before_isolation_and_a_check_s_does_not": (
        "fencing-rests-before-isolation",
        "the wait before isolation",
    ),
    "test_offenders::test_s53_while_it_is_not_known_whether_it_offends_it_stays_off[known0-False]": (
        "fencing-rests-for-its-repairs",
        "until its repairs are counted again",
    ),
    "test_keeping_apart::test_pods_that_stay_behind_the_cut_are_told_and_tried_again": (
        "preservation-rests-behind-the-cut",
        "until what lies behind the cut is looked at again",
    ),
    "test_preservation::test_a_look_that_fails_is_repeated_and_nothing_is_lost": (
        "preservation-rests-for-a-look",
        "before the machine is looked at again",
    ),
    "test_preservation_worst_moments::test_a_held_drain_delays_no_end[annotation]": (
        "preservation-rests-held",
        "held by a person",
    ),
    "test_preservation_worst_moments::test_a_deletion_that_is_not_licensed_any_more_asks_for_a_permit_anew": (
        "preservation-rests-before-its-deletion",
        "before the deletion is asked for again",
    ),
    "test_detaching::test_force_is_for_what_does_not_leave_by_itself": (
        "fencing-rests-for-a-detachment",
        "until the volumes are looked at again",
    ),
    "test_fencing_isolation::test_a_method_waits_its_delay_and_looks_again": (
        "fencing-rests-before-a-method",
        "waits its delay before .*",
    ),
    "test_fencing_vectors::test_s03_levels_go_in_their_order_within_the_time_of_all_and_tries_are_a_total": (
        "fencing-rests-before-a-device",
        "waits its delay before .*",
    ),
    "test_pacing::test_pods_are_deleted_in_portions_and_waiting_is_no_failure": (
        "fencing-rests-for-a-portion",
        "until more pods may be freed",
    ),
    "test_preservation_worst_moments::test_a_deletion_that_no_worker_can_ask_for_waits_for_a_person": (
        "preservation-rests-for-a-person",
        "",
    ),
    "test_preservation_worst_moments::test_a_deletion_that_is_given_no_permit_asks_again": (
        "preservation-rests-for-a-permit",
        "before a permit is asked for again",
    ),
    "test_scanner::test_a_failing_scan_admits_nothing_and_is_tried_again": (
        "scanner-rests-after-a-failure",
        "before the next scan",
    ),
    "test_scanner::test_a_report_of_another_cluster_under_the_same_name_is_not_believed": (
        "scanner-rests-for-its-cluster",
        "before the cluster is scanned again: another one has answered",
    ),
    "test_scanner::test_a_scanner_started_with_a_cluster_alone_learns_its_name_before_it_scans": (
        "scanner-rests-for-its-name",
        "before our name is asked again",
    ),
    "test_scanner::test_nothing_is_granted_while_the_open_episodes_cannot_be_listed": (
        "scanner-rests-for-open-episodes",
        "before the open episodes are looked for again",
    ),
    "test_scanner::test_what_the_last_scanner_opened_at_its_end_is_waited_for": (
        "scanner-rests-for-the-last-one",
        "until the list of open episodes has all that the last scanner admitted",
    ),
    "test_scanner_spells::test_a_last_scanner_that_answers_late_loses_no_spell_and_keeps_no_node_waiting": (
        "scanner-rests-for-spells",
        "before the last scanner is asked again for its spells",
    ),
    "test_releases::test_s14_while_temporal_can_t_be_asked_a_permit_counts": (
        "scanner-rests-for-a-release",
        "before episodes are asked again for permits that were given back in their names",
    ),
    "test_remediation_served::test_a_remediation_rests_on_a_server[for a person]": ("remediation-rests-for-a-person", ""),
    "test_remediation_served::test_a_remediation_rests_on_a_server[for an earlier object]": (
        "remediation-rests-for-an-earlier-object",
        "waits until an earlier SelfNodeRemediation is gone",
    ),
    "test_remediation_served::test_a_remediation_rests_on_a_server[for its object to go]": (
        "remediation-rests-for-its-object-to-go",
        "waits until SelfNodeRemediation is gone",
    ),
    "test_remediation_served::test_a_remediation_rests_on_a_server[before a step]": (
        "remediation-rests-before-a-step",
        "before the step is tried again",
    ),
    "test_remediation_served::test_a_remediation_rests_on_a_server[for another worker]": (
        "remediation-rests-for-another-worker",
        "until another worker may ask for the deletion",
    ),
    "test_remediation_served::test_a_remediation_rests_on_a_server[after an unclear deletion]": (
        "remediation-rests-after-an-unclear-deletion",
        "no answer in time",
    ),
}
"""Histories that end where a run rests: the name, and why it rests as the timer's summary says, "" where no timer runs. By the
test, with its file and parameters."""


async def keep_history(handle: WorkflowHandle[Any, Any]) -> None:
    """Write the history of the current test's workflow, if it is one to keep and recording is on."""
    if not os.environ.get("RECORD_HISTORIES"):
        return
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0].rpartition("/")[2].replace(".py::", "::")
    if (name := KEPT.get(test.partition("::")[2].partition("[")[0])) is not None:
        _store(name, handle, json.loads((await handle.fetch_history()).to_json()))
    if test in RESTS:
        name, why = RESTS[test]
        _store(name, handle, await _until_it_rests(handle, why))


async def _until_it_rests(handle: WorkflowHandle[Any, Any], why: str) -> Any:
    """The history of the first run that rests so, to the task in which it begins to; without a reason the last run's."""
    run_id = (await handle.describe()).raw_description.workflow_execution_info.first_run_id
    while run_id:
        run = handle._client.get_workflow_handle(handle.id, run_id=run_id)
        history = json.loads((await run.fetch_history()).to_json())
        events = history["events"]
        for at, event in enumerate(events):
            summary = event.get("userMetadata", {}).get("summary", {}).get("data", "")
            if "timerStartedEventAttributes" in event and re.fullmatch(why, base64.b64decode(summary).decode().strip('"')):
                task = f'"workflowTaskCompletedEventId": "{event["timerStartedEventAttributes"]["workflowTaskCompletedEventId"]}"'
                beside = next((n for n in range(at, len(events)) if task not in json.dumps(events[n])), len(events))
                return history | {"events": events[:beside]}
        run_id = events[-1].get("workflowExecutionContinuedAsNewEventAttributes", {}).get("newExecutionRunId", "")
        if not why and not run_id:
            return history
    raise ValueError(f"it never rests {why!r}")


def _store(name: str, handle: WorkflowHandle[Any, Any], history: Any) -> None:
    stored = {"workflow_id": handle.id, "history": _scrubbed(history)}
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
