"""What health checks think: `nodewarden explain NODE` says why a node is, or is not, acted on, live or from files; `nodewarden
evaluate` judges all objects in files, without any cluster or server.

`policy/scan/explanation.py` and `policy/scan/evaluation.py` decide, `starter/output/` prints.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from policy.checks.health_check import Overlap
from starter.commands.arguments import FilesOption, NowOption, OutputOption, asked_now, complete_nodes, for_a_cluster
from starter.commands.session import Exit, Session, complain, session_of, show, working
from starter.errors import MissingError, NoSuchNodeError, RequestError, SilentError
from workers.errors import SettingsError

if TYPE_CHECKING:
    from activities.cluster.watch.offline import ClusterSnapshot
    from starter.output.explanation import NodeExplanation

OverlapOption = Annotated[
    Overlap,
    typer.Option(
        "--overlap",
        help="Whether one open circuit breaker among the checks that cover a node holds it, or each check acts by its own.",
    ),
]


AT = "Instead what is on record of it at a moment, such as 03:12 or '2026-11-26 03:12': in your zone, or with an offset."
NodeArgument = Annotated[
    str,
    typer.Argument(metavar="NODE", help="Name of the node, or of a Machine that never had one.", autocompletion=complete_nodes),
]


@for_a_cluster
async def explain(
    session: Session,
    node: NodeArgument,
    *,
    filename: FilesOption = None,
    now: NowOption = "",
    overlap: OverlapOption = Overlap.STRICTEST,
    at: Annotated[str, typer.Option("--at", metavar="MOMENT", help=AT)] = "",
) -> Exit:
    """Say what each health check thinks of NODE, what holds it back, what would unblock it, and what its episodes did.

    Without -f the cluster is read once and the scanner is asked; with it, only the files are. Exit code 4: there is no such node;
    5: the cluster's API can't be read, so that this is not known; 1: an object can't be used.

    With --at it is answered from records alone, of nodes that are gone too: whether it was sick, what held it from a repair and
    since when, which episode was open.
    """
    from starter.commands.history import at_moment
    from starter.output.explanation import as_model, as_text

    if at:
        if filename or now:
            raise SettingsError("--at: expected neither -f nor --now beside it: it is answered from records")
        return await at_moment(session, at, node=node)
    answer = from_files(filename, node, now, overlap) if filename else await _live(session, node)
    if not session.for_programs and not answer.known and not answer.mistakes and not answer.unread:
        raise NoSuchNodeError(node, answer.explanation.names if answer.explanation is not None else ())
    show(session, lambda: as_model(answer), lambda: as_text(answer))
    if not answer.known:
        return Exit.UNREACHABLE if answer.unread else Exit.MISSING
    return Exit.FAILED if filename and answer.mistakes else Exit.OK


def from_files(files: list[str], node: str, now: str, overlap: Overlap) -> NodeExplanation:
    """What the objects of these files say of the node at that moment."""
    from policy.scan.explanation import explain as explain_node
    from starter.output.explanation import NodeExplanation
    from starter.plans.cluster_objects import cluster_from_files

    at = asked_now(now)
    cluster = cluster_from_files(files, at, overlap=overlap)
    explanation = explain_node(cluster.ledger.known(at), node, cluster.owners, cluster.leased)
    return NodeExplanation(node=node, at=at, explanation=explanation, mistakes=cluster.mistakes)


async def _live(session: Session, node: str) -> NodeExplanation:
    """Ask cluster, scanner and episodes; what does not answer is named, and the others' answers are shown."""
    from policy.scan import obstacles
    from policy.scan.explanation import explain as explain_node
    from starter.client import Nodewarden
    from starter.output.explanation import NodeExplanation
    from workers.errors import TemporalUnreachableError

    settings = session.settings()
    name = session.one_cluster(settings)
    found, problems = None, list[str]()
    try:
        found = await session.snapshot(settings)
    except (SilentError, SettingsError) as error:
        problems.append(f"{error}; its objects are not shown")
    at = found.now if found is not None else datetime.now(UTC)
    scanner, episodes, halted, observed, silent = None, None, "", None, False
    try:
        async with Nodewarden.connect(settings) as warden:
            try:
                scanner = await warden.scanner_status(name)
                halted = obstacles.halted(scanner.report, scanner.pauses)
            except RequestError as error:
                problems.append(str(error))
                silent = not isinstance(error, MissingError)
                halted = "" if silent else str(error)
            try:
                episodes = await warden.of_node(name, node)
                observed = await warden.observations.last_spells(name, node, lasting=scanner is not None)
            except RequestError as error:
                problems.append(str(error))
    except TemporalUnreachableError as error:
        problems.append(f"episodes, modes, pauses and permits are not shown: {error}")
        halted = "Temporal does not answer"
    if found is not None and scanner is not None:
        found.ledger.put_modes(scanner.modes)
    return NodeExplanation(
        node=node,
        at=at,
        explanation=explain_node(found.ledger.known(at), node, found.owners, found.leased) if found is not None else None,
        scanner=scanner,
        episodes=episodes,
        observed=observed,
        mistakes=found.mistakes if found is not None else (),
        problems=problems,
        halted=halted,
        scanner_silent=silent,
        unread=found is None,
    )


@working
async def evaluate(
    context: typer.Context,
    *,
    filename: FilesOption = None,
    now: NowOption = "",
    overlap: OverlapOption = Overlap.STRICTEST,
    replay: Annotated[
        str, typer.Option("--replay", metavar="FILE", help="Try the checks on spells that `compare --export` has written.")
    ] = "",
    output: OutputOption = None,
) -> Exit:
    """Judge objects from files by the health checks among them: each verdict, each circuit breaker, and what would be done.

    The files hold what kubectl get -o yaml prints, a must-gather, or manifests that were never applied. Exit code 1: some object
    could not be used; everything else was evaluated all the same.

    With --replay the checks are those that you want to try, with longer time-outs: which recorded spells would have been due
    under them, when, and which of the repairs would have been false.
    """
    from policy.scan.evaluation import evaluate as evaluate_checks
    from starter.output.evaluation import as_model, as_table
    from starter.plans.cluster_objects import cluster_from_files

    session = session_of(context, output=output)
    at = asked_now(now)
    cluster = cluster_from_files(filename, at, overlap=overlap)
    if replay:
        return _replay(session, cluster, replay)
    checks = evaluate_checks(cluster.ledger.known(at))
    show(session, lambda: as_model(checks, cluster.mistakes), lambda: as_table(checks, cluster.mistakes, now=at))
    return Exit.FAILED if cluster.mistakes else Exit.OK


def _replay(session: Session, cluster: ClusterSnapshot, path: str) -> Exit:
    from policy.history.comparison import ReplayedCheck, replay
    from policy.values.errors import PolicyError
    from starter.output.comparison import ReplayAnswer, as_text, replayed_parts
    from starter.output.evaluation import described
    from starter.plans import spell_file

    for each in cluster.mistakes:
        complain(described(each))
    (head, spells), found = spell_file.read(path), list[ReplayedCheck]()
    usual, known = timedelta(seconds=head.repair_seconds), {each.check: each for each in head.checks}
    for check in cluster.checks:
        if (then := known.get(check.ref.key)) is None:
            expected = ", ".join(sorted(known)) or "a file that was exported where the cluster's objects can be read"
            raise SettingsError(f"--replay: {path}: {check.ref.key}: expected a check of that file: {expected}")
        try:
            found.append(replay(check, then, spells, usual, head.until))
        except PolicyError as error:
            raise SettingsError(f"-f: {error}") from None
    answer = ReplayAnswer(cluster=head.cluster, repair_time=usual, checks=tuple(found))
    show(session, lambda: answer, lambda: as_text(replayed_parts(answer)))
    return Exit.FAILED if cluster.mistakes or not found else Exit.OK
