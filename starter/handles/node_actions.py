"""What a person does by their own rights in Kubernetes: a NodeAction, by which Kubernetes attests who commands a workflow (S42),
and the hold of a node without an episode.

A NodeAction says everything that the command says; its name and uid travel with the command, and no token does. A caller who may
not make one, or has a cluster without that kind, gives an unattested name; whether that is accepted is the worker's to say.
"""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from temporalio.exceptions import ApplicationError

from activities.cluster.api.paths import NODE_ACTIONS, NODES, SELF_REVIEWS
from activities.cluster.api.refusals import ObjectNotFound
from activities.errors import ErrorType, error_type
from policy.episode.gate import HOLD_ANNOTATION, is_held
from policy.episode.node_action import NAMESPACE, SENT_LABEL, ActionName, NodeActionSpec
from starter.errors import MissingError, NoSuchNodeError, RefusedError, SilentError, UnattestedError
from workers.errors import SettingsError
from workflows.kit.messages import OperatorCommand

if TYPE_CHECKING:
    from activities.cluster.api.connection import ClusterConnection
    from workers.configuration.settings import Settings

W = TypeVar("W", bound=OperatorCommand)
Opening = Callable[[str], AbstractAsyncContextManager["ClusterConnection | None"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attested:
    """The object, and the name by which Kubernetes knows the caller."""

    action: ActionName
    name: str


class Speaker:
    """A person who commands. opening: the person's own connection to a cluster, None where there is none. otherwise: the name
    where nothing better is known. complain: gets why the name is not attested, where it could have been. insists: nothing is
    commanded that Kubernetes does not attest."""

    def __init__(self, opening: Opening, *, otherwise: str, complain: Callable[[str], None], insists: bool = False) -> None:
        self.otherwise = otherwise
        self.opening = opening
        self._complain = complain
        self._insists = insists

    async def attest(self, cluster: str, spec: NodeActionSpec) -> Attested | None:
        """None: the name is not attested. Raises RefusedError where the cluster's admission says that the person may not, and
        where it is not attested although only that is wanted."""
        async with self.opening(cluster) as connection:
            if connection is None:
                self._expect_none(f"the cluster {cluster} is not reached from here")
                return None
            try:
                return await _made(connection, spec)
            except ObjectNotFound as error:
                self._expect_none(f"{error.message}; `nodewarden deploy people` has what is needed")
                return None
            except ApplicationError as error:
                if error_type(error) is ErrorType.INVALID_CONFIG:
                    raise RefusedError(error.message) from error
                self._expect_none(error.message, UnattestedError if error_type(error) is ErrorType.FORBIDDEN else RefusedError)
                self._complain(f"who says it is not verified by Kubernetes: {error.message}")
                return None

    def _expect_none(self, why: str, refused: type[RefusedError] = RefusedError) -> None:
        if self._insists:
            raise refused(f"Kubernetes does not attest who you are, so the command was not sent: {why}")


@asynccontextmanager
async def own_connection(settings: Settings, name: str) -> AsyncIterator[ClusterConnection | None]:
    """The caller's own way to a cluster; None where there is none."""
    from workers.configuration.clusters import open_connection

    try:
        opened = await open_connection(name, settings.connections()[name])
    except (KeyError, SettingsError):
        yield None
        return
    async with opened as connection:
        yield connection


async def attested(speaker: Speaker | None, cluster: str, command: W, spec: NodeActionSpec) -> W:
    """The command, naming the object that attests it where there is one, and its speaker. Raises RefusedError."""
    if speaker is None:
        return command
    found = await speaker.attest(cluster, spec)
    if found is None:
        return replace(command, who=command.who or speaker.otherwise)
    return replace(command, who=command.who or found.name, action=found.action)


async def name_of(connection: ClusterConnection) -> str:
    """By which Kubernetes knows the caller."""
    review = await connection.create(SELF_REVIEWS.path(), {"apiVersion": SELF_REVIEWS.api_version, "kind": SELF_REVIEWS.kind})
    return str(review["status"]["userInfo"]["username"])


async def _made(connection: ClusterConnection, spec: NodeActionSpec) -> Attested:
    name = await name_of(connection)
    wanted = {
        "apiVersion": NODE_ACTIONS.api_version,
        "kind": NODE_ACTIONS.kind,
        "metadata": {"generateName": f"{spec.action.value}-", "labels": {SENT_LABEL: "true"}},
        "spec": spec.to_dict(name),
    }
    metadata = (await connection.create(NODE_ACTIONS.path(namespace=NAMESPACE), wanted))["metadata"]
    return Attested(action=ActionName(name=metadata["name"], uid=metadata["uid"]), name=name)


# A hold of a node that has no open episode: the annotation `nodewarden.io/hold`, by which none begins.
#
# The person writes it with their own rights, so that Kubernetes attests who it was, and takes it away in the same way.


async def hold_node(opening: Opening, cluster: str, node: str, *, reason: str) -> str:
    """Hold it until `resume`. Raises RefusedError where another person holds it, the cluster is not reached from here, or the
    caller may not write it; SilentError; NoSuchNodeError."""
    command = f"kubectl annotate node {shlex.quote(node)} {HOLD_ANNOTATION}={shlex.quote(reason)}"
    async with opening(cluster) as connection, _needs_rights(node, command):
        if connection is None:
            raise RefusedError(
                f"{node} has no open episode, and {cluster} is not reached from here: `{command}` keeps one from it"
            )
        found, me = await _value(connection, node), await name_of(connection)
        if found is not None and is_held(found) and not found.startswith(f"by {me}: "):
            raise RefusedError(f"{node} has no open episode, and is held already: {found or HOLD_ANNOTATION}")
        await _write(connection, node, f"by {me}: {reason}")
    return f"{node} has no open episode, and none begins until you resume it (annotation {HOLD_ANNOTATION})"


async def resume_node(opening: Opening, cluster: str, node: str, *, of: str, missing: MissingError) -> str:
    """End that hold: the caller's own, or that of another person by name. Raises RefusedError where it is not that one's, and
    `missing` where there is none."""
    command = f"kubectl annotate node {shlex.quote(node)} {HOLD_ANNOTATION}-"
    async with opening(cluster) as connection, _needs_rights(node, command):
        found = await _value(connection, node) if connection is not None else None
        if connection is None or found is None or not is_held(found):
            raise missing
        if not found.startswith(f"by {of or await name_of(connection)}: "):
            how = f"--of NAME ends that of NAME, `{command}` any"
            raise RefusedError(f"{node} is held, but not by {of or 'you'}: {found or HOLD_ANNOTATION} ({how})")
        await _write(connection, node, None)
    return f"{node} is no longer held: {found}"


@asynccontextmanager
async def _needs_rights(node: str, command: str) -> AsyncIterator[None]:
    """The role of an operator does not give them: a NodeAction, for which it is enough, reaches open episodes only (S42)."""
    try:
        yield
    except ApplicationError as error:
        if error_type(error) is not ErrorType.FORBIDDEN:
            raise SilentError(error.message) from error
        raise RefusedError(
            f"{node} has no open episode, so its hold is an annotation of the Node, for which you need the rights get and "
            f"patch on nodes: {error.message}. Ask a person who has them for `{command}`; `nodewarden pause` keeps episodes from "
            "all nodes and does not need them"
        ) from error


async def _value(connection: ClusterConnection, node: str) -> str | None:
    try:
        body = await connection.get(NODES.path(node))
    except ObjectNotFound:
        from activities.cluster.objects.live_node import all_names

        raise NoSuchNodeError(node, await all_names(connection)) from None
    value: str | None = (body["metadata"].get("annotations") or {}).get(HOLD_ANNOTATION)
    return value


async def _write(connection: ClusterConnection, node: str, value: str | None) -> None:
    await connection.patch_merge(NODES.path(node), {"metadata": {"annotations": {HOLD_ANNOTATION: value}}})
