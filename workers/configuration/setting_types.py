"""What settings are made of: durations, addresses, lists, and how each is refused that is none."""

from __future__ import annotations

import re
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict

from policy.objects.scopes import EXPECTED as EXPECTED_SCOPE
from policy.objects.scopes import is_scope
from policy.values.times import parse_duration

NAME = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
"""Of a namespace, as Kubernetes takes it."""
SECRET_NAME = rf"^({NAME}/{NAME}(\.{NAME})*)?$"
SAME_ELSEWHERE = "the same as a Secret, namespace/name, of the cluster we run in; an empty one is filled by the first worker"


def _duration(value: object) -> object:
    """As Kubernetes objects write them, such as 1m30s; bare numbers are refused because their unit is a guess."""
    if isinstance(value, timedelta):
        return value
    try:
        found = parse_duration(value.strip()) if isinstance(value, str) else None
    except ValueError:
        found = None
    if found is None or found < timedelta(0):
        raise ValueError(f"expected a duration such as 30s, 5m or 1h30m, got {value!r}")
    return found


def listed(value: object) -> object:
    """`a,b` from the environment; lists from the file."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Duration = Annotated[timedelta, BeforeValidator(_duration)]
UserPath = Annotated[Path, AfterValidator(Path.expanduser)]
"""A path as people write it in a file, where no shell has replaced the `~`."""


def _web_address(value: str) -> str:
    """Without a slash at its end, so that paths are put behind it."""
    scheme, _, rest = value.partition("://")
    if value and (scheme not in {"http", "https"} or not rest or set(rest) & set("?#@ ")):
        raise ValueError(f"expected an address such as https://nodes.example.com, got {value!r}")
    return value.rstrip("/")


WebAddress = Annotated[str, AfterValidator(_web_address)]


def within(expected: str, least: timedelta, most: timedelta) -> AfterValidator:
    """Refuses a duration outside of both, saying what was expected."""

    def check(value: timedelta) -> timedelta:
        if not least <= value <= most:
            raise ValueError(f"expected {expected}")
        return value

    return AfterValidator(check)


def between(least: str, most: str) -> AfterValidator:
    """The same, of durations as they are written."""
    return within(f"between {least} and {most}", parse_duration(least), parse_duration(most))


def at_most(words: str, most: timedelta) -> AfterValidator:
    """Refuses a longer duration. words: how the longest is called."""
    return within(f"at most {words}", timedelta.min, most)


def host_and_port(example: str) -> AfterValidator:
    """Refuses what is neither empty nor host:port."""

    def check(value: str) -> str:
        parts = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/]+):(\d{1,5})", value)
        if value and (parts is None or not 1 <= int(parts[2]) <= 65535):
            raise ValueError(f"expected host:port such as {example}, got {value!r}")
        return value

    return AfterValidator(check)


def is_loopback(host: str) -> bool:
    """Whether that name or address leads to this machine only."""
    try:
        return host == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def scope_name(value: str) -> str:
    """Raises ValueError for what names no scope."""
    if not is_scope(value):
        raise ValueError(f"expected {EXPECTED_SCOPE}, got {value!r}")
    return value


class Section(BaseModel):
    """A part of the settings: an unknown key is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)
