"""What a person can do for an episode that waits for one, or for a node that is left alone, and what comes of it: said wherever
the problem is said (S44)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

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


# The first step for an episode that waits for a person: that of its problem's section in docs/runbooks/needs-a-person.md.

PAGE = "runbooks/needs-a-person.html"


class RunbookSection(NamedTuple):
    """step: the section begins with it; NODE is the node. words: of the problems that are in it."""

    heading: str
    step: str
    words: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """Below `docs_url`."""
        return f"{PAGE}#{'-'.join(re.sub(r'[^a-z0-9 ]', '', self.heading.lower()).split())}"


FIRST = RunbookSection("First", "`nodewarden record NODE` shows what its episode saw, decided and did")
DEVICE = RunbookSection(
    "The device can't be used",
    "`nodewarden fence check --node NODE` reads its devices: fix the Secret, the configuration or the device that it names",
    (
        "Secret",
        "password",
        "credentials",
        "without a device",
        "without any",
        "no method",
        "machine's own",
        "no power",
        "only sent",
    ),
)
SECTIONS = (
    FIRST,
    DEVICE,
    RunbookSection(
        "Off is not proven",
        "`nodewarden fence check --node NODE` reads its devices now: compare them with the machine itself",
        ("off is not proven", "said off", "off no longer", "off can't be", "says on,", "node and power", "power state was read"),
    ),
    RunbookSection(
        "The node still says Ready",
        "do not `ack-off`: compare `nodewarden fence plan NODE` with the rack, the device may be another machine's",
        ("says Ready", "can't be looked at"),
    ),
    RunbookSection(
        "The node does not come back",
        "look at the machine's console: it may check its disks, or find no boot device",
        ("does not say on", "is not back Ready", "its time is over, and"),
    ),
    RunbookSection(
        "Another machine, or another configuration",
        "`nodewarden fence plan NODE` shows the configuration of now: find out which machine it belongs to",
        ("the one pinned", "configured for the node", "machine is given up"),
    ),
    RunbookSection(
        "A path or a volume",
        "`nodewarden record NODE` names the path, volume or pod: look at it in its switch, its cloud or Kubernetes",
        ("the path", "detached", "evicted", "touched", "attached", "left cut", "behind the cut", "no path", "cut off"),
    ),
    RunbookSection(
        "Every step has failed",
        "`nodewarden remediate plan NODE` shows all steps: look at why the last one failed",
        ("every step", "has failed", "had its time", "was deleted", "to nothing", "not remediate", "no Machine", "would replace"),
    ),
    RunbookSection(
        "Not allowed to act",
        "`nodewarden doctor` names what is missing; of a Lease, a maintenance or a person's word, ask its owner",
        ("not licensed", "left off", "no look", "how many pods", "its time is over", "is back,", "answered, but", "Forbidden"),
    ),
)


def section_of(problem: str) -> RunbookSection:
    """Whose words come first in the problem; of several there, the longest. What names only a device is about that."""
    found = [(problem.find(word), -len(word), each) for each in SECTIONS for word in each.words if word in problem]
    return min(found)[2] if found else DEVICE if "://" in problem else FIRST
