"""The one loop over conflicts: whoever reads an object, decides on it and writes it back does so here.

Others write the same objects at any moment. A write therefore names the version that was read (`resourceVersion`, or a JSON
patch's `test`), the API server refuses one that comes too late, and what was decided is decided anew on what is there now.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from temporalio.exceptions import ApplicationError

from activities.cluster.api.refusals import ObjectConflict, ObjectNotFound
from activities.errors import ErrorType, error_type, failure

ATTEMPTS = 5
"""Readings before giving up: kubelets and controllers write an object a few times a minute, not a second."""

Made = TypeVar("Made")


async def edit(what: str, once: Callable[[], Awaitable[Made]], *, may_vanish: bool = False, look_again: bool = False) -> Made:
    """What `once` makes of the object: it reads, decides, and writes in the version that was read.

    It is called anew after an ObjectConflict, so it may raise to refuse at any time before it writes. may_vanish: also where the
    object was gone by the time of the write. look_again: also after a lost answer (Ambiguous), for a `once` whose next reading
    tells whether the write has arrived.

    Raises Transient after ATTEMPTS conflicts. Once an answer was lost it is Ambiguous, whatever comes later: whoever looks
    again may find the write yet, and that nothing was begun would be a lie (S33).
    """
    again = (ObjectConflict, ObjectNotFound) if may_vanish else (ObjectConflict,)
    lost: ApplicationError | None = None
    for _ in range(ATTEMPTS):
        try:
            return await once()
        except again:
            continue
        except ApplicationError as error:
            if look_again and error_type(error) is ErrorType.AMBIGUOUS:
                lost = error
            elif lost is None:
                raise
            else:
                raise lost from error
    raise lost or failure(ErrorType.TRANSIENT, f"{what} was changed by others {ATTEMPTS} times between our read and our write")
