"""Where settings are read from, and how a bad one is told: the file, Temporal's own variables, the wording of errors.

What can be set is `workers/configuration/settings.py`; this module knows no key except to name it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from policy.values.errors import did_you_mean
from policy.values.times import format_duration
from workers.errors import SettingsError, expectation

PREFIX = "NODEWARDEN_"
STEP = "__"
CONFIG_VARIABLE = "NODEWARDEN_CONFIG"
FILE_NAME = "nodewarden.yaml"

TEMPORAL_VARIABLES = {
    "TEMPORAL_ADDRESS": "address",
    "TEMPORAL_NAMESPACE": "namespace",
    "TEMPORAL_API_KEY": "api_key",
    "TEMPORAL_TLS": "tls",
    "TEMPORAL_TLS_SERVER_CA_CERT_PATH": "tls_server_ca_file",
    "TEMPORAL_TLS_CLIENT_CERT_PATH": "tls_client_cert_file",
    "TEMPORAL_TLS_CLIENT_KEY_PATH": "tls_client_key_file",
    "TEMPORAL_TLS_SERVER_NAME": "tls_server_name",
}
"""The variables of Temporal's own tools, so that what `temporal` talks to is what we talk to."""

NODE_NAME_VARIABLE = "NODE_NAME"
SECRET_KEYS = frozenset({"api_key"})


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveSetting:
    """One setting as it counts. key: with dots. value: as the settings file has it. source: the variable or the file that sets
    it, or `default`."""

    key: str
    value: Any
    source: str


def find_file(environment: Mapping[str, str], *, named: Path | None = None) -> Path | None:
    """The settings file: the one that was named (then it must exist), else the user's. One that merely lies in the current folder
    is another's as easily as ours, and settings run programs: it is not read (S51)."""
    chosen = named or (Path(environment[CONFIG_VARIABLE]) if environment.get(CONFIG_VARIABLE) else None)
    if chosen is not None:
        chosen = chosen.expanduser()
        if not chosen.is_file():
            source = "--config" if named else CONFIG_VARIABLE
            problem = "is no file" if chosen.exists() else "does not exist"
            raise SettingsError(f"{source}: expected a settings file, {chosen} {problem}")
        return chosen
    base = environment.get("XDG_CONFIG_HOME", "")
    home = Path(base) if base.startswith("/") else Path.home() / ".config"
    users = home / "nodewarden" / FILE_NAME
    return users if users.is_file() else None


def passed_over(environment: Mapping[str, str], *, named: Path | None = None) -> str:
    """What to say where a settings file lies in the current folder, and none was named; else ""."""
    here, users = Path(FILE_NAME), find_file(environment, named=named)
    if named or environment.get(CONFIG_VARIABLE) or not here.is_file() or (users and users.samefile(here)):
        return ""
    return f"./{FILE_NAME} is not read; name it (--config {FILE_NAME}), or keep it as ~/.config/nodewarden/{FILE_NAME}"


def _only_ours(path: Path, found: os.stat_result) -> None:
    """Raises SettingsError for a file that another user could have written (S51)."""
    if found.st_uid not in {0, os.geteuid()}:
        expected = f"expected a settings file of our own (user {os.geteuid()}) or of root"
        raise SettingsError(f"{path}: {expected}, got one of user {found.st_uid}")
    if stat.S_IMODE(found.st_mode) & 0o022:
        raise SettingsError(f"{path}: expected a settings file that only its owner may write: chmod go-w {path}")


def read_file(path: Path) -> dict[str, Any]:
    """The file's keys; an empty file sets nothing. Raises SettingsError, also for one that others may have written."""
    try:
        with path.open(encoding="utf-8") as opened:
            _only_ours(path, os.fstat(opened.fileno()))
            parsed = yaml.safe_load(opened)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        raise SettingsError(f"{path}{where}: expected YAML: {getattr(error, 'problem', None) or error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: cannot be read: {error}") from error
    if parsed is None:
        return {}
    if not isinstance(parsed, dict) or not all(isinstance(key, str) for key in parsed):
        raise SettingsError(f"{path}: expected a mapping of settings, such as `scan: {{cap: 2}}`, got {type(parsed).__name__}")
    return parsed


def shared_variables(environment: Mapping[str, str]) -> dict[str, Any]:
    """TEMPORAL_* and the downward API's NODE_NAME as settings; empty ones count as unset."""
    given: dict[str, Any] = {}
    temporal = {key: environment[name] for name, key in TEMPORAL_VARIABLES.items() if environment.get(name)}
    if temporal:
        given["temporal"] = temporal
    if environment.get(NODE_NAME_VARIABLE):
        given["node_name"] = environment[NODE_NAME_VARIABLE]
    return given


def explain(error: ValidationError, *, model: type[BaseModel], file: Path | None, written: Mapping[str, Any]) -> SettingsError:
    """All that is wrong, one line each: key, source, expectation."""
    lines = [
        f"{_dotted(problem['loc'])}{_source(problem['loc'], file, written)}: {_expectation(dict(problem), model)}"
        for problem in error.errors(include_url=False)
    ]
    return SettingsError("\n".join(lines))


def _dotted(location: Sequence[int | str]) -> str:
    return ".".join(str(part) for part in location) or "settings"


def _source(location: Sequence[int | str], file: Path | None, written: Mapping[str, Any]) -> str:
    if variable := _variable(location):
        return f" (from {variable})"
    return f" (in {file})" if file and location and location[0] in written else ""


def _variable(location: Sequence[int | str]) -> str:
    """The environment's variable that sets it, or all that it is part of; "" for none."""
    names = {name.upper(): name for name, value in os.environ.items() if value}
    for length in range(len(location), 0, -1):
        variable = PREFIX + STEP.join(str(part) for part in location[:length]).upper()
        if variable in names:
            return names[variable]
    shared = {name: ["temporal", key] for name, key in TEMPORAL_VARIABLES.items()} | {NODE_NAME_VARIABLE: ["node_name"]}
    return next((name for name, place in shared.items() if place == list(location) and os.environ.get(name)), "")


def effective(settings: BaseModel, *, file: Path | None) -> list[EffectiveSetting]:
    """Every setting as it counts, and where it comes from. A secret's value is hidden."""
    return list(_effective(settings, (), read_file(file) if file else {}, file))


def _effective(found: Any, at: tuple[str, ...], written: Any, file: Path | None) -> Iterator[EffectiveSetting]:
    inside = {key: getattr(found, key) for key in type(found).model_fields} if isinstance(found, BaseModel) else found
    if at and not (isinstance(inside, Mapping) and inside):
        source = _variable(at) or (str(file) if written is not None else "default")
        yield EffectiveSetting(key=_dotted(at), value=_plain(found), source=source)
        return
    for key, value in inside.items():
        name = str(key)
        yield from _effective(value, (*at, name), written.get(name) if isinstance(written, Mapping) else None, file)


def _plain(value: Any) -> Any:
    """As the settings file has it."""
    match value:
        case timedelta():
            return format_duration(value)
        case BaseModel():
            return {key: _plain(getattr(value, key)) for key in type(value).model_fields}
        case Mapping():
            return {str(key): _plain(each) for key, each in value.items()}
        case tuple() | list() | frozenset():
            return [_plain(each) for each in value]
        case None | bool() | int() | float():
            return value
        case _:
            return str(value)


def _expectation(problem: dict[str, Any], model: type[BaseModel]) -> str:
    location: Sequence[int | str] = problem["loc"]
    if problem["type"] == "extra_forbidden":
        known = _known_keys(model, location[:-1])
        return "unknown key" + (did_you_mean(str(location[-1]), known) or f"; known here: {', '.join(known)}")
    if problem["type"] == "missing":
        owner = _model_at(model, location[:-1])
        field = owner.model_fields.get(str(location[-1])) if owner else None
        return f"expected a value{f' ({field.description})' if field and field.description else ''}, got none"
    return expectation(problem, shows_value=bool(location) and location[-1] not in SECRET_KEYS)


def _known_keys(model: type[BaseModel], location: Sequence[int | str]) -> list[str]:
    found = _model_at(model, location)
    return sorted(found.model_fields) if found else []


def _model_at(model: type[BaseModel], location: Sequence[int | str]) -> type[BaseModel] | None:
    current: type[BaseModel] | None = model
    for part in location:
        field = current.model_fields.get(str(part)) if current else None
        if field is None:
            continue
        candidates = [field.annotation, *getattr(field.annotation, "__args__", ())]
        current = next((kind for kind in candidates if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
    return current
