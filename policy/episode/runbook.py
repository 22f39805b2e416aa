"""The first step for an episode that waits for a person: that of its problem's section in docs/runbooks/needs-a-person.md."""

from __future__ import annotations

import re
from typing import NamedTuple

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
