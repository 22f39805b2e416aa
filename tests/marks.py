"""Marks on nodes as we write them: an annotation, and the label that makes it ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from policy.objects.marks import digest_of
from policy.objects.nodes import MARK_ANNOTATION, MARK_LABEL


def confirmed(annotations: Mapping[str, str]) -> dict[str, str]:
    """The label that makes the mark among these annotations ours; none where there is no mark."""
    return {MARK_LABEL: digest_of(annotations[MARK_ANNOTATION])} if MARK_ANNOTATION in annotations else {}


def mark_metadata(value: str) -> dict[str, Any]:
    """For a patch that puts this mark on a node."""
    annotations = {MARK_ANNOTATION: value}
    return {"annotations": annotations, "labels": confirmed(annotations)}
