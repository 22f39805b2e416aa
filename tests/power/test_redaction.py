"""Secrets are taken out of whatever others say, in whatever spelling, before anything is cut (S12)."""

from __future__ import annotations

import base64
import html
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, quote_plus
from xml.sax.saxutils import escape, quoteattr

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.power.driver import DeviceCredentials, PowerDriver, PowerError
from activities.power.ec2 import Ec2Factory
from activities.power.redaction import excerpt, hidden
from tests.power.agents.scripted import ScriptedAgent, needs_library, scripted_agent
from tests.power.conftest import within
from tests.power.raw_server import raw_server, saying

SPELLINGS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "in a path": quote,
    "in a query": quote_plus,
    "in a query, with nothing left out": lambda text: quote(text, safe=""),
    "in a query, in small letters": lambda text: re.sub("%..", lambda found: found[0].lower(), quote(text, safe="")),
    "in JSON": lambda text: json.dumps(text)[1:-1],
    "in JSON of other languages": lambda text: json.dumps(text)[1:-1].replace("/", "\\/"),
    "in JSON as UTF-8": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "in HTML": html.escape,
    "in XML": escape,
    "as an attribute": quoteattr,
    "in XML by numbers": lambda text: "".join(c if c.isalnum() and c.isascii() else f"&#{ord(c)};" for c in text),
    "in XML by hexadecimal numbers": lambda text: "".join(c if c.isalnum() and c.isascii() else f"&#x{ord(c):X};" for c in text),
    "quoted for a shell": shlex.quote,
    "quoted for a shell with backslashes": lambda text: "".join(c if c.isalnum() and c.isascii() else f"\\{c}" for c in text),
    "by Python": lambda text: repr(text)[1:-1],
    "by Python as bytes": lambda text: repr(text.encode())[2:-1],
    "in hexadecimal digits": lambda text: text.encode().hex(),
    "in base64": lambda text: base64.b64encode(text.encode()).decode(),
    "in base64 for URLs": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "in a header": lambda text: base64.b64encode(f"admin:{text}".encode()).decode(),
    "in a header, with a user that nobody told us": lambda text: base64.b64encode(f"someone:{text}".encode()).decode(),
}
CODED = {name for name in SPELLINGS if "base64" in name or "header" in name or "digits" in name}

# No letter of what surrounds them, and nothing that each spelling of anything has.
SECRETS = st.text(st.sampled_from("zQw \"'\\/&<>%+=$`!~{}#@:;.,-_é€😀\t\n"), min_size=4, max_size=24).filter(
    lambda text: text.strip() and sum(c.isalnum() for c in text) > 1
)


@given(secret=SECRETS, spelling=st.sampled_from(sorted(SPELLINGS)), around=st.sampled_from(["({})", 'K="{}";', "K\n{}\nK"]))
def test_no_usual_spelling_of_a_secret_is_left(secret: str, spelling: str, around: str) -> None:
    """S12."""
    spelt = SPELLINGS[spelling](secret)
    shown = hidden(around.format(spelt), ["admin", secret])
    assert spelt not in shown
    before, after = around.split("{}")
    inside = shown.removeprefix(before).removesuffix(after)
    known = spelt[: len("someone:") * 8 // 6] if "nobody" in spelling else ""
    assert inside.strip("'\"").lstrip(known) == "***", f"{spelt!r} shows as {shown!r}"


@given(
    secret=SECRETS,
    first=st.sampled_from(sorted(set(SPELLINGS) - CODED)),
    second=st.sampled_from(["in JSON", "in a query", "in XML"]),
)
def test_a_secret_that_was_escaped_twice_is_hidden(secret: str, first: str, second: str) -> None:
    """S12: a library's message in a server's JSON."""
    shown = hidden(f"K {SPELLINGS[second](SPELLINGS[first](secret))} K", [secret])
    assert "***" in shown
    assert not any(letter in shown for letter in "zQwé€😀")


@given(text=st.text(st.sampled_from("bcdefgh \"'\\/&<>%+=\n")), secret=SECRETS)
def test_what_holds_no_secret_is_shown_as_it_is(text: str, secret: str) -> None:
    assert hidden(text, ["", secret]) == text


@given(secret=SECRETS, spelling=st.sampled_from(sorted(SPELLINGS)), room=st.integers(0, 40))
def test_half_a_secret_is_one_too(secret: str, spelling: str, room: int) -> None:
    """S12: a text is cut after the secrets are out of it, not before."""
    shown = excerpt("." * 300 + SPELLINGS[spelling](secret), [secret, "admin"], longest=300 + room)
    assert not any(letter in shown for letter in "zQwé€😀")


def test_each_line_of_a_private_key_is_hidden() -> None:
    """S12: logs are read by the line."""
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg/kqhkiG9\nw0BAQEFAA+SCBKcwggSj\n-----END PRIVATE KEY-----\n"
    for line in key.splitlines():
        assert hidden(f"1: {line}", [key]) == "1: ***"
    assert hidden(json.dumps(key), [key]) == '"***"'


@pytest.fixture
def agent(tmp_path: Path) -> ScriptedAgent:
    return scripted_agent(tmp_path)


PASSWORD = "k3p&my s3cret/+"


@needs_library
@pytest.mark.parametrize("spelling", ["as it is", "in a query", "in JSON", "in HTML", "in a header"])
async def test_an_agents_words_show_no_first_letters_of_a_secret(agent: ScriptedAgent, spelling: str) -> None:
    """S12: where the words of a failure are cut, a secret may stand across the cut."""
    agent.script(ends=2, complains="x" * 289 + ":" + SPELLINGS[spelling](PASSWORD) + "\n")
    await _shows_nothing_of_it(agent.driver(login="admin", passwd=PASSWORD), "x" * 289 + ":")


@pytest.mark.parametrize("spelling", ["as it is", "in a query", "in HTML", "in base64"])
async def test_a_clouds_words_show_no_first_letters_of_a_secret(spelling: str) -> None:
    """S12."""
    told = escape("x" * 289 + ":" + SPELLINGS[spelling](PASSWORD))
    body = f"<Response><Errors><Error><Code>InvalidParameter</Code><Message>{told}</Message></Error></Errors></Response>"
    async with raw_server(saying("400 Bad Request", body, "Content-Type: text/xml")) as server:
        parameters = {"region": "us-east-1", "instance": "i-0abc", "endpoint-url": server.url}
        credentials = DeviceCredentials(values={"access-key-id": "AKIA0000", "secret-access-key": PASSWORD})
        await _shows_nothing_of_it(Ec2Factory().build(parameters, credentials), "x" * 289 + ":")


async def _shows_nothing_of_it(driver: PowerDriver, before: str) -> None:
    with pytest.raises(PowerError) as caught:
        await driver.off(within(5))
    _, said, rest = str(caught.value).partition(before)
    assert said, str(caught.value)
    assert rest.startswith("***"), rest
    assert "k3p" not in rest
