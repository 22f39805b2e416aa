"""A browser's session is in its cookie, sealed: any process with the same keys knows it, and no other does."""

from __future__ import annotations

import secrets
from types import SimpleNamespace

import pytest
from fastapi import Request

from starter.web.auth import COOKIE, LASTS, Sessions, TokenTooLongError

FIRST, SECOND = (secrets.token_hex(32).encode() for _ in range(2))


def request(cookie: str = "", **headers: str) -> Request:
    sent = {**headers, **({"cookie": f"{COOKIE}={cookie}"} if cookie else {})}
    return Request({"type": "http", "headers": [(name.encode(), text.encode("latin-1")) for name, text in sent.items()]})


def test_a_browser_is_known_wherever_the_keys_are() -> None:
    """S12: and nobody else reads its token, or makes a form of it."""
    one, other, stranger = Sessions([FIRST]), Sessions([FIRST]), Sessions()
    sealed = request(one.begin("anns-token"))
    assert "anns-token" not in sealed.headers["cookie"]
    assert (other.token_of(sealed), stranger.token_of(sealed)) == ("anns-token", "")
    form = one.form_token(sealed)
    assert (other.is_ours(sealed, form), stranger.is_ours(sealed, form)) == (True, False)
    assert not other.is_ours(request(one.begin("anns-token")), form)  # another session of hers


def test_keys_are_changed_without_logging_anybody_out() -> None:
    """The new one last, then first, then the old one goes."""
    before, between, after = Sessions([FIRST]), Sessions([SECOND, FIRST]), Sessions([SECOND])
    sealed = request(before.begin("anns-token"))
    assert (between.token_of(sealed), between.is_ours(sealed, before.form_token(sealed))) == ("anns-token", True)
    assert after.token_of(request(between.begin("anns-token"))) == "anns-token"
    assert after.token_of(sealed) == ""


def test_a_session_ends_after_eight_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = Sessions([FIRST])
    now = 0.0
    monkeypatch.setattr("cryptography.fernet.time", SimpleNamespace(time=lambda: now))
    sealed = request(sessions.begin("anns-token"))
    now = LASTS.total_seconds()
    assert sessions.token_of(sealed) == "anns-token"
    now += 2.0
    assert sessions.token_of(sealed) == ""


def test_a_token_that_no_browser_would_keep_is_refused() -> None:
    """It drops such a cookie without a word, and people would be asked again and again."""
    sessions = Sessions()
    assert len(sessions.begin(secrets.token_urlsafe(2700))) <= 4096 - len(COOKIE) - 1
    with pytest.raises(TokenTooLongError, match="expected a token that fits into a cookie, got one of 6"):
        sessions.begin(secrets.token_urlsafe(4500))


@pytest.mark.parametrize("cookie", ["", "x", "é", "gAAAAA=="])
def test_what_nobody_has_sealed_is_nobody(cookie: str) -> None:
    assert Sessions().token_of(request(cookie)) == ""
    assert not Sessions().is_ours(request(cookie), "é")


def test_whoever_bears_a_token_needs_no_cookie() -> None:
    assert Sessions().token_of(request(Sessions().begin("anns-token"), authorization="Bearer bobs-token")) == "bobs-token"


@pytest.mark.parametrize("keys", [[], [b"short"], [FIRST, b"short"]])
def test_no_key_and_a_short_one_are_refused(keys: list[bytes]) -> None:
    with pytest.raises(ValueError, match="expected at least one key, each of at least 32 bytes"):
        Sessions(keys)
