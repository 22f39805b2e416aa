"""An answer as programs read it."""

from __future__ import annotations

import json
from typing import Any

from starter.output.encoding import to_json


def encoded(answer: object) -> Any:
    return json.loads(to_json(answer))
