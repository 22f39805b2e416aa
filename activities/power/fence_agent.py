"""Any agent of the fence-agents package as a power driver: one run of the agent for each question and each command.

An agent's exit status and words prove nothing (S2). Every failure is status 1, whatever happened, so a question is asked first,
in a run of its own: what fails there has commanded nothing, and is a failure of its own; a command that does not end well may
have been carried out. Its own waiting and repeating is kept short of our deadline, for `power_timeout` counts readings and not
seconds.

Some agents call a plug off that the device does not have (SNMP 2c ones among them). So off counts only for a plug that the agent
lists, or that it has lately called on (S3).
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from xml.etree import ElementTree

from activities.errors import ErrorType
from activities.power import agent_process
from activities.power.agent_process import Ended, not_started
from activities.power.driver import Deadline, DeviceCredentials, PowerError, invalid, parameters_of
from policy.episode.messages import Reading
from policy.fence.drivers import fence_agents, problem_of_credential
from policy.fence.drivers.agent_parameters import (
    FILES,
    AcceptedParameters,
    AgentMetadata,
    AgentParameter,
    canonical_name,
    fitted,
    refusal,
)
from policy.fence.drivers.contract import names_a_credential
from policy.fence.power import PowerCapability, PowerState

SEARCH_PATH = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin"
"""Where agents and the tools that they start are found, whatever the worker's own PATH is."""

ENVIRONMENT = {"PATH": SEARCH_PATH, "LC_ALL": "C", "PYTHONWARNINGS": "ignore"}
"""All that an agent gets to see beside the mark of its run: nothing of ours, English texts,
and no wish to say what is old-fashioned about itself."""

SIGHTING_LASTS = 600.0
"""Seconds for which a plug that was seen need not be listed again."""

MARGIN = 0.5
"""Seconds between the time that an agent is given and its end by force."""

_seen: dict[str, float] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceAgentFactory:
    """One agent as the registry knows it. further: agents that this worker takes besides the published ones."""

    agent: str
    further: frozenset[str] = frozenset()
    search_path: str = SEARCH_PATH

    def endpoint_of(self, parameters: Mapping[str, str]) -> str:
        with parameters_of(self.agent):
            return fence_agents.endpoint(self.agent, parameters)

    def build(self, parameters: Mapping[str, str], credentials: DeviceCredentials) -> FenceAgentDriver:
        self._refuse_what_is_not_allowed()
        endpoint = self.endpoint_of(parameters)
        named = {canonical_name(key) for key in parameters}
        secrets: dict[str, str] = {}
        for key, value in credentials.values.items():
            name = canonical_name(key)
            problem = refusal(name) or _problem_of_secret(self.agent, name, value)
            if problem is not None:
                raise invalid(f"{endpoint}: credential {key!r}: {problem}")
            if name in named or secrets.get(name, value) != value:
                raise invalid(f"{endpoint}: credential {key!r} is given twice")
            secrets[name] = value
        self._refuse_insecurity_of_credentials(endpoint, parameters, secrets)
        return FenceAgentDriver(
            agent=self.agent,
            endpoint=endpoint,
            parameters={key: value for key, value in parameters.items() if canonical_name(key) != fence_agents.TRUST_OFF},
            suspends=fence_agents.off_may_be_suspended(self.agent, parameters),
            secrets=secrets,
            credentials=credentials,
            search_path=self.search_path,
        )

    def _refuse_insecurity_of_credentials(self, endpoint: str, parameters: Mapping[str, str], secrets: Mapping[str, str]) -> None:
        """A whole Secret may hold any parameter. What this worker thinks of insecure devices was judged before that was read."""
        further = {name: each for name, each in secrets.items() if not (name in FILES or names_a_credential(name))}
        with parameters_of(endpoint):
            found = fence_agents.insecurity(self.agent, {**parameters, **further})
            if found and not fence_agents.insecurity(self.agent, parameters):
                raise invalid(f"{endpoint}: its credentials ask for {found}: expected that among the parameters")

    def _refuse_what_is_not_allowed(self) -> None:
        reason = fence_agents.refusal(self.agent)
        if reason is not None:
            raise invalid(f"{self.agent} can't be used: {reason}")
        if self.agent in fence_agents.PUBLISHED or self.agent in self.further:
            return
        why = fence_agents.NOT_BY_DEFAULT.get(self.agent, "it is none of the published package's")
        raise invalid(f"{self.agent} is not allowed on this worker: {why}; the setting worker.fence_agents adds agents")


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceAgentDriver:
    """One plug behind one agent. Holds nothing open. suspends: whether a machine that it calls off may only be suspended."""

    agent: str
    endpoint: str
    parameters: Mapping[str, str]
    secrets: Mapping[str, str] = field(repr=False)
    credentials: DeviceCredentials = field(repr=False)
    suspends: bool = False
    search_path: str = SEARCH_PATH

    @property
    def capabilities(self) -> frozenset[PowerCapability]:
        """An agent does not say which machine it serves."""
        return frozenset({PowerCapability.READ, PowerCapability.OFF, PowerCapability.ON})

    async def read(self, deadline: Deadline) -> Reading:
        run = await self._begin("read", deadline)
        asked_at = datetime.now(UTC)
        state, detail = await run.status()
        if state is PowerState.OFF:
            state, detail = await run.confirmed_off()
        said = "; ".join((*((detail,) if detail else ()), *run.warnings))
        return Reading(endpoint=self.endpoint, state=state, at=asked_at, detail=said)

    async def off(self, deadline: Deadline) -> None:
        """The agent's `off`, which it sends once, and not at all where it finds the plug off."""
        run = await self._begin("off", deadline)
        state, detail = await run.status()
        if state is PowerState.OFF:
            state, detail = await run.confirmed_off()
        run.refuse_unknown(state, detail)
        run.refuse_suspended(state)
        await run.command("off")

    async def on(self, deadline: Deadline) -> None:
        """The agent's `on`, sent once. It restores, so a plug that is called off and can't be listed is no obstacle."""
        run = await self._begin("on", deadline)
        run.refuse_unknown(*await run.status())
        await run.command("on")

    def session(self) -> AbstractAsyncContextManager[FenceAgentDriver]:
        """Each question and each command is a run of the agent, which holds nothing open between two of them."""
        return nullcontext(self)

    async def _begin(self, operation: str, deadline: Deadline) -> _Act:
        refuse_late(self.endpoint, operation, deadline)
        found = await installed(self.agent, deadline, search_path=self.search_path)
        metadata = found.metadata
        missing = {"status", "on", "off"} - metadata.actions
        if missing:
            raise invalid(f"{self.agent} has no {', '.join(sorted(missing))}: it can't switch and prove a power state")
        if "port_as_ip" in metadata.parameters and not fence_agents.has_plugs(self.agent) and "plug" in _names(self.parameters):
            raise invalid(f"{self.endpoint}: {self.agent} has no plugs and would ignore this one: expected the machine's own ip")
        self._refuse_protection_that_is_not_known(metadata)
        with parameters_of(self.endpoint):
            fitting = fitted(metadata, {**self.parameters, **self.secrets})
        return _Act(driver=self, operation=operation, deadline=deadline, found=found, fitting=fitting)

    def _refuse_protection_that_is_not_known(self, metadata: AgentMetadata) -> None:
        """What the agent does not know is left out: never what this device counts as safe by."""
        known = {key: value for key, value in self.parameters.items() if metadata.has(canonical_name(key))}
        with parameters_of(self.endpoint):
            how = fence_agents.insecurity(self.agent, known)
            if how and not fence_agents.insecurity(self.agent, self.parameters):
                left_out = ", ".join(sorted(_names(self.parameters) - _names(known)))
                raise invalid(f"{self.endpoint}: {self.agent} knows no {left_out}, without which it is spoken to by {how}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Act:
    """One operation: the runs of the agent that it takes, within one deadline."""

    driver: FenceAgentDriver
    operation: str
    deadline: Deadline
    found: InstalledAgent
    fitting: AcceptedParameters

    @property
    def metadata(self) -> AgentMetadata:
        return self.found.metadata

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.fitting.warnings

    async def status(self) -> tuple[PowerState, str]:
        """What the agent says of the plug. Raises where it ends without saying anything; nothing was commanded then."""
        ended = await self._run("status")
        state = state_of(ended)
        if state is PowerState.ON:
            _see(self.driver.endpoint)
        if state is not PowerState.UNKNOWN:
            return state, ""
        if ended.returncode in STATUS:
            return (
                PowerState.UNKNOWN,
                f"{self.driver.agent} ended with status {ended.returncode} and said {self._output(ended)!r}",
            )
        if ended.timed_out or ended.returncode < 0:
            raise self._failure(ErrorType.UNREACHABLE, "no answer before the deadline; nothing was commanded")
        kind = hint_of(ended)
        if kind is ErrorType.TRANSIENT:
            await self._refuse_missing_plug()
        raise self._failure(kind, f"{self._output(ended)}; nothing was commanded")

    async def confirmed_off(self) -> tuple[PowerState, str]:
        """Off, for a plug that there is. Raises InvalidConfig where the agent lists others and not this one (S3)."""
        plug = self._plug
        if plug is None or "list" not in self.metadata.actions or _was_seen(self.driver.endpoint):
            _see(self.driver.endpoint)
            return PowerState.OFF, ""
        ended = await self._run("list")
        listed = plugs_of(ended)
        if ended.returncode != 0 or ended.timed_out:
            return (
                PowerState.UNKNOWN,
                f"it says off, but its plugs can't be listed, and a missing one is off too: {self._output(ended)}",
            )
        if listed is not None and not is_listed(plug, self._switch, listed):
            raise self._missing(plug, listed)
        _see(self.driver.endpoint)
        return PowerState.OFF, ""

    def refuse_unknown(self, state: PowerState, detail: str) -> None:
        """A device that can't be read is not commanded: a lost answer there would look like a lost command."""
        if state is PowerState.UNKNOWN:
            raise self._failure(ErrorType.TRANSIENT, f"its state is not known, so nothing was commanded: {detail}")

    def refuse_suspended(self, state: PowerState) -> None:
        """The agent would send nothing, and what it says then is of a machine that was not switched off (S2, S3)."""
        if state is PowerState.OFF and self.driver.suspends:
            said = f"{self.driver.agent} says off, as it does of what is only suspended or not known, and nothing was sent"
            how = 'see which it is: say so (ack-off), or trust_off: "true" among its parameters where that never happens'
            raise self._failure(ErrorType.NOT_SUPPORTED, f"{said}: {how}")

    async def command(self, action: str) -> None:
        """Have the agent do something. From here on whatever goes wrong may have been carried out (S34)."""
        refuse_late(self.driver.endpoint, self.operation, self.deadline)
        ended = await self._run(action)
        if ended.timed_out or ended.returncode < 0:
            message = f"{self.driver.agent} had not ended by the deadline; it may have been carried out"
            raise self._failure(ErrorType.AMBIGUOUS, message)
        if ended.returncode != 0:
            raise self._failure(ErrorType.AMBIGUOUS, f"{self._output(ended)}; it may have been carried out")

    @property
    def _plug(self) -> str | None:
        given = {canonical_name(key): value for key, value in self.driver.parameters.items()}
        return given.get("plug", given.get("uuid")) if self.metadata.has("separator") else None

    @property
    def _switch(self) -> str:
        return {canonical_name(key): value for key, value in self.driver.parameters.items()}.get("switch", "1")

    async def _refuse_missing_plug(self) -> None:
        """A device that answered and gave no state may not have the plug: then it never will."""
        if self._plug is not None and "list" in self.metadata.actions:
            listed = plugs_of(await self._run("list"))
            if listed is not None and not is_listed(self._plug, self._switch, listed):
                raise self._missing(self._plug, listed)

    async def _run(self, action: str) -> Ended:
        seconds = self.deadline.remaining().total_seconds()
        if seconds <= 0:
            raise self._failure(ErrorType.UNREACHABLE, f"no time was left for {action!r}; nothing was commanded")
        values = {**self.fitting.values, **timing(self.metadata, self.fitting.values, action, seconds - MARGIN)}
        values |= {name: value for name, value in _OURS.items() if self.metadata.has(name)}
        values["action"] = action
        patience = max(0.5, min(2.0, (seconds - MARGIN) / 4))
        with agent_input(self.metadata, values, secrets=self.driver.secrets, patience=patience) as handed:
            # `timeout` ends the agent and its tools where this worker is killed before the deadline (S34).
            guard = ("timeout", "--signal=KILL", f"{seconds + MARGIN:.1f}", str(self.found.program))
            return await agent_process.run(guard, handed.lines, self.deadline, environment=handed.environment, files=handed.files)

    def _output(self, ended: Ended) -> str:
        return failure_output(ended, self.driver.credentials.hidden_in)

    def _missing(self, plug: str, listed: Mapping[str, str]) -> PowerError:
        return self._failure(
            ErrorType.INVALID_CONFIG,
            f"the device has no plug {plug!r}, and one that is missing is never off; it has {some_of(listed)}",
        )

    def _failure(self, kind: ErrorType, message: str) -> PowerError:
        return PowerError(kind, f"{self.driver.endpoint}: {self.operation!r}: {message}")


_OURS = {"method": "onoff", "retry_on": "0", "stonith_status_sleep": "1", "separator": "\t", "disable_timeout": "false"}
"""method: `cycle` verifies nothing. retry_on: a command is sent once. separator: nothing that stands in a name."""


def refuse_late(endpoint: str, operation: str, deadline: Deadline) -> None:
    """An act that is not begun in time is not begun at all (S20)."""
    late = deadline.not_after is not None and datetime.now(UTC) > deadline.not_after
    if late or deadline.remaining().total_seconds() <= 0:
        raise PowerError(ErrorType.EXPIRED, f"{endpoint}: {operation!r}: its time was over before it began; nothing was sent")


def timing(metadata: AgentMetadata, given: Mapping[str, str], action: str, seconds: float) -> dict[str, str]:
    """The agent's own times, so that it ends by itself within the seconds that there are.

    After a command it reads up to `power_timeout` times, a second and an answer apart; an answer is taken to need a second at
    most. For agents that start a tool the same number is also the seconds that the tool is given for one answer.
    """

    def at_most(name: str, limit: float, least: int) -> int:
        parameter = metadata.parameters.get(name)
        wanted = given.get(name) or (parameter.default if parameter is not None else None) or "20"
        return max(least, min(int(wanted) if wanted.isdecimal() else 20, int(limit)))

    wait = at_most("power_wait", seconds / 4, 0)
    chosen = {
        "login_timeout": at_most("login_timeout", seconds / 3, 1),
        "shell_timeout": at_most("shell_timeout", seconds / 3, 1),
        "power_wait": wait,
        "power_timeout": at_most("power_timeout", (seconds - wait) / 2 if action in {"on", "off"} else seconds, 1),
    }
    return {name: str(value) for name, value in chosen.items() if metadata.has(name)}


def _problem_of_secret(agent: str, name: str, value: str) -> str | None:
    """Credentials stand in no plan and are pinned by nothing, so they may not choose the device (S9)."""
    if fence_agents.chooses_a_device(name):
        return "would choose the device: expected it among the parameters"
    return problem_of_credential(agent, name, value)


def _names(parameters: Mapping[str, str]) -> set[str]:
    return {canonical_name(key) for key in parameters}


def _see(endpoint: str) -> None:
    now = time.monotonic()
    for old in [each for each, at in _seen.items() if at < now - SIGHTING_LASTS]:
        del _seen[old]
    _seen[endpoint] = now


def _was_seen(endpoint: str) -> bool:
    return _seen.get(endpoint, -SIGHTING_LASTS) > time.monotonic() - SIGHTING_LASTS


# What an installed agent says of itself. Asked once per program and version of it, because an agent takes 0.1 to 0.7 s to start;
# what fits it is judged in `policy/fence/drivers/agent_parameters.py`.


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledAgent:
    """An agent's program, and what it says of itself."""

    program: Path
    metadata: AgentMetadata


KNOWN: dict[tuple[Path, int], InstalledAgent] = {}


async def installed(agent: str, deadline: Deadline, *, search_path: str = SEARCH_PATH) -> InstalledAgent:
    """The agent as it is installed now. Raises PowerError: InvalidConfig where it is not, Transient where it gives no answer."""
    found = shutil.which(agent, path=search_path)
    if found is None:
        raise invalid(f"{agent} is not installed on this worker: expected the package fence-agents there")
    program, version = _version(found)
    if version not in KNOWN:
        ended = await agent_process.run((found,), b"action=metadata\n", deadline, environment=ENVIRONMENT)
        KNOWN[version] = InstalledAgent(program=program, metadata=_read(agent, ended))
    return KNOWN[version]


def _version(found: str) -> tuple[Path, tuple[Path, int]]:
    program = Path(found)
    return program, (program, program.stat().st_mtime_ns)


def _read(agent: str, ended: agent_process.Ended) -> AgentMetadata:
    try:
        # The program's own words, and it was chosen from an allow-list.
        described = ElementTree.fromstring(ended.stdout)  # noqa: S314
    except (ElementTree.ParseError, LookupError, ValueError) as error:  # an unknown encoding is no XML either
        reason = "in time" if ended.timed_out else f"as XML ({error}), it ended with status {ended.returncode}"
        message = f"{agent} did not describe itself {reason}; nothing was commanded"
        raise PowerError(ErrorType.TRANSIENT, message) from error
    parameters: dict[str, AgentParameter] = {}
    for each in described.iter("parameter"):
        name = canonical_name(each.get("name", ""))
        # An old name of the same parameter stands beside the new one.
        if name and not (each.get("deprecated") == "1" and name in parameters):
            parameters[name] = _parameter(each)
    actions = frozenset(each.get("name", "") for each in described.iter("action"))
    return AgentMetadata(agent=agent, parameters=parameters, actions=actions)


def _parameter(described: ElementTree.Element) -> AgentParameter:
    content = described.find("content")
    if content is None:
        return AgentParameter(required=described.get("required") == "1")
    return AgentParameter(
        kind=content.get("type", "string"),
        required=described.get("required") == "1",
        default=content.get("default"),
        choices=tuple(option.get("value", "") for option in content.iter("option")),
    )


# What an agent is handed: lines on its standard input, and its secrets where no other user of the machine can see them.
#
# An agent's own arguments and environment are clean. But some agents pass a secret on in the arguments of the tool that they
# start, where everybody can read it (S12): the SNMP tools and ipmitool. There the agent does not get the secret; the tool reads
# it from a file in memory that is on no disk and ends with the run. The agent's own process holds it open, and a link leads
# there: into ours only root may look (`workers/os_process.py`), and what an agent has open it closes before it starts a tool.

# What the SNMP tools call what agents would write into their arguments.
_SNMP_SETTINGS = {
    "community": "defCommunity",
    "username": "defSecurityName",
    "password": "defAuthPassphrase",
    "snmp_priv_passwd": "defPrivPassphrase",
}
_PLAIN = re.compile(r"[A-Za-z0-9._:@/+-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentInput:
    """For one run of an agent."""

    lines: bytes = field(repr=False)
    environment: Mapping[str, str]
    files: Mapping[Path, int]
    """Files in memory: the paths that the agent is given, each for `agent_process.run` to link to what it opens there."""


@contextmanager
def agent_input(
    metadata: AgentMetadata, values: Mapping[str, str], *, secrets: Mapping[str, str], patience: float
) -> Iterator[AgentInput]:
    """The input for one run; its files are there as long as the context. `patience`: seconds for one answer of a device.

    Raises PowerError, InvalidConfig, where the agent can't be given its parameters safely.
    """
    given = dict(values)
    environment = dict(ENVIRONMENT)
    with ExitStack() as stack:
        files = _FilesInMemory(stack)
        for name in FILES & secrets.keys() & given.keys():
            given[name] = str(files.add(name, secrets[name]))
        if metadata.has("snmpget_path"):
            _configure_snmp_tools(files, metadata, given, environment, secrets=secrets, patience=patience)
        elif metadata.has("ipmitool_path"):
            _configure_ipmitool(files, metadata, given)
        lines = b"".join(_line(name, value) for name, value in given.items())
        yield AgentInput(lines=lines, environment=environment, files=files.opened)


class _FilesInMemory:
    """Files that only our user can open, and that are gone with the stack. opened: by the paths that lead there."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.opened: dict[Path, int] = {}

    @cached_property
    def folder(self) -> Path:
        """A private one, for the links."""
        try:
            return Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="nodewarden-")))
        except OSError as error:
            raise not_started(f"no folder for links to its files (TMPDIR): {error.strerror}") from error

    def add(self, name: str, content: str) -> Path:
        """Where the agent and its tools will find it."""
        handle = os.memfd_create("nodewarden")
        self._stack.callback(os.close, handle)
        os.fchmod(handle, 0o600)
        os.write(handle, content.encode())
        self.opened[self.folder / name] = handle
        return self.folder / name


def _configure_snmp_tools(
    files: _FilesInMemory,
    metadata: AgentMetadata,
    given: dict[str, str],
    environment: dict[str, str],
    *,
    secrets: Mapping[str, str],
    patience: float,
) -> None:
    if {"password", "snmp_priv_passwd"} <= secrets.keys():
        given.setdefault("snmp_sec_level", "authPriv")  # what the agent itself concludes from having both
    lines = [f"{word} {_quoted(given.pop(name))}\n" for name, word in _SNMP_SETTINGS.items() if name in secrets and name in given]
    if "community" in secrets:
        given["community"] = ""  # or the agent's own default would go before ours
    folder = files.add("snmp.conf", "".join(lines)).parent
    (folder / "cert_indexes").mkdir()  # or the tools make it, and say so among their answers
    environment |= {"SNMPCONFPATH": str(folder), "SNMP_PERSISTENT_DIR": str(folder)}
    # A question is asked once more where no answer comes; a command is sent once (S33).
    for tool, retries in (("snmpget", 1), ("snmpwalk", 1), ("snmpset", 0)):
        program = metadata.parameters[f"{tool}_path"].default or tool
        given[f"{tool}_path"] = f"{program} -r {retries} -t {patience:.1f}"


def _configure_ipmitool(files: _FilesInMemory, metadata: AgentMetadata, given: dict[str, str]) -> None:
    for name, value in given.items():
        # The agent puts these into ipmitool's command line as they are.
        if name not in {"password", "username"} and _PLAIN.fullmatch(value) is None:
            raise invalid(f"{metadata.agent}: parameter {name!r}: expected letters, digits and . _ : @ / + -")
    given["lanplus"] = "1"  # the default of most of them is IPMI 1.5, which is not spoken
    if "hexadecimal_kg" in given:
        raise invalid(
            f"{metadata.agent} would put hexadecimal_kg into the arguments of its tool: expected the driver ipmi instead"
        )
    if "password" in given:
        file = files.add("password", given.pop("password") + "\n")
        given["ipmitool_timeout"] = f"{given.get('ipmitool_timeout', '2')} -f {file}"


def _line(name: str, value: str) -> bytes:
    """Agents cut blanks off and take one pair of quotes away."""
    quoted = not value or value != value.strip() or value[0] == value[-1] == '"'
    return (f'{name}="{value}"\n' if quoted else f"{name}={value}\n").encode()


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


# What an agent meant by the way it ended: its state, its plugs, and which kind of failure its words point to.

STATUS = {0: (PowerState.ON, rb"Status: ON"), 2: (PowerState.OFF, rb"Status: OFF")}
"""What a run of `status` must both end with and say. An interpreter that can't open its script ends with 2, which is off, too."""

LONGEST_MESSAGE = 300
LISTED_FOR_PEOPLE = 20

# Only ever a hint (every failure is status 1): they choose between types that all say that nothing was sent.
_HINTS: Mapping[ErrorType, tuple[str, ...]] = {
    ErrorType.UNAUTHORIZED: (
        *("authentication failure", "unknown user", "unsupported security level", "authorizationerror", "unauthorized"),
        *(r"\b401\b", "permission denied", "access denied", "correct privileges"),
        "(invalid|wrong|incorrect) (user|login|password|credential)",
    ),
    ErrorType.INVALID_CONFIG: (
        "you have to (enter|set|use)",
        "valid choice",
        "is not a valid",
        "can't find port",
        "not accessible",
    ),
    ErrorType.UNREACHABLE: (
        *("no response", "timed out", "timeout", "unable to connect", "connection (refused|lost)", "no route", "unreachable"),
        *("resolve", "unknown host", "name or service not known"),
    ),
}


def state_of(ended: Ended) -> PowerState:
    """What a run of `status` says; unknown where its end and its words do not agree."""
    found, said = STATUS.get(ended.returncode, (PowerState.UNKNOWN, b""))
    return found if said in (line.strip() for line in ended.stdout.splitlines()) else PowerState.UNKNOWN


def hint_of(ended: Ended) -> ErrorType:
    """Why a run that commanded nothing failed, as far as its words tell."""
    text = (ended.stderr + ended.stdout).decode(errors="replace").lower()
    return next((kind for kind, words in _HINTS.items() if re.search("|".join(words), text)), ErrorType.TRANSIENT)


def failure_output(ended: Ended, hide: Callable[[str], str]) -> str:
    """What an agent said of its failure, in one line. hide: takes the secrets out, before anything is left out."""
    text = hide((ended.stderr or ended.stdout).decode(errors="replace"))
    lines = [re.sub(r"^[\d-]+ [\d:,]+ (ERROR|WARNING): ", "", line).strip() for line in text.splitlines()]
    worth = [line for line in lines if line and not line.startswith("Please use")]
    # Of a crash the last line says what it was.
    chosen = worth[-1:] if worth and worth[0].startswith("Traceback") else worth[:2]
    return " ".join(chosen)[:LONGEST_MESSAGE] or f"it ended with status {ended.returncode} and said nothing"


def plugs_of(ended: Ended) -> Mapping[str, str] | None:
    """A device's plugs and their other names; None where the agent can't list."""
    lines = ended.stdout.decode(errors="replace").splitlines()
    if ended.returncode != 0 or ended.timed_out or any(line.startswith(("N/A", "NOTICE:")) for line in lines):
        return None
    return {plug: alias for plug, _, alias in (line.partition("\t") for line in lines) if plug}


def is_listed(plug: str, switch: str, plugs: Mapping[str, str]) -> bool:
    """Whether a plug is among those listed, by either name; strips in a chain list it as `switch:plug`. Where plugs have numbers,
    a number is none of the other names: agents take it for the number."""
    wanted = {plug, f"{switch}:{plug}", plug.removeprefix("1:")}
    numbered = plug.rpartition(":")[2].isdecimal() and all(each.rpartition(":")[2].isdecimal() for each in plugs)
    return not wanted.isdisjoint({*plugs} if numbered else {*plugs, *plugs.values()})


def some_of(plugs: Mapping[str, str]) -> str:
    """Plugs as a list for people."""
    return ", ".join(sorted({name for pair in plugs.items() for name in pair if name})[:LISTED_FOR_PEOPLE]) or "none"
