"""Every sentence that the product can show to a person, in `tests/sentences.txt`: to be read as a whole, and in each review.

Gathered from the text of the code, so some that only programs see are among them: two words in one literal make a sentence here.
What is only logged, and docstrings other than those of commands, are left out. `{…}` stands for what is filled in.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from itertools import chain
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "tests" / "sentences.txt"
FOLDERS = ("policy", "workflows", "activities", "workers", "starter", "demo")
FIELD = "{…}"

_TWO_WORDS = re.compile(r"[A-Za-z]{2,}\S*\s+(?:\S+\s+)*?\S*[A-Za-z]{2,}")
_LOGGED = {"debug", "info", "warning", "error", "exception", "critical"}
_ATTRIBUTES = {"title", "placeholder", "aria-label", "data-label", "alt", "content", "data-confirm"}
_QUOTED = re.compile(r'"((?:[^"\\\n]|\\.)*)"')


def sentences() -> str:
    """What the file has to say: one sentence a line, each once."""
    return "".join(f"{text}\n" for text in sorted({text for text, _ in gathered() if _TWO_WORDS.search(text.replace(FIELD, ""))}))


@cache
def gathered() -> tuple[tuple[str, Path], ...]:
    """Each text, also of one word, with the file that it stands in."""
    return tuple(_gathered())


def _gathered() -> Iterator[tuple[str, Path]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            read = {".py": texts_of_python, ".html": texts_of_template, ".js": _quoted}.get(path.suffix)
            if read is not None:
                yield from ((text, path) for text in _tidied(read(path.read_text(encoding="utf-8"))))
    for path in (ROOT / "deploy" / "alerts.yaml", *sorted((ROOT / "deploy" / "crds").glob("*.yaml"))):
        documents = yaml.safe_load_all(path.read_text(encoding="utf-8"))
        yield from ((text, path) for text in _tidied(chain.from_iterable(map(_described, documents))))


def _tidied(texts: Iterator[str]) -> Iterator[str]:
    return (" ".join(text.split()) for text in texts)


def texts_of_python(source: str) -> Iterator[str]:
    waiting: list[ast.AST] = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else FIELD for part in node.values)
            waiting += [part for part in node.values if isinstance(part, ast.FormattedValue)]
        elif isinstance(node, ast.FormattedValue):
            waiting.append(node.value)  # not its format
        elif not _is_for_programs(node):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and _is_command(node):
                yield ast.get_docstring(node) or ""
            waiting += ast.iter_child_nodes(node)


def _is_for_programs(node: ast.AST) -> bool:
    """A docstring, an assertion, what is logged, or a pattern."""
    if isinstance(node, ast.Assert):
        return True
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    of = ast.unparse(node.func.value).rpartition(".")[2].strip("_")
    return of == "re" or (of in {"log", "logger"} and node.func.attr in _LOGGED)


def _is_command(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    named = [argument.annotation for argument in node.args.args if argument.annotation is not None]
    commands = any(ast.unparse(each) == "for_a_cluster" for each in node.decorator_list)
    return commands or any(ast.unparse(each) == "typer.Context" for each in named)


class _Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = [""]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if value and name in _ATTRIBUTES]
        # Words within a sentence do not end it.
        if tag not in {"a", "b", "code", "em", "strong", "small", "kbd"}:
            self.found.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag not in {"a", "b", "code", "em", "strong", "small", "kbd"}:
            self.found.append("")

    def handle_data(self, data: str) -> None:
        self.found[-1] += data


def texts_of_template(source: str) -> Iterator[str]:
    source = re.sub(r"\{#.*?#\}", "", source, flags=re.DOTALL)
    for code in re.findall(r"\{[{%].*?[%}]\}", source, flags=re.DOTALL):
        yield from _quoted(code)
    parser = _Texts()
    parser.feed(re.sub(r"\{%.*?%\}", "\n", re.sub(r"\{\{.*?\}\}", FIELD, source, flags=re.DOTALL), flags=re.DOTALL))
    parser.close()
    for text in parser.found:
        yield from text.split("\n")


def _quoted(source: str) -> Iterator[str]:
    """Of JavaScript and of what stands in a template's braces."""
    for line in source.splitlines():
        if not line.lstrip().startswith(("//", "*", "/*")):
            yield from (found[1] for found in _QUOTED.finditer(line))
            yield from (re.sub(r"\$\{[^}]*\}", FIELD, found) for found in re.findall(r"`([^`]*)`", line))


def _described(value: object) -> Iterator[str]:
    """Descriptions of a schema, and what an alert says."""
    if isinstance(value, dict):
        for name, each in value.items():
            if name in {"summary", "description", "message"} and isinstance(each, str):
                yield each
            yield from _described(each)
    elif isinstance(value, list):
        for each in value:
            yield from _described(each)


if __name__ == "__main__":
    FILE.write_text(sentences(), encoding="utf-8")
