"""What a person can do for an episode that waits for one, or for a node that is left alone, and what comes of it: said wherever
the problem is said (S44)."""

from __future__ import annotations

from collections.abc import Sequence

MOST_NAMED = 5
ASK_STATUS = "`nodewarden status` says what to do"


def waiting(nodes: Sequence[str]) -> str:
    """Whose episodes wait for a person, where people look at all of them, "" for nobody's. Nothing goes on by itself there."""
    if not nodes:
        return ""
    named = ", ".join(sorted(nodes)[:MOST_NAMED]) + (f" and {len(nodes) - MOST_NAMED} more" if len(nodes) > MOST_NAMED else "")
    return f"a person is needed for {named}: {ASK_STATUS}"


def advice(node: str, *, abort_means: str, wants_a_word: bool) -> str:
    """In a sentence, with the commands. abort_means: what becomes of the node then. wants_a_word: whether off is what lacks, so
    that a person may vouch for it (S8)."""
    vouch = f"; if you saw it off, `nodewarden ack-off {node}` has its pods started elsewhere" if wants_a_word else ""
    return f"mend it, then `nodewarden resume {node}` tries again{vouch}; or `nodewarden abort {node}`: {abort_means}"


def until_well_or_asked(node: str) -> str:
    """How long a node is left alone on which an episode was stopped, and the command that ends that. node: a Machine without a
    Node is `machine/<namespace>/<name>`, and can't be fenced."""
    verb = "remediate" if node.startswith("machine/") else "fence"
    return f"until it is healthy once, or somebody asks: `nodewarden {verb} {node} --reason …`"
