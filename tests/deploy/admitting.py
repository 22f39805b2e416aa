"""ValidatingAdmissionPolicies judged in this process, as an API server would: what is shipped can be tried without one.

Of CEL this knows what cel-python knows; a real API server's opinion is asked for in tests/security/test_patches_of_nodes.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import celpy

Document = dict[str, Any]


@cache
def _program(text: str) -> celpy.Runner:
    environment = celpy.Environment()
    return environment.program(environment.compile(text))


def refusals(policy: Document, user: str, new: Document, old: Document) -> Iterator[str]:
    """What the policy says against an update by that user, nothing where it is not about him."""
    names: dict[str, Any] = {
        "object": celpy.json_to_cel(new),
        "oldObject": celpy.json_to_cel(old),
        "request": celpy.json_to_cel({"userInfo": {"username": user}}),
    }
    spec = policy["spec"]
    if not all(_program(each["expression"]).evaluate(names) for each in spec["matchConditions"]):
        return
    variables = names["variables"] = celpy.celtypes.MapType()
    for each in spec["variables"]:
        variables[celpy.celtypes.StringType(each["name"])] = _program(each["expression"]).evaluate(names)
    for each in spec["validations"]:
        if not _program(each["expression"]).evaluate(names):
            yield each["message"]
