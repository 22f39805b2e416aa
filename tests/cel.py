"""CEL by cel-python: what is shipped as admission policy can be tried without a real API server.

Of CEL this knows what cel-python knows; a real API server's opinion is asked for in tests/security/test_patches_of_nodes.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import celpy

_NARROWING = ("group", "resource", "subresource", "namespace", "name")


def _narrowed(field: str) -> Callable[[Any, Any], Any]:
    def narrowed(asked: Any, value: Any) -> Any:
        return asked.asked(**{field: str(value)})

    return narrowed


def _check(asked: Any, verb: Any) -> Any:
    return asked.asked(verb=str(verb))


def _allowed(asked: Any) -> celpy.celtypes.BoolType:
    return celpy.celtypes.BoolType(asked.allowed())


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "check": _check,
    "allowed": _allowed,
    **{field: _narrowed(field) for field in _NARROWING},
}
"""The methods of `authorizer`, which the simulated API server answers."""


@cache
def _program(text: str) -> celpy.Runner:
    environment = celpy.Environment()
    return environment.program(environment.compile(text), functions=_FUNCTIONS)


class CelPython:
    """The simulated API server's evaluator."""

    @staticmethod
    def value(document: Any) -> Any:
        return celpy.json_to_cel(document)

    @staticmethod
    def evaluate(expression: str, names: Mapping[str, Any]) -> Any:
        try:
            return _program(expression).evaluate(dict(names))
        except celpy.CELEvalError as error:
            raise ValueError(str(error)) from error
