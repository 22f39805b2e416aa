"""`fence.json`: cases of other fencing systems, by the names that the comparison of those systems gave them.

A case has the part that is ours; the docstring of the test that holds it says what is not, and which other test holds the rest.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

VECTORS: dict[str, Any] = json.loads(Path(__file__).with_name("fence.json").read_text(encoding="utf-8"))
