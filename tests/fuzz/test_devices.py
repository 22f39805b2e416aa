"""What devices, clouds and agents may say: off only where they say off (S3), else on, unknown or an error of ours."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable, Coroutine, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from activities.errors import ErrorType
from activities.power import fence_agent
from activities.power.agent_process import Ended
from activities.power.bmc import ipmi, redfish, redfish_http
from activities.power.driver import DeviceCredentials, PowerDriver, PowerError
from activities.power.fence_agent import InstalledAgent, _read
from activities.power.registry import driver_for
from policy.episode.messages import Reading
from policy.fence.drivers.agent_parameters import AgentMetadata, AgentParameter
from policy.fence.plan import PowerDevice
from policy.fence.power import PowerState
from tests.fuzz.strange import NO_JSON, PATIENCE, Json, Server, as_bytes, changed, examples, flow, served
from tests.power.conftest import PASSWORD, USERNAME, within
from tests.power.gce.stand import load_client
from tests.power.redfish.stand import RESET, SYSTEM
from tests.power.sessions_here import SAID, SessionsHere
from tests.power.targets import endpoint_of

pytestmark = PATIENCE

ACTS = st.sampled_from(("read", "read", "off", "on", "event_log"))
CLOUD_ACTS = st.sampled_from(("read", "read", "off", "on", "console", "volumes"))
GARBAGE = [*b'|<html>Status: OFF</html>|null|[]|7|{|\xff\xfe|Off|"Off"'.split(b"|"), b"[" * 5000, *map(as_bytes, NO_JSON)]
BODIES = st.one_of(st.sampled_from(GARBAGE), st.binary(max_size=40))
STATUSES = st.sampled_from((200, 200, 200, 200, 204, 301, 302, 307, 400, 401, 403, 404, 409, 429, 500, 503, 999))


def driver(kind: str, credentials: Json | None = None, **parameters: str) -> PowerDriver:
    chosen = {name.replace("_", "-"): value for name, value in parameters.items()}
    secret = DeviceCredentials(values={"username": USERNAME, "password": PASSWORD} if credentials is None else credentials)
    return driver_for(PowerDevice(driver=kind, endpoint=endpoint_of(kind, chosen), parameters=chosen), secret)


def done(act: Coroutine[Any, Any, Any], run: Callable[[Any], Any] = asyncio.run) -> Any:
    """What came of it: a value, or an error of ours."""
    try:
        return run(act)
    except PowerError as error:
        refused = error
    assert isinstance(refused.type, ErrorType)
    assert PASSWORD not in str(refused)
    assert len(str(refused)) < 3000
    return refused


def is_off(found: Any) -> bool:
    return isinstance(found, Reading) and found.state is PowerState.OFF


def spoken(device: PowerDriver, act: str, here: SessionsHere, *patches: tuple[Any, str, Any]) -> Any:
    with pytest.MonkeyPatch.context() as patched:
        here.patch(patched, type(device))
        for module, name, instead in patches:
            patched.setattr(module, name, instead)
        return done(getattr(device, act)(within(5)))


# IPMI, and what is said by a child of ours ------------------------------------------------------------------------------


class Session:
    """A BMC behind its login."""

    remoteguid = b"x" * 16

    def __init__(self, answers: list[tuple[int, bytes]]) -> None:
        self._answers = iter(answers)

    def raw_command(self, *_: Any, **__: Any) -> Json:
        code, data = next(self._answers, (0xC1, b""))
        return {"code": code, "data": bytearray(data)}

    command_once = raw_command

    def logout(self) -> None:
        """Nothing comes of it."""


@examples(100)
@given(ACTS, st.lists(st.tuples(st.sampled_from((0, 0, 0, 0, 0xC0, 0xD5, 0xFF)), st.binary(max_size=24)), max_size=12))
def test_whatever_a_bmc_answers(act: str, answers: list[tuple[int, bytes]]) -> None:
    found = spoken(
        driver("ipmi", ip="10.0.0.7"), act, SessionsHere(ipmi.IpmiSession), (ipmi, "log_in", lambda _device: Session(answers))
    )
    code, data = answers[0] if answers else (1, b"")
    assert is_off(found) == (act == "read" and code == 0 and len(data) >= 3 and not data[0] & 1)


LINES = (
    b'{"stage": "sent"}|{"answer": {}}|{"answer": 7}|{"error": "Nonsense", "message": 7}|{"error": "Unexpected"}|{"x": 1}'.split(
        b"|"
    )
)


@examples(60)
@given(ACTS, st.lists(st.one_of(BODIES, st.sampled_from([*LINES, b'{"answer": {"state": "off"}}']))))
def test_whatever_a_child_of_ours_says_in_the_end(act: str, said: list[bytes]) -> None:
    """Its pipe may be full of anything."""

    class SaysAnything(SessionsHere):
        def answer(self, *_: Any) -> None:
            SAID.get().extend(line + b"\n" for line in said)

    assert not is_off(spoken(driver("ipmi", ip="10.0.0.7"), act, SaysAnything(ipmi.IpmiSession)))


# Redfish ----------------------------------------------------------------------------------------------------------------

DESCRIBED = flow("""
/redfish/v1/Systems: {Members: [{"@odata.id": /redfish/v1/Systems/1}], Members@odata.count: 1}
/redfish/v1/Managers/1: {FirmwareVersion: '1', LogServices: {"@odata.id": /logs}}
/logs: {Members: [{"@odata.id": /logs/1}]}
/logs/1: {Entries: {"@odata.id": /entries}}
/entries: {Members: [{"@odata.id": /e}, {Created: t, Message: m, Severity: s}], Members@odata.nextLink: null}
/e: {Created: t, Message: m}""")
DESCRIBED[SYSTEM] = flow("""
{"@odata.id": /redfish/v1/Systems/1, Id: '1', PowerState: 'Off', UUID: 38947555-7742-3448-3784-823347823834,
 Actions: {"#ComputerSystem.Reset": {ResetType@Redfish.AllowableValues: ['On', ForceOff, Nmi]}},
 Links: {ManagedBy: [{"@odata.id": /redfish/v1/Managers/1}]}, LogServices: {"@odata.id": /logs}}""")
DESCRIBED[SYSTEM]["Actions"]["#ComputerSystem.Reset"]["target"] = RESET
DESCRIBED[RESET] = flow("{error: {code: c, message: m, '@Message.ExtendedInfo': [{MessageId: Base.1.8.NotInList, Message: m}]}}")
LINKS = st.sampled_from(
    ("", SYSTEM, "http://elsewhere/", "//elsewhere", "http://[", "\x00", "../..", "/é", "http://10.0.0.7:99999/")
)
Said = dict[str, tuple[int, dict[str, str], bytes]]
WELL: Said = {path: (400 if path == RESET else 200, {}, as_bytes(each)) for path, each in DESCRIBED.items()}


class Connection:
    """One request and its answer."""

    def __init__(self, answers: Said) -> None:
        self._answers, self._path = answers, ""
        self.putheader = self.endheaders = self.close = lambda *_: None

    def request(self, _method: str, path: str, **_: Any) -> None:
        self._path = path

    putrequest = request

    def getresponse(self) -> Any:
        status, headers, content = self._answers.get(self._path, (404, {}, b""))
        return SimpleNamespace(status=status, read=io.BytesIO(content).read, getheaders=lambda: list(headers.items()))


@st.composite
def services(draw: st.DrawFn) -> Said:
    """All well, but for some of the answers."""
    said = dict(WELL)
    for path in draw(st.lists(st.sampled_from([SYSTEM, SYSTEM, SYSTEM, *DESCRIBED]), max_size=2)):
        body = draw(st.one_of(*[changed(DESCRIBED[path]).map(as_bytes)] * 2, BODIES))
        said[path] = (draw(STATUSES), {"Location": draw(LINKS)}, body)
    return said


@examples(100)
@given(ACTS, services(), st.booleans())
@example("read", WELL, True)
@example("read", WELL, False)
@example(
    "read",
    WELL | {"/redfish/v1/Systems": (200, {}, as_bytes(DESCRIBED["/redfish/v1/Systems"] | {"Members@odata.count": []}))},
    False,
)
def test_whatever_a_redfish_service_says(act: str, said: Said, named: bool) -> None:
    service = driver("redfish", ip="10.0.0.7", scheme="http", **({"system": "1"} if named else {}))
    connected = (redfish_http.Service, "_connect", lambda _service: Connection(said))
    off = is_off(spoken(service, act, SessionsHere(redfish.RedfishSession), connected))
    assert off == (act == "read") or said != WELL
    assert not off or json.loads(said[SYSTEM][2])["PowerState"] == "Off"


# Agents -----------------------------------------------------------------------------------------------------------------

METADATA = AgentMetadata(
    agent="fence_apc_snmp",
    parameters={name: AgentParameter() for name in ("ip", "plug", "separator", "action")},
    actions=frozenset({"on", "off", "status", "list", "diag"}),
)
WORDS = st.sampled_from(
    b"Status: OFF\n|Status: ON\n| Status: OFF|status: off|1\t\n|2\tx\n|N/A|Traceback\nx|\xff\x00|".split(b"|")
)
ENDS = st.builds(
    Ended,
    stdout=st.one_of(WORDS, st.lists(WORDS, max_size=3).map(b"".join), st.binary(max_size=30)),
    stderr=st.one_of(WORDS, st.binary(max_size=30)),
    returncode=st.sampled_from((0, 0, 2, 2, 1, 3, -9, 127)),
    timed_out=st.sampled_from((False, False, False, True)),
)


@examples(100)
@given(st.sampled_from(("read", "read", "off", "on")), st.lists(ENDS, min_size=1, max_size=4))
def test_whatever_an_agent_says_and_ends_with(act: str, ends: list[Ended]) -> None:
    """The list of its plugs is the second word."""
    said = iter(ends)

    async def run(*_: Any, **__: Any) -> Ended:
        return next(said, ends[-1])

    async def installed(*_: Any, **__: Any) -> InstalledAgent:
        return InstalledAgent(program=SimpleNamespace(), metadata=METADATA)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fence_agent.agent_process, "run", run)
        patched.setattr(fence_agent, "installed", installed)
        fence_agent._seen.clear()
        device = driver("fence_apc_snmp", {"community": PASSWORD}, ip="10.0.0.7", plug="1")
        off = is_off(done(getattr(device, act)(within(5))))
    listed = ends[min(1, len(ends) - 1)]
    assert not off or (ends[0].returncode, listed.returncode, b"Status: OFF" in ends[0].stdout) == (2, 0, True)


@examples(50)
@given(
    st.one_of(
        BODIES, st.sampled_from(b"<a><parameter/></a>|<a><action/><parameter name='x'><content/></parameter></a>".split(b"|"))
    )
)
@example(b"<?xml version='1.0' encoding='x'?><a/>")
def test_whatever_an_agent_says_of_itself(described: bytes) -> None:
    async def read() -> AgentMetadata:
        return _read("fence_x", Ended(stdout=described, stderr=b"", returncode=0, timed_out=False))

    done(read())


# Clouds -----------------------------------------------------------------------------------------------------------------

INSTANCE = "i-0123456789abcdef0"
EC2_SAID = f"""<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><reservationSet><item><instancesSet><item>
<instanceId>{INSTANCE}</instanceId><instanceState><code>80</code><name>stopped</name></instanceState><privateDnsName>n</privateDnsName>
<launchTime>2026-11-21T10:00:00Z</launchTime><tagSet><item><key>Name</key><value>v</value></item></tagSet>
</item></instancesSet></item></reservationSet></DescribeInstancesResponse>"""
GCE_SAID = flow("""
{id: '7', name: node-1, status: TERMINATED, statusMessage: m, machineType: x/y, metadata: {items: [{key: created-by, value: v}]},
 disks: [{source: projects/p/zones/z/disks/d, boot: true, deviceName: d}], creationTimestamp: t}""")
FAILED = flow("{error: {code: 403, message: m, errors: [{reason: rateLimitExceeded}], details: [{reason: x}]}}")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    load_client()
    with served() as running:
        yield running


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    """EC2's answer with a piece of it gone, twice or replaced."""
    begin = draw(st.integers(0, len(EC2_SAID)))
    end = draw(st.integers(begin, min(begin + 60, len(EC2_SAID))))
    instead = draw(st.sampled_from(("", EC2_SAID[begin:end] * 2, "<", "&x;", "\x00", "9" * 5000, "<item/>", "stopped", "é")))
    return f"{EC2_SAID[:begin]}{instead}{EC2_SAID[end:]}".encode()


@examples(60)
@given(CLOUD_ACTS, STATUSES, st.one_of(texts(), texts(), BODIES))
@example("read", 200, EC2_SAID.encode())
def test_whatever_is_said_in_ec2s_place(server: Server, act: str, status: int, body: bytes) -> None:
    server.say(status, body, "Content-Type: text/xml", "Location: http://127.0.0.1:1/")
    keys = {"access-key-id": "AKIA1", "secret-access-key": PASSWORD}
    device = driver("ec2", keys, region="eu-west-1", instance=INSTANCE, endpoint_url=server.url)
    off = is_off(done(getattr(device, act)(within(30)), server.runner.run))
    assert off or (act, status, body) != ("read", 200, EC2_SAID.encode())
    assert not off or (status < 300 and b"stopped" in body)


@examples(60)
@given(CLOUD_ACTS, STATUSES, st.one_of(*[changed(each).map(as_bytes) for each in (GCE_SAID, GCE_SAID, FAILED)], BODIES))
@example("read", 200, as_bytes(GCE_SAID))
def test_whatever_is_said_in_compute_engines_place(server: Server, act: str, status: int, body: bytes) -> None:
    server.say(status, body, "Content-Type: application/json", "Location: http://127.0.0.1:1/")
    device = driver("gce", {}, project="a-project", zone="zone-1", instance="node-1", api_endpoint=server.url)
    off = is_off(done(getattr(device, act)(within(30)), server.runner.run))
    assert off or (act, status, body) != ("read", 200, as_bytes(GCE_SAID))
    assert not off or (status < 300 and json.loads(body)["status"] == "TERMINATED")
