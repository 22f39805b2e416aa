"""Refusals in the shape clients parse: a Kubernetes `Status` with its code, reason and details.

Everything below the HTTP layer raises `ApiError`; `wire/door.py` is the only place that turns one into an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One reason for a refusal, with the field it is about."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"

    def document(self) -> dict[str, str]:
        return {"reason": self.reason, "message": self.message, "field": self.field}


class ApiError(Exception):
    """A refused request: carries the whole Status document."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.headers = headers or {}

    def status(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        if self.details is not None:
            document["details"] = self.details
        document["code"] = self.code
        return document

    def body(self) -> bytes:
        return orjson.dumps(self.status())


def qualified(group: str, plural: str) -> str:
    """`nodes` or `leases.coordination.k8s.io`: how messages name a resource."""
    return f"{plural}.{group}" if group else plural


def _details(group: str, kind: str, name: str = "") -> dict[str, Any]:
    details: dict[str, Any] = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    details["kind"] = kind
    return details


def not_found(group: str, plural: str, name: str) -> ApiError:
    message = f'{qualified(group, plural)} "{name}" not found'
    return ApiError(404, "NotFound", message, details=_details(group, plural, name))


def no_such_page() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource", details={})


def already_exists(group: str, plural: str, name: str) -> ApiError:
    message = f'{qualified(group, plural)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, details=_details(group, plural, name))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(group: str, plural: str, name: str, why: str = MODIFIED) -> ApiError:
    message = f'Operation cannot be fulfilled on {qualified(group, plural)} "{name}": {why}'
    return ApiError(409, "Conflict", message, details=_details(group, plural, name))


def invalid(group: str, kind: str, name: str, causes: Sequence[Cause]) -> ApiError:
    lines = [f"{cause.field}: {cause.message}" if cause.field else cause.message for cause in causes]
    told = lines[0] if len(lines) == 1 else "[" + ", ".join(lines) + "]"
    subject = f"{kind}.{group}" if group else kind
    details = _details(group, kind, name)
    details["causes"] = [cause.document() for cause in causes]
    return ApiError(422, "Invalid", f'{subject} "{name}" is invalid: {told}', details=details)


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def patch_failed(message: str) -> ApiError:
    details = {"causes": [{"reason": "UnexpectedServerResponse", "message": message}]}
    told = "the server rejected our request due to an error in our request"
    return ApiError(422, "Invalid", told, details=details)


def method_not_allowed() -> ApiError:
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message, details={})


def unsupported_media_type(accepted: Sequence[str]) -> ApiError:
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return ApiError(415, "UnsupportedMediaType", message)


def expired(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")


def forbidden(group: str, plural: str, name: str, why: str, causes: Sequence[Cause] = ()) -> ApiError:
    subject = f'{qualified(group, plural)} "{name}"' if name else qualified(group, plural)
    details = _details(group, plural, name)
    if causes:
        details["causes"] = [cause.document() for cause in causes]
    return ApiError(403, "Forbidden", f"{subject} is forbidden: {why}", details=details)


def denied(group: str, plural: str, name: str, why: str) -> ApiError:
    """By an admission policy, which answers as a validation does."""
    return ApiError(
        422, "Invalid", f'{qualified(group, plural)} "{name}" is forbidden: {why}', details=_details(group, plural, name)
    )


def forbidden_path(path: str, user: str) -> ApiError:
    return ApiError(403, "Forbidden", f'forbidden: User "{user}" cannot get path "{path}"', details={})


def reading_definitions() -> ApiError:
    """Of a server that has just started and does not yet know which kinds the definitions serve."""
    told = "the request has been made before all known HTTP paths have been installed, please try again"
    return ApiError(503, "ServiceUnavailable", told, details={"retryAfterSeconds": 5}, headers={"Retry-After": "5"})


def reading_storage() -> ApiError:
    """Of a server that has just started and has not yet read the objects of a kind."""
    told = "storage is (re)initializing"
    return ApiError(429, "TooManyRequests", told, details={"retryAfterSeconds": 1}, headers={"Retry-After": "1"})


def too_large_resource_version(asked: int, current: int) -> ApiError:
    message = f"Too large resource version: {asked}, current: {current}"
    details = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}
    details_with_retry: dict[str, Any] = {**details, "retryAfterSeconds": 1}
    return ApiError(504, "Timeout", f"Timeout: {message}", details=details_with_retry, headers={"Retry-After": "1"})


def disruption_budget(why: str, budget: str, retry_after: int = 0) -> ApiError:
    causes = [{"reason": "DisruptionBudget", "message": f"The disruption budget {budget} {why}"}]
    details: dict[str, Any] = {"causes": causes}
    headers = {}
    if retry_after:
        details["retryAfterSeconds"] = retry_after
        headers["Retry-After"] = str(retry_after)
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    return ApiError(429, "TooManyRequests", message, details=details, headers=headers)


def internal(message: str) -> ApiError:
    return ApiError(500, "InternalError", f"Internal error occurred: {message}", details={})
