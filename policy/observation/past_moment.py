"""Why a node was not repaired at a moment that is past, from its spells: what was seen, what held it, and since when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial

from policy.observation.spells import Ending, Spell, held_by
from policy.values.display_text import counted
from policy.values.times import as_of, written

LATELY = timedelta(hours=1)
"""How long after its end a spell is still an answer."""

_ENDINGS = {
    Ending.CAME_BACK: "it came back by itself",
    Ending.OTHERS: "others repaired it",
    Ending.OURS: "an episode of ours began",
    Ending.STILL_SICK: "it was still sick when the record was closed",
    Ending.NOT_OURS: "no health check asked for it any more",
}


def ending(spell: Spell) -> str:
    """What became of the node, in words; "" while the spell lasts."""
    if spell.ending is None:
        return ""
    more = ", ".join((*spell.traces, *((f"incident {spell.incident}",) if spell.incident else ())))
    return _ENDINGS[spell.ending] + (f" ({more})" if more else "")


def would_have(spell: Spell) -> str:
    """The whole spell in one sentence, without its moments."""
    steps = f" ({', '.join(spell.steps)})" if spell.steps else ""
    held = f"; held by {', '.join(dict.fromkeys(each.code for each in spell.held))}" if spell.held else ""
    return f"would have been repaired{steps}: {spell.cause}, under {spell.check}{held}; {ending(spell) or 'it is sick'}"


def dated(spell: Spell) -> str:
    """The same after its moments, in UTC."""
    until = f"to {written(spell.ended)}" if spell.ended is not None else "until now"
    return f"{written(spell.due)} {until}: {would_have(spell)}"


def is_about(spell: Spell, moment: datetime) -> bool:
    """Whether it says how the node was at that moment: it was sick then, or had been lately."""
    return spell.since <= moment and (spell.ended is None or moment < spell.ended + LATELY)


def sentences(spells: Iterable[Spell], moment: datetime) -> Iterator[str]:
    """Of one node, the oldest spell first, in the zone of the moment. What came later than the moment is left out, but for the
    end of a spell that it lies in."""
    clock = partial(as_of, moment)
    for spell in sorted(spells, key=lambda each: each.due):
        if not is_about(spell, moment):
            continue
        if spell.ended is not None and spell.ended <= moment:
            if spell.ending is Ending.OURS:
                yield f"not repaired until {clock(spell.ended)} ({spell.cause}, under {spell.check}), when {ending(spell)}"
                continue
            yield f"it had been sick until {clock(spell.ended)} ({spell.cause}, under {spell.check}): {ending(spell)}"
            continue
        yield f"it was sick since {clock(spell.since)}: {spell.cause}, under {spell.check}"
        if moment < spell.due:
            yield f"a repair was due at {clock(spell.due)} only"
            continue
        steps = f" ({', '.join(spell.steps)})" if spell.steps else ""
        turn = f"after {counted(spell.place, 'other node')}" if spell.place else "as the first"
        yield f"it would have been repaired{steps} from {clock(spell.due)} on, {turn}"
        held = next((each for each in reversed(spell.held) if each.since <= moment), None)
        if held is not None:
            yield f"what held it since {clock(held.since)}: {held_by(held.code, held.message)}"
        if spell.ended is not None:
            yield f"what became of it, at {clock(spell.ended)}: {ending(spell)}"
