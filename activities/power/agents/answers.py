"""What a fence agent meant by the way it ended: its state, its plugs, and which kind of failure its words point to."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from activities.errors import ErrorType
from activities.power.processes.child_process import Ended
from policy.fence.power import PowerState

STATUS = {0: (PowerState.ON, rb"Status: ON"), 2: (PowerState.OFF, rb"Status: OFF")}
"""What a run of `status` must both end with and say. An interpreter that can't open its script ends with 2, which is off, too."""

LONGEST_WORDS = 300
LISTED_FOR_PEOPLE = 20

# Only ever a hint (every failure is status 1): they choose between types that all say that nothing was sent.
_HINTS: Mapping[ErrorType, tuple[str, ...]] = {
    ErrorType.UNAUTHORIZED: (
        *("authentication failure", "unknown user", "unsupported security level", "authorizationerror", "unauthorized"),
        *(r"\b401\b", "permission denied", "access denied", "correct privileges"),
        "(invalid|wrong|incorrect) (user|login|password|credential)",
    ),
    ErrorType.INVALID_CONFIG: (
        "you have to (enter|set|use)",
        "valid choice",
        "is not a valid",
        "can't find port",
        "not accessible",
    ),
    ErrorType.UNREACHABLE: (
        *("no response", "timed out", "timeout", "unable to connect", "connection (refused|lost)", "no route", "unreachable"),
        *("resolve", "unknown host", "name or service not known"),
    ),
}


def state(ended: Ended) -> PowerState:
    """What a run of `status` says; unknown where its end and its words do not agree."""
    found, said = STATUS.get(ended.returncode, (PowerState.UNKNOWN, b""))
    return found if said in (line.strip() for line in ended.stdout.splitlines()) else PowerState.UNKNOWN


def hint(ended: Ended) -> ErrorType:
    """Why a run that commanded nothing failed, as far as its words tell."""
    text = (ended.stderr + ended.stdout).decode(errors="replace").lower()
    return next((kind for kind, words in _HINTS.items() if re.search("|".join(words), text)), ErrorType.TRANSIENT)


def words(ended: Ended, hide: Callable[[str], str]) -> str:
    """What an agent said of its failure, in one line. hide: takes the secrets out, before anything is left out."""
    text = hide((ended.stderr or ended.stdout).decode(errors="replace"))
    lines = [re.sub(r"^[\d-]+ [\d:,]+ (ERROR|WARNING): ", "", line).strip() for line in text.splitlines()]
    worth = [line for line in lines if line and not line.startswith("Please use")]
    # Of a crash the last line says what it was.
    chosen = worth[-1:] if worth and worth[0].startswith("Traceback") else worth[:2]
    return " ".join(chosen)[:LONGEST_WORDS] or f"it ended with status {ended.returncode} and said nothing"


def listed(ended: Ended) -> Mapping[str, str] | None:
    """A device's plugs and their other names; None where the agent can't list."""
    lines = ended.stdout.decode(errors="replace").splitlines()
    if ended.returncode != 0 or ended.timed_out or any(line.startswith(("N/A", "NOTICE:")) for line in lines):
        return None
    return {plug: alias for plug, _, alias in (line.partition("\t") for line in lines) if plug}


def is_listed(plug: str, switch: str, plugs: Mapping[str, str]) -> bool:
    """Whether a plug is among those listed, by either name; strips in a chain list it as `switch:plug`. Where plugs have numbers,
    a number is none of the other names: agents take it for the number."""
    wanted = {plug, f"{switch}:{plug}", plug.removeprefix("1:")}
    numbered = plug.rpartition(":")[2].isdecimal() and all(each.rpartition(":")[2].isdecimal() for each in plugs)
    return not wanted.isdisjoint({*plugs} if numbered else {*plugs, *plugs.values()})


def some_of(plugs: Mapping[str, str]) -> str:
    """Plugs as a list for people."""
    return ", ".join(sorted({name for pair in plugs.items() for name in pair if name})[:LISTED_FOR_PEOPLE]) or "none"
