"""Takes secrets out of what others say, before it is cut, stored or shown (S12).

A device, a cloud or a tool may repeat what it was given, and rarely as it was given: in a URL, in JSON or XML, quoted for a
shell, as Python prints it, in an Authorization header. Used by every driver and by the child processes, so it imports nothing
of others.
"""

from __future__ import annotations

import html
import json
import re
import shlex
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from itertools import permutations
from urllib.parse import quote, quote_plus

HIDDEN = "***"

SHORTEST_INSIDE = 4
"""Bytes of a secret that is looked for inside of longer base64; a shorter one would be found anywhere."""

LINE_WORTH_HIDING = 8
"""Characters of a line of a secret with several lines (a private key) that is hidden where it stands alone."""


def hidden(text: str, secrets: Iterable[str]) -> str:
    """The text with `***` in place of each secret in any of its usual spellings."""
    given = {secret for secret in secrets if secret}
    lines = {line for secret in given for line in _long_lines(secret)}
    # The longer before what may be a part of it: a header holds user and password.
    text = _without(text, {_base64(f"{one}:{other}") for one, other in permutations(given, 2)})
    for pattern in (pattern for secret in sorted(given) for pattern in _within_base64(secret)):
        text = re.sub(pattern, HIDDEN, text)
    return _without(text, given | lines)


def excerpt(text: str, secrets: Iterable[str], *, longest: int = 300) -> str:
    """What another program said, fit to be repeated to people: without secrets, then on one line and with an end.

    In this order, because half a secret is one, too.
    """
    return " ".join(hidden(text, secrets).split())[:longest]


def _without(text: str, secrets: Iterable[str]) -> str:
    spellings = {spelling for secret in secrets for spelling in _spellings(secret)}
    for spelling in sorted(spellings, key=len, reverse=True):
        text = text.replace(spelling, HIDDEN)
    return text


def _long_lines(secret: str) -> list[str]:
    lines = secret.splitlines()
    return [line for line in lines if len(line) >= LINE_WORTH_HIDING] if len(lines) > 1 else []


def _spellings(secret: str) -> set[str]:
    """As it is, escaped, and escaped again by what carries it: a library's message in a server's JSON."""
    once = {escape(secret) for escape in (*_CARRIERS, *_OTHERS)}
    return once | {escape(spelling) for spelling in once for escape in _CARRIERS}


def _within_base64(secret: str) -> Iterator[str]:
    """Patterns that find it inside of something longer that was written in base64: a header with a user that we don't know."""
    plain = secret.encode(errors="surrogatepass")
    if len(plain) < SHORTEST_INSIDE:
        return
    for before in range(3):
        # Which characters are its own depends on how many bytes are before it. Those at its ends it shares with its neighbours:
        # they hold a few of its bits, and are hidden, too.
        whole = b64encode(bytes(before) + plain).decode()
        first, end = -(-before * 8 // 6), (before + len(plain)) * 8 // 6
        own = re.escape(whole[first:end]).replace(r"\+", "[+-]").replace("/", "[/_]")
        shared = "[A-Za-z0-9+/_-]"
        yield f"{shared if before else ''}{own}{shared if (before + len(plain)) % 3 else ''}(?:=|%3D){{0,2}}"


def _base64(text: str) -> str:
    return b64encode(text.encode(errors="surrogatepass")).decode()


def _json(text: str) -> str:
    return json.dumps(text)[1:-1]


def _lower(text: str, escapes: str) -> str:
    return re.sub(escapes, lambda found: found[0].lower(), text)


def _query(text: str) -> str:
    return quote(text, safe="", errors="surrogatepass")


def _numbered(text: str, spelling: str) -> str:
    return "".join(each if each.isascii() and each.isalnum() else spelling.format(ord(each)) for each in text)


_CARRIERS: tuple[Callable[[str], str], ...] = (
    str,
    _query,
    lambda text: _lower(_query(text), "%.."),
    lambda text: quote_plus(text, errors="surrogatepass"),
    _json,
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    lambda text: _json(text).replace("/", "\\/"),
    # As Go's encoder does it, so that JSON can stand in HTML.
    lambda text: _json(text).replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"),
    html.escape,
    lambda text: html.escape(text, quote=False),
    lambda text: html.escape(text).replace("&#x27;", "&#39;").replace("&quot;", "&#34;"),
)
_OTHERS: tuple[Callable[[str], str], ...] = (
    lambda text: quote(text, errors="surrogatepass"),
    lambda text: _lower(quote(text, errors="surrogatepass"), "%.."),
    lambda text: html.escape(text).replace("&#x27;", "&apos;"),
    # In an attribute, where only the quotes around it are escaped, and white space.
    lambda text: _attribute(html.escape(text, quote=False)),
    lambda text: _attribute(html.escape(text, quote=False).replace('"', "&quot;")),
    lambda text: _numbered(text, "&#{};"),
    lambda text: _numbered(text, "&#x{:x};"),
    lambda text: _numbered(text, "&#x{:X};"),
    # For a shell: in quotes of either kind, which are left for what cannot stand in them, or with backslashes.
    lambda text: shlex.quote(text).removeprefix("'").removesuffix("'"),
    lambda text: text.replace("'", "'\\''"),
    lambda text: re.sub(r'([\\"$`!])', r"\\\1", text),
    lambda text: re.sub(r'([\\"$`])', r"\\\1", text),
    lambda text: re.sub(r"([^A-Za-z0-9])", r"\\\1", text),
    lambda text: re.sub(r"([^A-Za-z0-9_@%+=:,./-])", r"\\\1", text),
    # As Python prints it.
    lambda text: repr(text)[1:-1],
    lambda text: repr(text).replace("\\'", "'")[1:-1],
    lambda text: repr(text + "'\"")[1:-4],
    lambda text: repr(text.encode(errors="surrogatepass"))[2:-1],
    lambda text: text.encode(errors="surrogatepass").hex(),
    lambda text: text.encode(errors="surrogatepass").hex().upper(),
    _base64,
    lambda text: _base64(text).replace("+", "-").replace("/", "_"),
    lambda text: _base64(text).rstrip("="),
    # Read with another encoding than it was written with.
    lambda text: text.encode(errors="surrogatepass").decode("latin-1"),
    lambda text: text.encode("latin-1", errors="replace").decode(errors="replace"),
)


def _attribute(text: str) -> str:
    return text.replace("\n", "&#10;").replace("\r", "&#13;").replace("\t", "&#9;")
