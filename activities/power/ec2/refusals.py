"""What EC2's error codes let one conclude. The codes are of its API reference ("Error codes for the Amazon EC2 API")."""

from __future__ import annotations

from botocore.exceptions import ClientError

from activities.errors import ErrorType
from activities.power.cloud_call import CloudCall
from activities.power.errors import PowerError

UNAUTHORIZED = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "AuthFailure",
        "Blocked",
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidSecurity",
        "MissingAuthenticationToken",
        "OptInRequired",
        "PendingVerification",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "UnauthorizedOperation",
        "UnrecognizedClientException",
    }
)
RATE_LIMITED = frozenset(
    {
        "EC2ThrottledException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
# Server errors by their status, but said to be refusals: nothing was started.
NO_CAPACITY = frozenset(
    {"InsufficientCapacity", "InsufficientHostCapacity", "InsufficientInstanceCapacity", "InsufficientReservedInstanceCapacity"}
)
WRONG_STATE = frozenset({"IncorrectInstanceState", "IncorrectState"})
NOT_SUPPORTED = frozenset({"OperationNotPermitted", "UnsupportedOperation", "UnsupportedHibernationConfiguration", "Unsupported"})
UNUSABLE = ("Invalid", "Missing", "Malformed", "Unknown")

CLOCK_HINT = frozenset({"RequestExpired", "SignatureDoesNotMatch"})


class Ec2RefusedError(PowerError):
    """EC2 answered, and not with what was wanted. code: its own word, whose meaning may depend on what was asked."""

    def __init__(self, error_type: ErrorType, message: str, *, code: str) -> None:
        super().__init__(error_type, message)
        self.code = code


def refusal(error: ClientError, call: CloudCall) -> Ec2RefusedError:
    """The answer as an error of ours, without any of the secrets: a refusal may repeat what was sent."""
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    kind = _kind(code, status, command=call.command)
    text = f"EC2 said {call.told(code) or 'nothing'} ({status})"
    if kind is not ErrorType.UNAUTHORIZED or code == "UnauthorizedOperation":
        # What is said of wrong keys shows what they were used for, down to the signed text with its session token.
        message, _, _ = str(error.response.get("Error", {}).get("Message", "")).partition("Encoded authorization failure")
        text += f": {call.told(message)}"
    elif code in CLOCK_HINT:
        text += ": wrong keys, or a wrong clock on this worker"
    if kind is ErrorType.AMBIGUOUS:
        text += "; it may have been carried out"
    return Ec2RefusedError(kind, str(call.failure(kind, text)), code=code)


def _kind(code: str, status: int, *, command: bool) -> ErrorType:
    if code in UNAUTHORIZED:
        return ErrorType.UNAUTHORIZED
    if code in RATE_LIMITED:
        return ErrorType.RATE_LIMITED
    if code in NO_CAPACITY:
        return ErrorType.TRANSIENT
    if not 400 <= status < 500 or status == 408:
        # An internal error, or whoever stands in between: whether it got through is not known.
        return ErrorType.AMBIGUOUS if command else ErrorType.TRANSIENT
    if code in WRONG_STATE:
        return ErrorType.TRANSIENT
    if code in NOT_SUPPORTED:
        return ErrorType.NOT_SUPPORTED
    return ErrorType.INVALID_CONFIG if code.startswith(UNUSABLE) else ErrorType.TRANSIENT
