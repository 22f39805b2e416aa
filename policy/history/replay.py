"""A changed health check, tried on recorded spells: which would have been due, when, and what their repairs would have come to.

Only what spells can judge may differ from the check under which they were recorded: a longer time-out of a condition, or a
condition that is no longer listed. A shorter one would have found sicknesses that no spell records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime, timedelta
from typing import Any

from policy.checks.health_check import HealthCheck
from policy.checks.verdicts import cause_of
from policy.history.comparison import JudgedSpell, Judgement, RecordedSpell, cases_of, joined
from policy.history.spells import Ending, Spell
from policy.values.errors import PolicyError, shown
from policy.values.times import format_duration

_NO_BEARING = frozenset(
    {"ref", "uid", "generation", "conditions", "machine_conditions", "storm", "paused", "warnings"}
    | {"rungs", "escalation", "external_strategy", "healthy_delay", "autoscaler_patience"}
)
"""Fields that are judged here, and those that decide neither what is due nor what is held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckThen:
    """A check as it was when its spells were exported. seconds: of the time-out for each cause. fields: all else that decides
    what is due or held, by the names of `HealthCheck` in camelCase, such as `selector` and `minHealthy`; null where the check
    does not set it. They are only compared."""

    check: str
    seconds: Mapping[str, float]
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedSpell:
    """One spell under the check as it was, and under the changed one; due: then, None where it would not have been."""

    before: JudgedSpell
    after: JudgedSpell
    due: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedCheck:
    """A changed check on its recorded spells: how many repairs would have begun, and how many of them false; the same under the
    check as it was."""

    check: str
    repairs: int
    false_repairs: int
    repairs_before: int
    false_before: int
    spells: tuple[ReplayedSpell, ...]


def check_then(check: HealthCheck) -> CheckThen:
    """What an export says of it."""
    others = {_camel(each.name): _plain(getattr(check, each.name)) for each in fields(check) if each.name not in _NO_BEARING}
    return CheckThen(check=check.ref.key, seconds=_seconds(check), fields=others)


def _plain(value: Any) -> Any:
    """As JSON has it, so that what is read back is equal."""
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if is_dataclass(value):
        return {_camel(each.name): _plain(getattr(value, each.name)) for each in fields(value)}
    return value


def replay(
    check: HealthCheck, then: CheckThen, spells: Iterable[RecordedSpell], usual: timedelta, now: datetime
) -> ReplayedCheck:
    """The oldest spell first. usual: how long a repair takes. now: when they were exported.

    Raises PolicyError for a field that spells can't judge.
    """
    seconds, known = _seconds(check), check_then(check)
    for name, value in known.fields.items():
        if (was := then.fields.get(name)) != value:
            problem = f"expected it unchanged, {shown(was)}, as spells can't judge it; got {shown(value)}"
            raise PolicyError(then.check, name, problem)
    for cause, after in seconds.items():
        if (before := then.seconds.get(cause)) is None:
            raise PolicyError(then.check, cause, "expected a condition that was listed when the spells were recorded")
        if after < before:
            least, got = (format_duration(timedelta(seconds=each)) for each in (before, after))
            problem = f"expected a time-out of at least {least}, under which the spells were recorded, got {got}"
            raise PolicyError(then.check, cause, problem)

    def due(spell: Spell) -> datetime | None:
        if spell.cause not in then.seconds:
            return spell.due  # no condition's
        later = seconds.get(spell.cause)
        moment = spell.due + timedelta(seconds=later - then.seconds[spell.cause]) if later is not None else None
        # What we repaired was sick until then, and by no sign well without that: as in the table of longer time-outs.
        sick = moment is not None and (spell.ending is Ending.OURS or moment < (spell.ended or now))
        return moment if sick else None

    mine = joined(each for each in spells if each.spell.check == then.check)
    before, after = cases_of(mine, usual, now), cases_of(mine, usual, now, due)
    return ReplayedCheck(
        check=then.check,
        repairs=sum(each.begins is not None for each in after),
        false_repairs=sum(each.judgement is Judgement.FALSE for each in after),
        repairs_before=sum(each.begins is not None for each in before),
        false_before=sum(each.judgement is Judgement.FALSE for each in before),
        spells=tuple(
            ReplayedSpell(before=was, after=would, due=due(was.spell)) for was, would in zip(before, after, strict=True)
        ),
    )


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _seconds(check: HealthCheck) -> dict[str, float]:
    found = dict[str, float]()
    for each in (*check.conditions, *check.machine_conditions):
        cause, seconds = cause_of(each.type, each.status), each.duration.total_seconds()
        found[cause] = min(seconds, found.get(cause, seconds))
    return found
