"""What a person can do for an episode that waits for one, or for a node that is left alone, and what comes of it: said wherever
the problem is said (S44)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from policy.episode.operator_commands import Verb, Way

MOST_NAMED = 5
ASK_STATUS = "`nodewarden status` says what to do"

COMMANDS = {
    Verb.RESUME: "nodewarden resume {node} --question {question}",
    Verb.RETURN_PATH: "nodewarden return-path {node} --question {question} --reason …",
    Verb.ACK_OFF: "nodewarden ack-off {node} --question {question} --who … --reason …",
    Verb.EXTEND: "nodewarden preserve extend {node} --for 24h",
    Verb.ISOLATE: "nodewarden preserve {node} --isolate",
}
"""Of words that are not a command of their own, or that ask for more than a node."""

ONLY_IF = {
    Verb.RESUME: "after you fixed the cause",
    Verb.ACK_OFF: "if you saw it off",
    Verb.RETURN_PATH: "once nothing on it writes any more",
}
"""When an episode that waits for a person is to be told so, where each word stands by itself."""

_SENTENCE = (
    (Verb.RESUME, "fix the cause, then ", ""),
    (Verb.RETURN_PATH, "once nothing on it writes any more, ", ""),
    (Verb.ACK_OFF, "if you saw it off, ", ""),
    (Verb.ABORT, "or ", ":"),
)
"""The order in which a person who is waited for weighs them, and what stands round each."""


def waiting(nodes: Sequence[str]) -> str:
    """Whose episodes wait for a person, where people look at all of them, "" for nobody's. Nothing goes on by itself there."""
    if not nodes:
        return ""
    named = ", ".join(sorted(nodes)[:MOST_NAMED]) + (f" and {len(nodes) - MOST_NAMED} more" if len(nodes) > MOST_NAMED else "")
    return f"a person is needed for {named}: {ASK_STATUS}"


def ways(node: str, consequences: Mapping[Verb, str], question: int) -> tuple[Way, ...]:
    """The words that an episode of the node hears now, by what comes of each. question: the number of what it asks."""

    def command(word: Verb) -> str:
        return COMMANDS.get(word, f"nodewarden {word.value} {{node}}").format(node=node, question=question)

    return tuple(Way(word=word, command=command(word), consequence=comes) for word, comes in consequences.items())


def advice(heard: Sequence[Way]) -> str:
    """In a sentence, with the commands: for whoever is waited for. heard: of those others are left out that mend nothing."""
    by_word = {way.word: way for way in heard}
    said = [
        f"{before}`{way.command}`{between} {way.consequence}"
        for word, before, between in _SENTENCE
        if (way := by_word.get(word)) is not None
    ]
    return "; ".join(said)


def until_well_or_asked(node: str) -> str:
    """How long a node is left alone on which an episode was stopped, and the command that ends that. node: a Machine without a
    Node is `machine/<namespace>/<name>`, and can't be fenced."""
    verb = "remediate" if node.startswith("machine/") else "fence"
    return f"until it is healthy once, or a person asks: `nodewarden {verb} {node} --reason …`"
