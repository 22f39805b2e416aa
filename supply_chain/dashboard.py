"""Makes deploy/dashboard.json, what an SRE looks at in Grafana: is it safe, who is needed, what goes on, how long did it take.

`python -m supply_chain.dashboard` makes it anew, with Grafana's own Foundation SDK. Levels come from the recording rules of
deploy/alerts.yaml, so that of several workers the right one is believed; every other expression sums over the workers. What the
metrics mean is activities/contracts/metrics.py. No part of the product.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from grafana_foundation_sdk.builders import common as tuning
from grafana_foundation_sdk.builders import dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import BigValueColorMode, LegendDisplayMode, LegendPlacement, StackingMode
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    Threshold,
    ThresholdsMode,
    VariableRefresh,
    VariableSort,
)

from activities.contracts import metrics
from activities.contracts.metrics import Counter, Gauge, Histogram, Metric

FILE = Path(__file__).resolve().parent.parent / "deploy" / "dashboard.json"
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
OURS = 'cluster=~"$cluster"'
QUEUES = 'task_queue=~"nodewarden|cluster[.].+|power[.].+"'
GREEN, AMBER, RED = "green", "orange", "red"
WIDTH = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One query and what its series are called."""

    expr: str
    called: str = "{{cluster}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A figure that is green, and worse from a value on. worse: the values from which it is amber and red; red alone where one.

    nothing: what is shown where there is no series.
    """

    title: str
    line: Line
    worse: tuple[float, ...]
    meaning: str
    unit: str = "short"
    nothing: str = "not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Lines over time. stacked: of things that are counted together."""

    title: str
    lines: tuple[Line, ...]
    meaning: str
    unit: str = "short"
    stacked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Panels side by side, the numbers before the graphs."""

    title: str
    panels: tuple[Number | Graph, ...]


def level(metric: Gauge) -> str:
    """What the worker that scanned last says, by the recording rule of that name."""
    return f"cluster:{metric.name}{{{OURS}}}"


def counted(metric: Metric, *by: str, window: str = "$__rate_interval") -> str:
    """How often it has happened within a window, over all workers. Of a histogram: how many there were."""
    name = f"{metric.name}_count" if isinstance(metric, Histogram) else metric.name
    chosen = f"{{{OURS}}}" if "cluster" in metric.labels else ""
    return f"sum by ({', '.join(by)}) (increase({name}{chosen}[{window}]))"


def lately(metric: Counter, *by: str) -> str:
    """The same of what is rare, within an hour: a counter is born at 1, which increase() does not see."""
    chosen = f"{metric.name}{{{OURS}}}" if "cluster" in metric.labels else metric.name
    return f"sum by ({', '.join(by)}) (increase({chosen}[1h]) > 0 or ({chosen} unless {chosen} offset 1h))"


def quantile(share: float, name: str, chosen: str, *by: str) -> str:
    """A quantile of a histogram, over all workers."""
    return f"histogram_quantile({share}, sum by (le, {', '.join(by)}) (rate({name}_bucket{{{chosen}}}[$__rate_interval])))"


def spread(metric: Histogram, title: str) -> Graph:
    """How long it takes mostly, and at the worst of twenty."""
    return Graph(
        title=title,
        lines=tuple(
            Line(expr=quantile(share, metric.name, OURS, "kind"), called=f"{{{{kind}}}} {called}")
            for share, called in ((0.5, "half"), (0.95, "95 of 100"))
        ),
        meaning=metric.meaning,
        unit="s",
    )


SAFE = Row(
    title="Is it safe?",
    panels=(
        Number(
            title="Halted by a person",
            line=Line(expr=level(metrics.HALTED)),
            worse=(1,),
            meaning=f"{metrics.HALTED.meaning} `nodewarden status` says who and why.",
        ),
        Number(
            title="Since the last scan began",
            line=Line(expr=f"time() - max by (cluster) ({metrics.SCAN_BEGAN.name}{{{OURS}}})"),
            worse=(180, 600),
            meaning="Where it grows, no scanner looks after the cluster.",
            unit="s",
        ),
        Number(
            title="Attempts at a lost scanner's task",
            line=Line(expr=f"max by (cluster) ({metrics.SCANNER_ATTEMPTS.name}{{{OURS}}})"),
            worse=(3,),
            meaning=metrics.SCANNER_ATTEMPTS.meaning,
        ),
        Number(
            title="Workers without Temporal",
            line=Line(expr=f"sum({metrics.TEMPORAL_AWAY.name}) or vector(0)", called="workers"),
            worse=(1,),
            meaning=metrics.TEMPORAL_AWAY.meaning,
        ),
        Number(
            title="View may not be acted on",
            line=Line(expr=level(metrics.VIEW_STALE)),
            worse=(1,),
            meaning=metrics.VIEW_STALE.meaning,
        ),
        Number(
            title="Lease needed and not held",
            line=Line(expr=f"clamp_min({level(metrics.LEASE_NEEDED)} - {level(metrics.LEASE_HELD)}, 0)"),
            worse=(1,),
            meaning=metrics.LEASE_HELD.meaning,
        ),
        Number(
            title="Queues without a worker",
            line=Line(
                expr=f"count(sum by (namespace, task_queue) (temporal_num_pollers{{{QUEUES}}}) == 0) or vector(0)",
                called="task queues",
            ),
            worse=(1,),
            meaning="`nodewarden` is workflows, `cluster.NAME` a cluster's API, `power.SITE` its devices.",
        ),
        Graph(
            title="Workers' clocks, ahead of Temporal's",
            lines=(Line(expr=metrics.CLOCK_AHEAD.name, called="{{instance}}"),),
            meaning=metrics.CLOCK_AHEAD.meaning,
            unit="s",
        ),
    ),
)
PEOPLE = Row(
    title="Who is needed?",
    panels=(
        Number(
            title="Episodes that need a person",
            line=Line(expr=level(metrics.NEED_PERSON)),
            worse=(1,),
            meaning=f"{metrics.NEED_PERSON.meaning} `nodewarden status` says what to do.",
        ),
        Number(
            title="Open circuit breakers",
            line=Line(expr=level(metrics.CIRCUIT_BREAKERS_OPEN)),
            worse=(1,),
            meaning=metrics.CIRCUIT_BREAKERS_OPEN.meaning,
        ),
        Number(
            title="DATA AT RISK, last hour",
            line=Line(expr=lately(metrics.DATA_AT_RISK, "cluster")),
            worse=(0.5,),
            nothing="none",
            meaning=metrics.DATA_AT_RISK.meaning,
        ),
        Number(
            title="Requests without a signature, last hour",
            line=Line(expr=lately(metrics.REFUSED_POWER_REQUESTS, "reason"), called="{{reason}}"),
            worse=(0.5,),
            nothing="none",
            meaning=metrics.REFUSED_POWER_REQUESTS.meaning,
        ),
        Graph(
            title="Fence devices that do not answer",
            lines=(
                Line(
                    expr=f"{counted(metrics.DEVICE_SILENT, 'cluster', 'node', 'endpoint', window='75m')} > 0",
                    called="{{node}} {{endpoint}}",
                ),
            ),
            meaning=metrics.DEVICE_SILENT.meaning,
        ),
        Graph(
            title="Fence devices where others may listen or answer",
            lines=(
                Line(
                    expr=f"{counted(metrics.DEVICE_INSECURE, 'cluster', 'node', 'endpoint', window='75m')} > 0",
                    called="{{node}} {{endpoint}}",
                ),
            ),
            meaning=metrics.DEVICE_INSECURE.meaning,
        ),
        Graph(
            title="Fenced again and again",
            lines=(Line(expr=lately(metrics.REPEATED_FENCING, "cluster", "node", "cause"), called="{{node}} {{cause}}"),),
            meaning=metrics.REPEATED_FENCING.meaning,
        ),
        Graph(
            title="Messages to people, decisions to the stream",
            lines=(
                Line(expr=counted(metrics.NOTIFICATIONS, "result"), called="{{result}}"),
                Line(expr=counted(metrics.DECISIONS, "sink", "result"), called="decisions {{sink}} {{result}}"),
                Line(expr=counted(metrics.OBSERVATIONS_DROPPED), called="records dropped"),
            ),
            meaning=f"{metrics.NOTIFICATIONS.meaning} {metrics.DECISIONS.meaning}",
        ),
    ),
)
UNDER_WAY = Row(
    title="What is under way?",
    panels=(
        Graph(
            title="Permits",
            lines=(
                Line(expr=level(metrics.PERMITS_USED), called="{{cluster}} in use"),
                Line(expr=level(metrics.PERMITS_WAITING), called="{{cluster}} waiting"),
            ),
            meaning=f"{metrics.PERMITS_USED.meaning} {metrics.PERMITS_WAITING.meaning}",
        ),
        Graph(
            title="Phases entered",
            lines=(
                Line(expr=counted(metrics.EPISODE_PHASES, "kind", "phase"), called="{{kind}} {{phase}}"),
                Line(
                    expr=counted(metrics.UNEXPECTED_PHASES, "kind", "before", "after"),
                    called="unexpected: {{kind}} {{before}} to {{after}}",
                ),
            ),
            meaning=f"{metrics.EPISODE_PHASES.meaning} {metrics.UNEXPECTED_PHASES.meaning}",
            stacked=True,
        ),
        Graph(
            title="Steps done",
            lines=(
                Line(
                    expr="sum by (activity_type) (increase(temporal_activity_execution_latency_count"
                    '{activity_type=~"(isolation|power-management|recovery|remediation|preservation)[.].+"}[$__rate_interval]))',
                    called="{{activity_type}}",
                ),
            ),
            meaning="Activities of episodes, by the step that they belong to, tried once or more often.",
            stacked=True,
        ),
    ),
)
TOOK = Row(
    title="How did it end, and how long did it take?",
    panels=(
        Graph(
            title="Episodes that have ended",
            lines=(Line(expr=counted(metrics.EPISODES_ENDED, "kind", "outcome"), called="{{kind}} {{outcome}}"),),
            meaning=metrics.EPISODES_ENDED.meaning,
            stacked=True,
        ),
        spread(metrics.TIME_TO_DETECT, "Time to detect"),
        spread(metrics.TIME_TO_OFF, "Time to safe: off is proven"),
        spread(metrics.TIME_TO_SERVICE, "Time to service"),
    ),
)
TEMPORAL = Row(
    title="Temporal, as the workers see it",
    panels=(
        Graph(
            title="Activities: 95 of 100 end within",
            lines=(
                Line(
                    expr=quantile(0.95, "temporal_activity_execution_latency", QUEUES, "activity_type"),
                    called="{{activity_type}}",
                ),
            ),
            meaning="The long poll `scan.observe-cluster` takes up to `scan.wait`, and is no trouble.",
            unit="s",
        ),
        Graph(
            title="Activities that failed",
            lines=(
                Line(
                    expr=f"sum by (activity_type) (increase(temporal_activity_execution_failed{{{QUEUES}}}[$__rate_interval]))",
                    called="{{activity_type}}",
                ),
            ),
            meaning="Tries that failed; most are tried again.",
        ),
        Graph(
            title="Workflow tasks: 95 of 100 end within",
            lines=(
                Line(
                    expr=quantile(0.95, "temporal_workflow_task_execution_latency", QUEUES, "workflow_type"),
                    called="{{workflow_type}}",
                ),
            ),
            meaning="How long a worker thinks before an episode goes on.",
            unit="s",
        ),
        Graph(
            title="Requests to Temporal that failed",
            lines=(
                Line(
                    expr="sum by (operation, status_code) (increase(temporal_request_failure[$__rate_interval]))",
                    called="{{operation}} {{status_code}}",
                ),
            ),
            meaning="With Temporal away nothing destructive starts, and what runs goes on when it is back.",
        ),
        Graph(
            title="Free slots for activities",
            lines=(
                Line(
                    expr=f'sum by (task_queue) (temporal_worker_task_slots_available{{{QUEUES},worker_type="ActivityWorker"}})',
                    called="{{task_queue}}",
                ),
            ),
            meaning="At 0 all of a queue's workers are busy: devices hang, or an API server does.",
        ),
    ),
)
ROWS = (SAFE, PEOPLE, UNDER_WAY, TOOK, TEMPORAL)


def made() -> str:
    """The file's content."""
    board = (
        dashboard.Dashboard("nodewarden")
        .uid("nodewarden")
        .tags(["nodewarden", "kubernetes"])
        .readonly()
        .refresh("30s")
        .time("now-6h", "now")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        .with_variable(
            dashboard.QueryVariable("cluster")
            .label("Cluster")
            .datasource(SOURCE)
            .query(f"label_values({metrics.SCAN_BEGAN.name}, cluster)")
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(VariableSort.ALPHABETICAL_ASC)
            .multi(True)
            .include_all(True)
            .all_value(".*")
        )
    )
    numbers = count(1)
    for row in ROWS:
        board = board.with_row(dashboard.Row(row.title).id(next(numbers)))
        for panel in _panels(row):
            board = board.with_panel(panel.id(next(numbers)))
    return JSONEncoder(sort_keys=True, indent=2).encode(board.build()) + "\n"


def _panels(row: Row) -> Iterator[stat.Panel | timeseries.Panel]:
    numbers = [each for each in row.panels if isinstance(each, Number)]
    graphs = [each for each in row.panels if isinstance(each, Graph)]
    for index, number in enumerate(numbers):
        yield _number(number).height(5).span(WIDTH // len(numbers) + (index < WIDTH % len(numbers)))
    for index, graph in enumerate(graphs):
        alone = index == len(graphs) - 1 and not index % 2
        yield _graph(graph).height(8).span(WIDTH if alone else WIDTH // 2)


def _number(number: Number) -> stat.Panel:
    colours = (RED,) if len(number.worse) == 1 else (AMBER, RED)
    steps = [Threshold(color=GREEN), *(Threshold(value=at, color=each) for at, each in zip(number.worse, colours, strict=True))]
    panel = stat.Panel().title(number.title).description(number.meaning).datasource(SOURCE).unit(number.unit)
    panel = panel.color_mode(BigValueColorMode.BACKGROUND).decimals(0).no_value(number.nothing)
    panel = panel.thresholds(dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
    panel = panel.reduce_options(tuning.ReduceDataOptions().calcs(["lastNotNull"]))
    return panel.with_target(_query(number.line).ref_id("A").instant())


def _graph(graph: Graph) -> timeseries.Panel:
    legend = tuning.VizLegendOptions().display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM).show_legend(True)
    panel = (
        timeseries.Panel()
        .title(graph.title)
        .description(graph.meaning)
        .datasource(SOURCE)
        .unit(graph.unit)
        .legend(legend)
        .line_width(1)
    )
    if graph.stacked:
        panel = panel.fill_opacity(30).stacking(tuning.StackingConfig().mode(StackingMode.NORMAL))
    for index, line in enumerate(graph.lines):
        panel = panel.with_target(_query(line).ref_id(chr(ord("A") + index)))
    return panel


def _query(line: Line) -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(line.expr).legend_format(line.called)


if __name__ == "__main__":
    FILE.write_text(made(), encoding="utf-8")
