"""Everything in docs/ that is made from code: `make reference` writes it anew, `test_reference.py` compares.

A page is made whole, or a part of it between two lines of comment (`PARTS`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import typer
from pydantic import TypeAdapter
from temporalio import workflow
from typer.cli import get_docs_for_click

from activities.contracts.metrics import TABLE
from policy.episode.decisions import MEANINGS, VERSION, Decision, DecisionKind
from policy.episode.messages import EpisodeResult, FencingInput, PreservationInput, RemediationInput
from policy.episode.phases import ARROWS, Arrows
from policy.history.spells import ObservationRecord
from policy.values.times import format_duration
from starter.cli import app
from starter.plans import spell_file
from starter.web import api
from starter.web.app import application
from starter.web.auth import OwnHouse
from starter.web.views import Views
from tests.docs import answers
from tests.documents import documents
from tests.security.matrix import CELLS, Act, Principal
from workers.configuration.setting_sources import PREFIX, STEP, TEMPORAL_VARIABLES
from workers.configuration.settings import Settings
from workflows.definitions.device_check import DeviceCheck, DeviceCheckPage
from workflows.definitions.episodes import Fencing, Preservation, RecordedObservation, Remediation
from workflows.definitions.scanner import HealthScanner
from workflows.kit.messages import DeviceCheckInput, PageToCheck
from workflows.scanner.state import ScannerInput

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
MADE = "<!-- Made from code by `make reference`. Edits here are lost. -->"
Schema = dict[str, Any]


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    names = list(head)
    lines = [names, ["---"] * len(names), *([_cell(text) for text in row] for row in rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _cell(text: str) -> str:
    """A bar would end it, and outside of backquotes an angle bracket would begin a tag."""
    parts = text.replace("|", "\\|").replace("\n", " ").split("`")
    return "`".join(part if index % 2 else part.replace("<", "&lt;") for index, part in enumerate(parts))


def code(text: object) -> str:
    return f"`{text}`" if str(text) else "-"


def sentence(text: str) -> str:
    """A docstring in one paragraph."""
    return " ".join(text.split())


# Types as JSON Schema has them ----------------------------------------------------------------------------------------


def resolved(schema: Schema, whole: Schema) -> Schema:
    """What a reference names, with what stands beside it."""
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    return {**whole["$defs"][name], **{key: value for key, value in schema.items() if key != "$ref"}} if name else schema


def kind(schema: Schema, whole: Schema) -> str:
    """What may be written, in a few words."""
    if "anyOf" in schema:
        return " or ".join(kind(each, whole) for each in schema["anyOf"] if each.get("type") != "null")
    found = resolved(schema, whole)
    if "enum" in found or "const" in found:
        return ", ".join(code(each) for each in found.get("enum", [found.get("const")]))
    if found.get("type") == "array":
        return f"list of {kind(found.get('items', {}), whole)}"
    if found.get("type") == "object":
        values = found.get("additionalProperties")
        return f"mapping to {kind(values, whole)}" if isinstance(values, dict) else found.get("title", "object")
    words = {"duration": "duration", "path": "path", "password": "secret", "date-time": "moment"}
    name = words.get(found.get("format", ""), found.get("type", "any"))
    least, most = found.get("minimum"), found.get("maximum")
    span = {(True, True): f", {least} to {most}", (True, False): f", {least} or more", (False, True): f", {most} at most"}
    return f"{name}{span.get((least is not None, most is not None), '')}"


def default(schema: Schema, *, required: bool) -> str:
    if required:
        return "required"
    value = schema.get("default")
    if value in (None, "", [], {}):
        return "-"
    formats = {each.get("format") for each in [schema, *schema.get("anyOf", [])]}
    if "duration" in formats and isinstance(value, str):
        return code(format_duration(TypeAdapter(timedelta).validate_python(value)) or "0s")
    return code(json.dumps(value, ensure_ascii=False).strip('"'))


# Settings -------------------------------------------------------------------------------------------------------------


def settings() -> str:
    whole = Settings.model_json_schema()
    sections = "\n".join(_section(whole, "", whole))
    shared = table(["variable", "setting"], [[code(name), code(f"temporal.{key}")] for name, key in TEMPORAL_VARIABLES.items()])
    return f"""# Settings
{MADE}

They come from `nodewarden.yaml` (in `~/.config/nodewarden/`, or as `NODEWARDEN_CONFIG` or `--config` name it; never merely
because it lies in the working folder) and from the environment, which goes before the file. `nodewarden worker` and every other
command read the same ones. A setting that can't be used ends the command with code 2 and names the key and what was expected.

A duration is written as `30s`, `5m` or `1h30m`. In the environment a list of words is written `a,b`; a mapping, or a list of
anything else, is JSON.

Settings name programs that are run and files that are read. So a file that belongs to another user than root and the one who runs
nodewarden, or that others may write, is refused.

Temporal's own variables are understood as well, and so is `NODE_NAME` for `node_name`. Ours go before them.

{shared}
{sections}"""


def _section(schema: Schema, path: str, whole: Schema) -> Iterator[str]:
    inner, rows = [], []
    for name, each in schema["properties"].items():
        found, key = resolved(each, whole), f"{path}{name}"
        if found.get("properties"):
            inner.append((key, found))
            continue
        variable = "-" if "[" in key or "NAME" in key else code(PREFIX + key.upper().replace(".", STEP))
        needed = name in schema.get("required", ())
        rows.append([code(key), variable, kind(each, whole), default(each, required=needed), found.get("description", "")])
        for nested in (found.get("items"), found.get("additionalProperties"), *found.get("anyOf", ())):
            below = resolved(nested, whole) if isinstance(nested, dict) else {}
            if below.get("properties"):
                inner.append((key + {"array": "[]", "object": ".NAME"}.get(found.get("type", ""), ""), below))
    if rows:
        title = path.rstrip(".") or "At the top"
        yield f"## {title}\n\n{sentence(schema['description']) if path else ''}\n"
        yield table(["setting", "variable", "type", "default", "meaning"], rows)
    for key, found in inner:
        yield from _section(found, f"{key}.", whole)


# Command line ---------------------------------------------------------------------------------------------------------


def command_line() -> str:
    """As typer describes its own commands; a usage line is no command that could be typed."""
    command = typer.main.get_command(app)
    told = get_docs_for_click(obj=command, ctx=typer.Context(command, info_name="nodewarden"), name="nodewarden")
    told = re.sub(r"```console\n\$ (.*?)```", r"```text\n\1```", told, flags=re.DOTALL).replace("&#x27;", "'")
    lines = [line.rstrip() for line in told.replace("# `nodewarden`", f"# Command line\n{MADE}", 1).splitlines()]
    return "\n".join(lines).rstrip() + "\n"


# Objects --------------------------------------------------------------------------------------------------------------


def objects() -> str:
    files = sorted((ROOT / "deploy" / "crds").glob("*.yaml"))
    texts = [_definition(each) for each in documents(*(f"deploy/crds/{file.name}" for file in files))]
    return f"""# Kubernetes objects
{MADE}

The kinds that nodewarden brings, from `deploy/crds/`. `[]` stands for each entry of a list, `.*` for each value of a mapping. The
health checks themselves are other projects' kinds; what they mean here is [what a health check means](../semantics.md).

{"".join(texts)}"""


def _definition(definition: Schema) -> str:
    spec = definition["spec"]
    (version,) = spec["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    names = ", ".join(code(each) for each in (spec["names"]["plural"], *spec["names"].get("shortNames", ())))
    told = f"`{spec['group']}/{version['name']}`, {spec['scope'].lower()}; for kubectl {names}.\n"
    fields = (list(_fields(schema["properties"].get(part, {}), part)) for part in ("spec", "status"))
    tables = [table(["field", "type", "default", "meaning"], rows) for rows in fields if rows]
    return "\n".join([f"## {spec['names']['kind']}\n\n{schema.get('description', '')}\n\n{told}", *tables]) + "\n"


def _fields(schema: Schema, path: str) -> Iterator[list[str]]:
    for name, each in schema.get("properties", {}).items():
        key = f"{path}.{name}"
        needed = name in schema.get("required", ())
        yield [code(key), kind(each, {}), default(each, required=needed), sentence(each.get("description", ""))]
        yield from _fields(each, key)
        for nested, mark in ((each.get("items"), "[]"), (each.get("additionalProperties"), ".*")):
            if isinstance(nested, dict):
                yield from _fields(nested, key + mark)


# Workflows ------------------------------------------------------------------------------------------------------------

INPUTS: tuple[tuple[type, type, str], ...] = (
    (Fencing, FencingInput, "episode/CLUSTER/NODE"),
    (Remediation, RemediationInput, "episode/CLUSTER/NODE"),
    (Preservation, PreservationInput, "episode/CLUSTER/NODE"),
    (HealthScanner, ScannerInput, "scanner/CLUSTER"),
    (DeviceCheck, DeviceCheckInput, "device-check/CLUSTER"),
    (DeviceCheckPage, PageToCheck, "device-check/CLUSTER/PAGE"),
    (RecordedObservation, ObservationRecord, "observation/CLUSTER/NODE/DUE"),
)
"""What is written into each from outside, and its workflow id. A history that goes on has a state beside it, which is ours."""


def spoken() -> list[Any]:
    """All that each can be asked and told."""
    known = [workflow._Definition.must_from_class(shell) for shell, *_ in INPUTS]
    return [handler for each in known for kind in (each.updates, each.signals, each.queries) for handler in kind.values()]


def schemas() -> Schema:
    """Inputs, results and what can be said, as one JSON Schema; a payload is validated by the same adapters."""
    types = {given.__name__: given for _, given, _ in INPUTS} | {"EpisodeResult": EpisodeResult}
    for handler in spoken():
        types |= {each.__name__: each for each in handler.arg_types or () if hasattr(each, "__dataclass_fields__")}
    made = [(name, "validation", TypeAdapter[Any](each)) for name, each in sorted(types.items())]
    _, whole = TypeAdapter.json_schemas(made, ref_template="#/$defs/{model}")  # type: ignore[arg-type]
    for name in types:
        whole["$defs"][name]["properties"].pop("state", None)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": _reachable(whole["$defs"], types)}


def _reachable(definitions: Schema, roots: Iterable[str]) -> Schema:
    kept, left = set[str](), set(roots)
    while left:
        name = left.pop()
        kept.add(name)
        left |= set(re.findall(r'"#/\$defs/([^"]+)"', json.dumps(definitions[name]))) - kept
    return {name: definitions[name] for name in sorted(kept)}


def as_file(schema: Callable[[], Schema]) -> Callable[[], str]:
    return lambda: json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def workflows() -> str:
    whole = schemas()
    parts = [_workflow(shell, given, where, whole) for shell, given, where in INPUTS]
    rest = sorted(set(whole["$defs"]) - {given.__name__ for _, given, _ in INPUTS})
    types = [_type(name, whole) for name in rest]
    return f"""# Workflows
{MADE}

What any Temporal SDK and the `temporal` command can start and say; how is [Temporal](../temporal.md). All of it is plain JSON,
and as a JSON Schema it is [workflows.schema.json](workflows.schema.json). Fields that are not named have their defaults. New
versions add fields and never change one.

{"".join(parts)}## Types

{"".join(types)}"""


def _workflow(shell: type, given: type, where: str, whole: Schema) -> str:
    known = workflow._Definition.must_from_class(shell)
    said = [["update", handler] for name, handler in sorted(known.updates.items()) if name]
    said += [["signal", handler] for name, handler in sorted(known.signals.items()) if name]
    said += [["query", handler] for name, handler in sorted(known.queries.items()) if name]
    rows = [
        [how, code(handler.name), " ".join(map(_named, handler.arg_types or ())) or "-", sentence(handler.fn.__doc__ or "")]
        for how, handler in said
    ]
    heard = f"\n{table(['how', 'name', 'with', 'what'], rows)}" if rows else ""
    served = f"Workflow id `{where}`, task queue `nodewarden`."
    return f"## {shell.__name__}\n\n{served}\n\n{_fields_of(given.__name__, whole)}{heard}\n"


def _named(each: Any) -> str:
    return f"[{each.__name__}](#{each.__name__.lower()})" if hasattr(each, "__dataclass_fields__") else code(each.__name__)


def _type(name: str, whole: Schema) -> str:
    return f"### {name}\n\n{_fields_of(name, whole)}\n"


def _fields_of(name: str, whole: Schema) -> str:
    schema = whole["$defs"][name]
    told = sentence(schema.get("description", ""))
    if "properties" not in schema:
        return f"{told}\n\n{kind(schema, whole)}\n"
    needed = schema.get("required", ())
    rows = [
        [code(field), _linked(kind(each, whole), whole), default(each, required=field in needed)]
        for field, each in schema["properties"].items()
    ]
    return f"{told}\n\n" + table(["field", "type", "default"], rows)


def _linked(words: str, whole: Schema) -> str:
    return re.sub(r"\b[A-Z]\w+", lambda name: f"[{name[0]}](#{name[0].lower()})" if name[0] in whole["$defs"] else name[0], words)


# Metrics --------------------------------------------------------------------------------------------------------------


def metrics() -> str:
    rows = [
        [
            code(each.name),
            type(each).__name__.lower(),
            ", ".join(map(code, each.labels)) or "-",
            each.unit or "-",
            each.meaning,
        ]
        for each in TABLE
    ]
    return table(["metric", "type", "labels", "unit", "meaning"], rows)


# The decision stream --------------------------------------------------------------------------------------------------


def decisions() -> Schema:
    """Of a line of the decision stream. All fields are there in each."""
    schema = TypeAdapter(Decision).json_schema(mode="serialization")
    about = f"Version {VERSION}. It grows by fields, so readers leave out what they do not know."
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "$comment": about}


def stream() -> str:
    kinds = table(["kind", "what"], [[code(each.value), MEANINGS[each]] for each in DecisionKind])
    whole = decisions()
    rows = [[code(name), kind(each, whole)] for name, each in whole["properties"].items()]
    return f"{kinds}\n{table(['field', 'type'], rows)}"


# The phases of an episode ---------------------------------------------------------------------------------------------


def phases() -> str:
    """The automaton of each kind of episode, an arrow a line with its reason."""
    return "\n".join(f"**{kind.value}**\n\n```text\n{_drawn(arrows)}```\n" for kind, arrows in ARROWS.items())


def _drawn(arrows: Arrows) -> str:
    lines = []
    for before, following in arrows.items():
        for index, (after, why) in enumerate(following.items()):
            first, last = index == 0, index == len(following) - 1
            bend = f" {'├└'[last]}─" if not first else f"─{'┬─'[last]}─"
            lines.append(f"{before.value if first else '':<17} {bend}▶ {after.value:<17}  {why}\n")
    return "".join(lines)


# Who can do what ------------------------------------------------------------------------------------------------------


def who_can_do_what() -> str:
    """The matrix, and below it what to do about each yes; one that is answered alike is answered once."""
    answers = list(dict.fromkeys(cell.yes for cell in CELLS.values() if cell.yes))

    def said(who: Principal, act: Act) -> str:
        cell = CELLS[who, act]
        return f"**yes** ({answers.index(cell.yes) + 1})" if cell.yes else "no"

    rows = [[who, *(said(who, act) for act in Act)] for who in Principal]
    notes = "".join(f"{number}. {answer}\n" for number, answer in enumerate(answers, 1))
    return f"{table(['taken over', *Act], rows)}\n{notes}"


# Files ----------------------------------------------------------------------------------------------------------------


def http_paths() -> str:
    """What `nodewarden ui` answers programs."""
    nobody = cast("Any", None)
    told = api.document(application(Views(nobody, ()), OwnHouse(nobody, nobody, name="")))["paths"]
    rows = [
        [code(f"{method.upper()} {path}"), _answered(operation), sentence(operation.get("description") or operation["summary"])]
        for path, operations in told.items()
        for method, operation in operations.items()
    ]
    return table(["request", "answer", "what"], rows)


def _answered(operation: Schema) -> str:
    (kind_of,) = operation["responses"]["200"].get("content", {"": {}}).values()
    return code(str(kind_of.get("schema", {}).get("$ref", "")).rpartition("/")[2])


FILES: dict[str, Callable[[], str]] = {
    "reference/settings.md": settings,
    "reference/cli.md": command_line,
    "reference/objects.md": objects,
    "reference/workflows.md": workflows,
    "reference/workflows.schema.json": as_file(schemas),
    "reference/decisions.schema.json": as_file(decisions),
    "schemas/answers.json": as_file(answers.schemas),
    "schemas/spells.json": as_file(spell_file.schema),
}
PARTS: dict[str, Callable[[], str]] = {
    "architecture.md": phases,
    "metrics.md": metrics,
    "stream.md": stream,
    "json.md": http_paths,
    "security.md": who_can_do_what,
}
"""Between the line `MADE` and the next heading."""


def expected(page: str) -> str:
    """What the file has to say. Raises ValueError for a page without the line that begins its part."""
    if page in FILES:
        return FILES[page]()
    before, made, after = (DOCS / page).read_text(encoding="utf-8").partition(MADE)
    if not made:
        raise ValueError(f"{page}: expected the line {MADE}")
    rest = after[after.index("\n## ") :]
    return f"{before}{MADE}\n\n{PARTS[page]()}{rest}"


def write() -> None:
    """All of them, anew."""
    for page in (*FILES, *PARTS):
        (DOCS / page).parent.mkdir(exist_ok=True)
        (DOCS / page).write_text(expected(page), encoding="utf-8")


if __name__ == "__main__":
    write()
