"""What the words of a remediation object mean, and how long they are waited for."""

from __future__ import annotations

from datetime import timedelta
from itertools import product

import pytest

from policy.remediation.remediation_objects import (
    PHASE_DELETING,
    REMEDIATORS,
    Progress,
    RemediationConditions,
    Remediator,
    follow,
    remediator_of,
    to_be_given_up,
)

MINUTE = timedelta(minutes=1)
STATUSES = ("", "True", "False", "Unknown")


@pytest.mark.parametrize(
    ("told", "progress", "why"),
    [
        (RemediationConditions(), Progress.WORKING, "no controller has taken it up yet"),
        (RemediationConditions(processing="True", succeeded="Unknown"), Progress.WORKING, "Processing is True"),
        (RemediationConditions(processing="False", succeeded="True"), Progress.SUCCEEDED, "Succeeded is True"),
        (RemediationConditions(processing="True", succeeded="True"), Progress.SUCCEEDED, "Succeeded is True"),
        (RemediationConditions(processing="False", succeeded="False"), Progress.FAILED, "Succeeded is False"),
        (RemediationConditions(processing="True", succeeded="False"), Progress.FAILED, "Succeeded is False"),
        (
            RemediationConditions(processing="False", succeeded="Unknown"),
            Progress.WORKING,
            "Processing is False, and its result is not reported",
        ),
        (RemediationConditions(phase="Running"), Progress.WORKING, "its phase is Running"),
        (RemediationConditions(phase="Waiting"), Progress.WORKING, "its phase is Waiting"),
        (RemediationConditions(phase="Failed"), Progress.FAILED, "its phase is Failed"),
        (RemediationConditions(phase="Failed", succeeded="True"), Progress.FAILED, "its phase is Failed"),
    ],
)
def test_what_a_remediation_says(told: RemediationConditions, progress: Progress, why: str) -> None:
    followed = follow(told)
    assert (followed.progress, followed.why) == (progress, why)


CONTRACT, STORAGE = "self-node-remediation.medik8s.io/v1alpha1", "storage-based-remediation.medik8s.io/v1alpha1"


@pytest.mark.parametrize(
    ("kind", "conditions", "succeeded"),
    [
        ((CONTRACT, "SelfNodeRemediation"), {"Processing": "False", "Succeeded": "False"}, "False"),
        ((CONTRACT, "SelfNodeRemediation"), {"Processing": "False", "Succeeded": "True"}, "True"),
        (("example.io/v1", "ThingRemediation"), {"Processing": "True", "Succeeded": "Unknown"}, "Unknown"),
        ((STORAGE, "StorageBasedRemediation"), {}, ""),
        ((STORAGE, "StorageBasedRemediation"), {"FencingInProgress": "True"}, ""),
        ((STORAGE, "StorageBasedRemediation"), {"FencingInProgress": "False", "Ready": "False"}, "False"),
        # After a failure it tries again, and says so by the one condition alone.
        ((STORAGE, "StorageBasedRemediation"), {"FencingInProgress": "True", "Ready": "False"}, ""),
        (
            (STORAGE, "StorageBasedRemediation"),
            {"FencingInProgress": "False", "FencingSucceeded": "True", "Ready": "True"},
            "True",
        ),
        ((STORAGE, "StorageBasedRemediation"), {"Succeeded": "False"}, ""),
        (("infrastructure.cluster.x-k8s.io/v1beta1", "Metal3Remediation"), {"Succeeded": "True"}, ""),
        (("customized-user-remediation.medik8s.io/v1alpha1", "CustomizedUserRemediation"), {"Succeeded": "True"}, ""),
    ],
)
def test_each_kind_is_read_in_its_own_words(kind: tuple[str, str], conditions: dict[str, str], succeeded: str) -> None:
    """What a kind never says is not taken from it."""
    assert remediator_of(*kind).has_succeeded(conditions) == succeeded


def test_a_row_of_the_settings_goes_before_ours() -> None:
    mine = Remediator(group="self-node-remediation.medik8s.io", kind="SelfNodeRemediation", succeeded="Done", failed="Done")
    assert remediator_of(CONTRACT, "SelfNodeRemediation", (mine, *REMEDIATORS)).has_succeeded({"Done": "True"}) == "True"


def test_nothing_but_the_word_itself_is_success() -> None:
    """S3, S7: unknown, absent or contradictory is never success."""
    for processing, succeeded, permanent, phase in product(STATUSES, STATUSES, STATUSES, ("", "Running", "Failed")):
        told = RemediationConditions(
            processing=processing, succeeded=succeeded, permanent_node_deletion_expected=permanent, phase=phase
        )
        assert (follow(told).progress is Progress.SUCCEEDED) is (succeeded == "True" and phase != "Failed")
        assert to_be_given_up(told) is (succeeded != "True")


def test_a_node_that_is_to_go_is_told_apart_from_one_that_vanishes() -> None:
    assert follow(RemediationConditions(permanent_node_deletion_expected="True")).node_goes
    assert follow(RemediationConditions(phase=PHASE_DELETING)).node_goes
    assert not follow(RemediationConditions(permanent_node_deletion_expected="Unknown")).node_goes
    assert not follow(RemediationConditions(permanent_node_deletion_expected="False", succeeded="True")).node_goes
