"""The process's one runtime of Temporal's SDK: it holds the threads that talk to the service, and serves the metrics.

What is measured is `activities/contracts/metrics.py`.
"""

from __future__ import annotations

import logging

from temporalio.runtime import LogForwardingConfig, LoggingConfig, PrometheusConfig, Runtime, TelemetryConfig, TelemetryFilter

from activities.contracts.metrics import buckets
from workers.configuration.setting_sources import SettingsError

_runtimes: list[Runtime] = []


def start_runtime(*, metrics: str = "", core_level: str = "ERROR") -> Runtime:
    """Make the process's one runtime, before anything connects. Raises SettingsError where metrics cannot be served there.

    Core's log lines go through Python's logging, so that `log.format` holds for them too.
    """
    if _runtimes:
        raise RuntimeError("the Temporal runtime of this process exists already")
    try:
        made = Runtime(
            telemetry=TelemetryConfig(
                metrics=PrometheusConfig(bind_address=metrics, durations_as_seconds=True, histogram_bucket_overrides=buckets())
                if metrics
                else None,
                logging=LoggingConfig(
                    filter=TelemetryFilter(core_level=core_level, other_level="ERROR"),
                    forwarding=LogForwardingConfig(logger=logging.getLogger("temporalio.core")),
                ),
            )
        )
    except (RuntimeError, ValueError) as error:
        message = f"metrics: expected an address to serve Prometheus metrics on, got {metrics!r}: {' '.join(str(error).split())}"
        raise SettingsError(message) from error
    _runtimes.append(made)
    return made


def runtime() -> Runtime:
    """The process's one runtime; one without metrics where nobody has made it."""
    return _runtimes[0] if _runtimes else start_runtime()
