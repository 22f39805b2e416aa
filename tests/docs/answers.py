"""Which command answers with what, for programs: the types from which the JSON Schema of docs/schemas is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from policy.episode.messages import EpisodeResult
from policy.fence.config import ShownConfig
from policy.fence.device_check import DeviceReport
from policy.history.step_outcomes import OutcomesReport
from starter.doctor import DoctorAnswer
from starter.handles.history import EpisodeRecord
from starter.handles.observations import ClusterComparison
from starter.handles.scanners import StartedScanner
from starter.handles.status import ClusterStatus, PreservedNodes
from starter.output import models
from starter.output.cluster_moment import ClusterMoment
from starter.output.comparison import ReplayAnswer
from starter.output.encoding import schemas_of
from starter.output.models import PreservePlanAnswer
from starter.uninstall import UninstallAnswer
from workflows.kit.messages import ScannerStatus

_OF_EPISODES = ("abort", "ack-off", "hold", "resume", "return-path", "release", "preserve extend")
_OF_CLUSTERS = ("pause", "unpause", "mode set", "mode unset", "scan stop")

ANSWERS: Mapping[str, type[Any]] = {
    "status": ClusterStatus,
    "up": ClusterStatus,
    "scan status": ScannerStatus,
    "scan start": StartedScanner,
    "explain": models.ExplainAnswer,
    "explain --at": ClusterMoment,
    "history": models.HistoryAnswer,
    "mode": models.ModesAnswer,
    "history --at": ClusterMoment,
    "record": EpisodeRecord,
    "compare": ClusterComparison,
    "offenders": models.OffendersAnswer,
    "report": OutcomesReport,
    "doctor": DoctorAnswer,
    "uninstall": UninstallAnswer,
    "evaluate": models.EvaluateAnswer,
    "evaluate --replay": ReplayAnswer,
    "fence": models.Begun,
    "fence --wait": EpisodeResult,
    "fence plan": ShownConfig,
    "fence check": DeviceReport,
    "remediate": models.Begun,
    "remediate --wait": EpisodeResult,
    "remediate plan": models.RemediatePlanAnswer,
    "preserve": models.Begun,
    "preserve plan": PreservePlanAnswer,
    "preserved": PreservedNodes,
    "codec serve": models.CodecServed,
    "settings show": models.SettingsShown,
    "version": models.Versions,
    **dict.fromkeys((*_OF_EPISODES, *_OF_CLUSTERS), models.CommandAnswer),
}
"""By the words that follow `nodewarden`. `fence` and `remediate` print the result of `--wait` also where it has ended at once."""


def schemas() -> dict[str, Any]:
    """The document docs/schemas/answers.json, made from the code."""
    return schemas_of(ANSWERS)
