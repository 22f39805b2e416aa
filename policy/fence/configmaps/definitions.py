"""What stands behind a method's name in ConfigMaps: its own lines, and those of the template that it is an instance of.

The method's own lines are `fence-method-<name>` inside the winning ConfigMap (the proposal), or a ConfigMap
`fence-method-<name>-<node>` (the published demo); the template is a ConfigMap, too. A word of our own needs neither. What the
lines mean for a device is `devices.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from policy.fence.agents import canonical, driver_of
from policy.fence.builtin_methods import OWN_METHODS
from policy.fence.configmaps.lines import Line, read_lines, under_one_name
from policy.fence.configmaps.object_lookup import ConfigMap, ObjectLookup
from policy.fence.validation import Findings
from policy.objects.nodes import NodeView
from policy.values.errors import PolicyError
from policy.values.object_refs import is_object_name

METHOD_PREFIX = "fence-method-"
METHOD_KEY = "method.properties"
TEMPLATE_KEYS = ("template.properties", "method.properties")
TEMPLATE_PREFIXES = ("fence-method-template-", "fence-template-")
SECRET_PREFIX = "secret-fence-method-"  # noqa: S105 - how such objects are called

_METHOD_NAME = re.compile(r"[A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?")

CONTROL = frozenset(
    {"template", "agent_name", "action", "delay", "timeout", "tries", "level", "site", "node_name", "name", "script_path"}
    | {"must_sucess", "must_success", "storage_classes", "csi_drivers", "volume_handles"}
)
"""Keys that are ours to read; all others are parameters of the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One method as written. agent: our own word, or what speaks to a device. parameters: by the driver's one name for each.

    control: the lines that say how and when instead of whom. place: object and field to name where no line is to blame.
    """

    name: str
    agent: str
    template: str = ""
    parameters: Mapping[str, Line] = field(default_factory=dict)
    control: Mapping[str, Line] = field(default_factory=dict)
    place: tuple[str, str]

    def refuse(self, problem: str) -> PolicyError:
        """The error about the method as a whole, to be raised by the caller."""
        return PolicyError(*self.place, problem)


class Definitions:
    """Looks methods up for one node. `winner`: the ConfigMap that holds for it, None for the built-in default."""

    def __init__(
        self, node: NodeView, shelf: ObjectLookup, findings: Findings, *, winner: ConfigMap | None, specific: bool
    ) -> None:
        self._node = node
        self._shelf = shelf
        self._findings = findings
        self._winner = winner
        self._specific = specific

    def find(self, name: str, *, place: tuple[str, str]) -> Definition:
        """The definition of a method that stands in a step at `place`. Raises PolicyError."""
        if _METHOD_NAME.fullmatch(name) is None:
            raise PolicyError(*place, "expected names of methods, of letters, digits, dashes and dots, with spaces between them")
        found = self._own_lines(name)
        if found is None:
            if name in OWN_METHODS:
                return Definition(name=name, agent=name, place=place)
            raise PolicyError(*place, f"{name} is not defined: looked for {self._looked_for(name)}")
        lines, place = found
        template_name, template = self._template(lines)
        agent_line = lines.get("agent_name") or template.get("agent_name")
        if agent_line is None and name not in OWN_METHODS:
            expected = f"in the template {template_name}" if template_name else "or a template="
            raise PolicyError(*place, f"expected agent_name= here {expected}: nothing says what {name} is done with")
        agent = agent_line.value if agent_line is not None else name
        driver = driver_of(agent)
        common, own = (under_one_name(each.values(), lambda written: _control_or(driver, written)) for each in (template, lines))
        whole = common | own  # the method's value beats its template's (S11)
        self._judge_control(whole, agent)
        return Definition(
            name=name,
            agent=agent,
            template=template_name,
            parameters={key: line for key, line in whole.items() if key not in CONTROL},
            control={key: line for key, line in whole.items() if key in CONTROL},
            place=place,
        )

    def _own_lines(self, name: str) -> tuple[dict[str, Line], tuple[str, str]] | None:
        key = f"{METHOD_PREFIX}{name}"
        inline = self._winner if self._winner is not None and key in self._winner.data else None
        apart = self._shelf.config_map(f"{key}-{self._node.name}") if is_object_name(f"{key}-{self._node.name}") else None
        if inline is not None and apart is not None:
            raise PolicyError(inline.subject, f"data[{key}]", f"is defined here and in {apart.subject}: expected one of them")
        if inline is not None:
            return read_lines(inline, key, specific=self._specific), (inline.subject, f"data[{key}]")
        if apart is not None:
            return read_lines(apart, METHOD_KEY, specific=True), (apart.subject, f"data[{METHOD_KEY}]")
        return None

    def _looked_for(self, name: str) -> str:
        apart = f"ConfigMap/{self._shelf.namespace}/{METHOD_PREFIX}{name}-{self._node.name}"
        inside = f"data[{METHOD_PREFIX}{name}] of {self._winner.name}, " if self._winner is not None else ""
        return f"{inside}{apart}, and our own methods"

    def _template(self, lines: Mapping[str, Line]) -> tuple[str, dict[str, Line]]:
        line = lines.get("template")
        if line is None:
            return "", {}
        names = _template_names(line)
        found = [each for each in map(self._shelf.config_map, names) if each is not None]
        if not found:
            raise line.refuse(f"there is no such template: looked for {self._listed(names)}{self._hint(line.value)}")
        if len(found) > 1:
            raise line.refuse(f"expected the whole name of one of {self._listed([each.name for each in found])}")
        template = found[0]
        keys = [key for key in TEMPLATE_KEYS if key in template.data]
        if len(keys) > 1:
            raise PolicyError(template.subject, f"data[{keys[0]}]", f"is written as {keys[1]}, too: expected one of them")
        read = read_lines(template, keys[0] if keys else TEMPLATE_KEYS[0])
        if "template" in read:
            raise read["template"].refuse("a template of a template is not read: write its lines here")
        return template.name, read

    def _listed(self, names: list[str]) -> str:
        return ", ".join(f"ConfigMap/{self._shelf.namespace}/{name}" for name in names)

    def _hint(self, written: str) -> str:
        """The demo's own objects are called by both prefixes; a look at the other one saves the search."""
        for ours, other in (TEMPLATE_PREFIXES, TEMPLATE_PREFIXES[::-1]):
            if written.startswith(ours):
                name = other + written.removeprefix(ours)
                return f"; there is {name}" if self._shelf.config_map(name) is not None else ""
        return ""

    def _judge_control(self, lines: Mapping[str, Line], agent: str) -> None:
        if (line := lines.get("script_path")) is not None:
            what = f"{agent} is a method of ours, leave it out" if agent in OWN_METHODS else "name an agent or a method of ours"
            raise line.refuse(f"programs of one's own are not run: {what}")
        if (line := lines.get("node_name")) is not None:
            require_node(line, self._node)
        for key in ("must_sucess", "must_success"):
            if (line := lines.get(key)) is not None:
                self._findings.warn(line.subject, line.field, "is not used: every method must succeed")


def require_node(line: Line, node: NodeView) -> None:
    """Refuse a `node_name=` that is about another node: a copy in which not everything was changed shoots the wrong one (S9)."""
    if (written := line.filled_in(node)) != node.name:
        raise line.refuse(f"contradicts Node/{node.name}, for which it was found: got {written!r}")


def _template_names(line: Line) -> list[str]:
    """The name as written; what carries no prefix may be short for either."""
    if not is_object_name(line.value):
        raise line.refuse("expected the name of a ConfigMap")
    if line.value.startswith(TEMPLATE_PREFIXES):
        return [line.value]
    return [line.value, *(prefix + line.value for prefix in TEMPLATE_PREFIXES)]


def _control_or(driver: str, written: str) -> str:
    plain = written.replace("-", "_")
    if plain in CONTROL:
        return plain
    if driver in OWN_METHODS:
        return next((name for name in OWN_METHODS[driver].parameters if name.replace("-", "_") == plain), written)
    return canonical(driver, written)
