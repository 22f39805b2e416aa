"""What the workflows may ask for: abstract activity classes with one request and one result type each.

Workflows import only this package (never an implementation, never a client); implementations subclass these classes. Every
activity's type begins with the step it belongs to. Wire types only ever grow by fields with defaults.
"""

from __future__ import annotations

from abc import ABC
from typing import Any

from temporalio import activity


class ActivityContract(ABC):  # noqa: B024 - each contract has its own abstract methods
    """A class of activities. A method that implements one is served under the name that the contract declares: nothing repeats
    it."""

    def __init_subclass__(cls, **given: Any) -> None:
        """Name what the subclass implements."""
        super().__init_subclass__(**given)
        for name, method in vars(cls).items():
            for contract in cls.__mro__[1:]:
                declared = getattr(vars(contract).get(name), "__temporal_activity_definition", None)
                if declared is not None and not hasattr(method, "__temporal_activity_definition"):
                    activity.defn(name=declared.name)(method)
