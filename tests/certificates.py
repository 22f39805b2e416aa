"""One certificate authority for all API servers of a process: making keys takes longer than most of the tests that need a server.

Each server shows the same certificate then, and has one TLS context. Those that are processes of their own make their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from ssl import SSLContext

import pytest

from simulator.api.access import certificates
from simulator.api.access.certificates import Certificates


@pytest.fixture(autouse=True, scope="session")
def one_authority() -> Iterator[None]:
    context = Certificates.context.fget
    assert context is not None

    @cache
    def once(issued: Certificates) -> SSLContext:
        made: SSLContext = context(issued)
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("simulator.api.server.issue", cache(certificates.issue))
        patch.setattr(Certificates, "context", property(once))
        yield
