"""Our identity at Google, and the tokens that prove it: a service account by its key, or the worker's own identity."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import google.auth
from google.auth import exceptions as auth_errors
from google.auth.credentials import Credentials as GoogleCredentials
from google.auth.transport.requests import Request as TokenTransport
from google.oauth2 import service_account

from activities.errors import ErrorType
from activities.power.cloud_call import CloudCall, reason_of
from activities.power.errors import PowerError
from activities.power.gce.session import CallSession

SCOPE = "https://www.googleapis.com/auth/compute"


class _TokenRequest(TokenTransport):
    """How google-auth asks for a token: within the call's time, however often it tries."""

    def __init__(self, call: CloudCall, session: CallSession) -> None:
        super().__init__(session)
        self._call = call

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self._call.remaining()  # raises ours, which no loop of google-auth catches
        return super().__call__(*arguments, **options)


class Account:
    """Whom we act as: a service account by its key, or the worker's own identity (`info` None). Keeps its token."""

    def __init__(self, info: Mapping[str, str] | None) -> None:
        self._info = info
        self._credentials: GoogleCredentials | None = None

    def authorization(self, call: CloudCall) -> str:
        """A bearer token for `call`. Calls that need a new one at the same time all ask: none waits for another's hang."""
        call.secrets = self.secrets
        with CallSession(call, itself=False) as session:
            request = _TokenRequest(call, session)
            try:
                if self._credentials is None:
                    self._credentials = self._load(request)
                credentials = self._credentials
                if not credentials.valid:
                    credentials.refresh(request)
                call.secrets = self.secrets
                return f"Bearer {credentials.token}"
            except auth_errors.DefaultCredentialsError as error:
                missing = "no service-account-json is given and the worker has no identity of its own"
                raise call.failure(ErrorType.INVALID_CONFIG, f"{missing} ({call.told(str(error))})") from None
            except auth_errors.TransportError as error:
                raise call.broken(f"the token endpoint can't be reached ({reason_of(error)})") from None
            except auth_errors.GoogleAuthError as error:
                raise self._refused(call, error) from None
            except ValueError:
                problem = "service-account-json holds no private key that can be used"
                raise call.failure(ErrorType.INVALID_CONFIG, problem) from None

    def forget(self) -> None:
        """The token was refused: the next call gets another."""
        self._credentials = None

    @property
    def secrets(self) -> list[str]:
        """The key and, where there is one, the token."""
        secrets = [self._info.get("private_key", ""), self._info.get("private_key_id", "")] if self._info else []
        if self._credentials is not None and self._credentials.token:
            secrets.append(str(self._credentials.token))
        return secrets

    def _load(self, request: _TokenRequest) -> GoogleCredentials:
        if self._info is None:
            found, _ = google.auth.default(scopes=[SCOPE], request=request)
            return found
        account: GoogleCredentials = service_account.Credentials.from_service_account_info(self._info, scopes=[SCOPE])
        return account

    def _refused(self, call: CloudCall, error: auth_errors.GoogleAuthError) -> PowerError:
        if isinstance(error.__cause__, auth_errors.TransportError):
            return call.broken(f"the token endpoint can't be reached ({reason_of(error)})")
        answer = next((item for item in error.args if isinstance(item, Mapping)), {})
        said = call.told(" ".join(str(answer[key]) for key in ("error", "error_description") if key in answer))
        problem = f"the token endpoint refused the credentials ({said or type(error).__name__})"
        if getattr(error, "retryable", False):
            return call.failure(ErrorType.TRANSIENT, f"{problem}; nothing was sent")
        return call.failure(ErrorType.UNAUTHORIZED, problem)


KEPT_ACCOUNTS = 64
_accounts: OrderedDict[str, Account] = OrderedDict()
_accounts_lock = threading.Lock()


def account_of(key: str) -> Account:
    """The account of a JSON key, "" for the worker's own identity. Kept by the key's digest, so that tokens are reused."""
    digest = hashlib.sha256(key.encode()).hexdigest()
    with _accounts_lock:
        account = _accounts.pop(digest, None) or Account(json.loads(key) if key else None)
        _accounts[digest] = account
        while len(_accounts) > KEPT_ACCOUNTS:
            _accounts.popitem(last=False)
        return account
