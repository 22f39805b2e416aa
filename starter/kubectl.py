"""`kubectl nodewarden …`: the same commands as a plugin of kubectl, and what kubectl asks for its shell completion.

kubectl runs what is called `kubectl-nodewarden`, with the words after that name, and at TAB `kubectl_complete-nodewarden`, with
the words so far. Flags that kubectl's users put anywhere (`--context`, `--kubeconfig`) are global ones here, and go first.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence

from starter.cli import run_as

KUBECTLS = ("--context", "--kubeconfig")
NO_FILES = ":4"
"""How a completer of kubectl's ends: the shell is not to add names of files (ShellCompDirectiveNoFileComp)."""


def main() -> None:
    sys.argv[1:] = hoisted(sys.argv[1:])
    run_as("kubectl nodewarden")


def complete() -> None:
    """Entry point `kubectl_complete-nodewarden`: the last word is the one that is being typed."""
    words = ["nodewarden", *hoisted(sys.argv[1:])]
    os.environ |= {"_NODEWARDEN_COMPLETE": "complete_bash", "COMP_WORDS": shlex.join(words), "COMP_CWORD": str(len(words) - 1)}
    run_as("nodewarden", at_last=NO_FILES)


def hoisted(words: Sequence[str]) -> list[str]:
    """The words with kubectl's flags first, wherever they stood. What follows a `--` stays there, and so does a flag that is the
    last word: it has no value yet."""
    first, rest, left = list[str](), list[str](), list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            rest += [word, *left]
            break
        if word in KUBECTLS and left:
            first += [word, left.pop(0)]
        elif word.startswith(tuple(f"{flag}=" for flag in KUBECTLS)):
            first.append(word)
        else:
            rest.append(word)
    return [*first, *rest]
