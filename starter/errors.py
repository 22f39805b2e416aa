"""Why a request of a person or a program was not carried out. Each kind has one meaning and one exit code of the CLI."""

from __future__ import annotations

from collections.abc import Iterable

from policy.values.errors import no_such_target


class RequestError(Exception):
    """Base of what `starter` raises; the text is one line for people."""

    exit_code = 1


class RefusedError(RequestError):
    """Refused, with the reason: an update's validator, a policy, a budget."""

    exit_code = 3


class UnreadableError(Exception):
    """What was asked of the page can't be read: no request at all, so no RequestError. The text is one line for people."""


class UnattestedError(RefusedError):
    """Kubernetes does not let the caller say it, and only attested commands are wanted."""


class EpisodeHeldError(RefusedError):
    """Another episode holds the node (S13). `holder` names it."""

    def __init__(self, node: str, holder: str) -> None:
        super().__init__(f"{node} has an open {holder}")
        self.node = node
        self.holder = holder


class ClusterHeldError(RefusedError):
    """Another deployment's scanner has the cluster (S38). `holder` is what its Lease says."""

    def __init__(self, cluster: str, holder: str) -> None:
        super().__init__(
            f"cluster {cluster} is looked after by another deployment: {holder}; "
            "stop that one first (if it no longer runs, its Lease lapses within a minute)"
        )
        self.cluster = cluster
        self.holder = holder


class MissingError(RequestError):
    """There is no such episode or scanner."""

    exit_code = 4


class NoSuchNodeError(MissingError):
    """Neither a Node nor a Machine has that name."""

    def __init__(self, node: str, known: Iterable[str] = ()) -> None:
        super().__init__(no_such_target(node, known))
        self.node = node


class SilentError(RequestError):
    """Temporal answers, but no worker of ours does: nothing can be asked or commanded now. Or the API of a cluster does not
    let us read what is asked for."""

    exit_code = 5
