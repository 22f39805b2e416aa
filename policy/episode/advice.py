"""What a person can do for an episode that waits for one, or for a node that is left alone, and what follows from it: shown
wherever the problem is shown (S44). The first step is that of the problem's section in docs/runbooks/needs-a-person.md."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from policy.episode.node_action import AcceptedCommand, Verb, bare_name
from policy.values.display_text import some_of

MOST_NAMED = 5
ASK_STATUS = "`nodewarden status` says what to do"

COMMANDS = {
    Verb.RESUME: "nodewarden resume {node} --question {question}{of}",
    Verb.RETURN_PATH: "nodewarden return-path {node} --question {question} --reason …",
    Verb.ACK_OFF: "nodewarden ack-off {node} --question {question} --who … --reason …",
    Verb.EXTEND: "nodewarden preserve extend {node} --for 24h",
    Verb.ISOLATE: "nodewarden preserve {node} --isolate",
}
"""Command lines that need more than the action and the node."""

ONLY_IF = {
    Verb.RESUME: "after you fixed the cause",
    Verb.ACK_OFF: "if you saw it off",
    Verb.RETURN_PATH: "once nothing on it writes any more",
}
"""When a person should give a command, where each is shown by itself."""

_SENTENCE = (
    (Verb.RESUME, "fix the cause, then ", ""),
    (Verb.RETURN_PATH, "once nothing on it writes any more, ", ""),
    (Verb.ACK_OFF, "if you saw it off, ", ""),
    (Verb.ABORT, "or ", ":"),
)
"""The order in which a person should consider them, with the text before and after each."""


def waiting(nodes: Sequence[str]) -> str:
    """Names the nodes that need a person, for a list of all episodes; "" for none. Their episodes do not go on by themselves."""
    if not nodes:
        return ""
    return f"a person is needed for {some_of(sorted(nodes), MOST_NAMED)}: {ASK_STATUS}"


def command_line(verb: Verb, node: str, question: int, owners: Sequence[str] = ()) -> str:
    """As any person may give it to the episode of a node. question: the number of its present question. owners: of its holds;
    `resume` names one, since its reader may be another person."""
    of = f" --of {shlex.quote(bare_name(owners[0])) if len(owners) == 1 else 'NAME'}" if owners else ""
    return COMMANDS.get(verb, f"nodewarden {verb.value} {{node}}").format(node=node, question=question, of=of)


def ways(node: str, consequences: Mapping[Verb, str], question: int, owners: Sequence[str] = ()) -> tuple[AcceptedCommand, ...]:
    """The commands that an episode of the node accepts now. consequences: what follows from each. For the others see
    `command_line`."""
    return tuple(
        AcceptedCommand(verb=verb, command=command_line(verb, node, question, owners), consequence=consequence)
        for verb, consequence in consequences.items()
    )


def advice(accepted: Sequence[AcceptedCommand]) -> str:
    """A sentence with the commands for the person who is needed. accepted: the commands of its episode; those
    that repair nothing are left out."""
    by_verb = {way.verb: way for way in accepted}
    parts = [
        f"{before}`{way.command}`{between} {way.consequence}"
        for verb, before, between in _SENTENCE
        if (way := by_verb.get(verb)) is not None
    ]
    return "; ".join(parts)


def until_well_or_asked(node: str, *, once: bool = True) -> str:
    """How long a node is left alone after its episode was stopped, and the command that ends that. node: of a Machine without a
    Node `machine/<namespace>/<name>`, which can't be fenced. once: whether being healthy once ends it as well."""
    verb, well = "remediate" if node.startswith("machine/") else "fence", "it is healthy once, or " if once else ""
    return f"until {well}a person asks: `nodewarden {verb} {node} --reason …`"


PAGE = "runbooks/needs-a-person.html"


class RunbookSection(NamedTuple):
    """step: the section begins with it; NODE is the node. phrases: texts that problems of this section contain."""

    heading: str
    step: str
    phrases: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """The page and anchor, relative to `docs_url`."""
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
        "The machine is repaired again and again",
        "`nodewarden offenders` lists its repairs with their reasons: the hardware may be worn out",
        ("this machine (system UUID",),
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
        (
            "not licensed",
            "may not be finished",
            "left off",
            "no look",
            "how many pods",
            "its time is over",
            "is back,",
            "answered, but",
            "Forbidden",
        ),
    ),
)


def section_of(problem: str) -> RunbookSection:
    """The section with the word that comes first in the problem; of several words at one place, the longest. A problem that only
    names a device is about the device."""
    found = [(problem.find(word), -len(word), each) for each in SECTIONS for word in each.phrases if word in problem]
    return min(found)[2] if found else DEVICE if "://" in problem else FIRST
