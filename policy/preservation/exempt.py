"""The nodes that preservation exempts from remediation: one decision over one report says of each failed node if it is kept.

Drawn up by `policy/preservation/book.py`. `policy/scan/candidates.py` makes no candidate of a node that is named here (S21).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ExemptNodes:
    """By the names under which nodes are candidates. kept: why, also of those that only begin to be kept with this report.

    unsettled: failed so lately that their pool has not decided yet: they are neither kept nor remediated.
    """

    kept: Mapping[str, str] = field(default_factory=dict)
    unsettled: frozenset[str] = frozenset()


NOBODY_EXEMPT = ExemptNodes()
