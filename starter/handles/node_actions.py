"""Having Kubernetes attest who speaks (S42): a NodeAction, made with the caller's own kubeconfig where the cluster knows them.

The object says everything that the word says; its name and uid travel with the word, and no token does. A caller who may not
make one, or has a cluster without that kind, gives an unattested name, as before; whether that is accepted is the worker's to
say.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from temporalio.exceptions import ApplicationError

from activities.cluster.api.paths import NODE_ACTIONS, SELF_REVIEWS
from activities.cluster.api.refusals import ObjectNotFound
from activities.errors import ErrorType, error_type
from policy.episode.operator_commands import NAMESPACE, SAID_LABEL, ActionName, NodeActionSpec
from starter.errors import RefusedError, UnattestedError
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

    async def attest(self, cluster: str, spoken: NodeActionSpec) -> Attested | None:
        """None: the name is not attested. Raises RefusedError where the cluster's admission says that the person may not, and
        where it is not attested although only that is wanted."""
        async with self.opening(cluster) as connection:
            if connection is None:
                self._expect_none(f"the cluster {cluster} is not reached from here")
                return None
            try:
                return await _made(connection, spoken)
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
    from workers.configuration.setting_sources import SettingsError

    try:
        opened = await open_connection(name, settings.connections()[name])
    except (KeyError, SettingsError):
        yield None
        return
    async with opened as connection:
        yield connection


async def attested(speaker: Speaker | None, cluster: str, word: W, spoken: NodeActionSpec) -> W:
    """The word, naming the object that attests it where there is one, and its speaker. Raises RefusedError."""
    if speaker is None:
        return word
    found = await speaker.attest(cluster, spoken)
    if found is None:
        return replace(word, who=word.who or speaker.otherwise)
    return replace(word, who=word.who or found.name, action=found.action)


async def name_of(connection: ClusterConnection) -> str:
    """By which Kubernetes knows the caller."""
    review = await connection.create(SELF_REVIEWS.path(), {"apiVersion": SELF_REVIEWS.api_version, "kind": SELF_REVIEWS.kind})
    return str(review["status"]["userInfo"]["username"])


async def _made(connection: ClusterConnection, spoken: NodeActionSpec) -> Attested:
    name = await name_of(connection)
    wanted = {
        "apiVersion": NODE_ACTIONS.api_version,
        "kind": NODE_ACTIONS.kind,
        "metadata": {"generateName": f"{spoken.action.value}-", "labels": {SAID_LABEL: "true"}},
        "spec": spoken.spec(name),
    }
    metadata = (await connection.create(NODE_ACTIONS.path(namespace=NAMESPACE), wanted))["metadata"]
    return Attested(action=ActionName(name=metadata["name"], uid=metadata["uid"]), name=name)
