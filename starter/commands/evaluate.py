"""`nodewarden evaluate`: what health checks think of objects in files, without any cluster or server."""

from __future__ import annotations

from typing import Annotated

import typer

from policy.checks.health_check import Overlap
from starter.commands.arguments import FilesOption, NowOption, OutputOption, asked_now, read_cluster
from starter.commands.session import Exit, session_of, show, working

OverlapOption = Annotated[
    Overlap,
    typer.Option(
        "--overlap",
        help="Whether one open circuit breaker among the checks that cover a node holds it, or each check acts by its own.",
    ),
]


@working
async def evaluate(
    context: typer.Context,
    *,
    filename: FilesOption = None,
    now: NowOption = "",
    overlap: OverlapOption = Overlap.STRICTEST,
    output: OutputOption = None,
) -> Exit:
    """Judge objects from files by the health checks among them: each verdict, each circuit breaker, and what would be done.

    The files hold what kubectl get -o yaml prints, a must-gather, or manifests that were never applied. Exit code 1: some object
    could not be used; everything else was evaluated all the same.
    """
    from policy.scan.evaluation import evaluate as evaluate_checks
    from starter.output.evaluation import as_model, as_table

    session = session_of(context, output=output)
    at = asked_now(now)
    cluster = read_cluster(filename, at, overlap=overlap)
    checks = evaluate_checks(cluster.ledger.known(at))
    show(session, lambda: as_model(checks, cluster.mistakes), lambda: as_table(checks, cluster.mistakes, now=at))
    return Exit.FAILED if cluster.mistakes else Exit.OK
