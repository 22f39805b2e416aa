"""How a power driver says that it failed: a stable type, and one line that names the device and what was expected.

Not an ApplicationError: a driver knows nothing of Temporal. `service.py` beside it turns type and text into what the
workflow sees. The text never holds a credential (S12). What the types let the caller conclude:

- InvalidConfig, TargetChanged, Expired: nothing was sent.
- Unreachable: the device did not answer, and no command was sent.
- Unauthorized, NotSupported, RateLimited, Transient: the device said no, and carried nothing out.
- Ambiguous: the command may have been carried out. Wait out the deadline, read the state, then decide (S34).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from activities.errors import ErrorType
from policy.fence.drivers.contract import ParameterError


class PowerError(Exception):
    """A power operation that did not end well."""

    def __init__(self, error_type: ErrorType, message: str) -> None:
        super().__init__(message)
        self.type = error_type


def invalid(message: str) -> PowerError:
    """The device's configuration cannot be used as written."""
    return PowerError(ErrorType.INVALID_CONFIG, message)


@contextmanager
def parameters_of(whose: str) -> Iterator[None]:
    """What is done within refuses a parameter that it can't use by its name, and says whose it is."""
    try:
        yield
    except ParameterError as error:
        raise invalid(f"{whose}: parameter {error.parameter!r}: {error.problem}") from None


def require_own_cloud(device: str, api: str, secret: str, *, own: bool, trusted: Collection[str]) -> None:
    """The worker's own cloud identity goes to that cloud and to what its operator trusts, and nowhere else: who writes a fence
    configuration may name any address (S40). own: whether the API is the cloud's. secret: what would serve instead."""
    if not own and api not in trusted:
        problem = f"{api} is not an API of that cloud, and not among the worker's setting worker.cloud_endpoints"
        expected = f"expected credentials ({secret}), since the worker's own identity does not go there"
        raise invalid(f"{device}: {problem}: {expected}")
