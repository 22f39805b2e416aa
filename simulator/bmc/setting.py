"""What a simulated BMC is started with, whichever program then plays it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class BmcSetting:
    """One BMC: the machine behind it, who may log in, and what it says about itself. port 0: any free one."""

    chassis_url: str
    machine: str
    username: str
    password: str = field(repr=False)
    system_uuid: UUID
    inventory: bytes = field(repr=False)
    port: int
    folder: Path
