"""S12: whatever is written where, no secret comes out of a configuration again. Not in what is shown, nor in what is refused."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from policy.fence.config import shown_config
from policy.fence.plan_compiler import compile_config
from policy.values.errors import PolicyError
from tests.policy.fence.builders import config, lines, node, read

CANARY = "c4n4ry"

SECRET_KEYS = (
    *("password", "passwd", "username", "login", "snmp-priv-passwd", "snmp_priv_passwd", "secret-access-key", "session_token"),
    *("password_script", "api_token", "community", "identity_file", "service-account-json"),
)
AGENTS = (
    "ipmi",
    "redfish",
    "ec2",
    "gce",
    "fence_gce",
    "fence_ipmilan",
    "fence_brocade",
    "fence_eaton_snmp",
    "fence_aws",
    "ssh",
    "cordon",
)
PLAIN_KEYS = ("ip", "plug", "port", "action", "delay", "zone", "project", "region", "power-wait", "node_name", "script_path")
PLAIN_VALUES = ("10.0.0.1", "7", "off", "reboot", "n1", "us-central1-b", "{{ .NodeName }}", "[NODE_NAME]", "", "file:x", "env:X")

SECRET_VALUES = st.builds(
    lambda before, after: f"{before}{CANARY}{after}",
    st.sampled_from(("", "a=", "=", "{{ .NodeName }}", "{{", "file", "file:", "env:", "[NODE_NAME]", '"', "#")),
    st.sampled_from(("", "=b=", "}}", '"', " x")),
)
SECRETS = st.dictionaries(st.sampled_from(SECRET_KEYS), SECRET_VALUES, max_size=3)
PLAIN = st.dictionaries(st.sampled_from(PLAIN_KEYS), st.sampled_from(PLAIN_VALUES), max_size=5)
HEAD = st.fixed_dictionaries(
    {}, optional={"agent_name": st.sampled_from(AGENTS), "template": st.sampled_from(("bmc", "nowhere"))}
)
USABLE = st.sampled_from(
    (
        {"agent_name": "ipmi", "ip": "10.0.0.1", "action": "reboot", "password": CANARY, "username": f"{CANARY}=x"},
        {"agent_name": "fence_eaton_snmp", "ip": "10.0.0.1", "plug": "7", "action": "reboot", "snmp-priv-passwd": CANARY},
        {"agent_name": "fence-gce", "zone": "zone-1", "project": "p-1", "action": "reboot", "service-account-json": CANARY},
        {"template": "bmc", "ip": "10.0.0.1", "action": "reboot"},
    )
)
"""Methods that can be read wholly, so that what a plan carries is looked through, too."""
METHOD = st.one_of(
    st.builds(lambda parts: lines(**parts), USABLE),
    st.builds(lambda *parts: lines(**{k: v for part in parts for k, v in part.items()}), HEAD, PLAIN, SECRETS),
)
BROKEN = st.sampled_from(("", "\nnonsense", "\npassword", "\n=x", f"\npassword={CANARY}\npassword={CANARY}"))


@settings(max_examples=120, deadline=None)
@given(
    text=METHOD,
    template=METHOD,
    common=SECRETS,
    broken=BROKEN,
    keys=st.sets(st.sampled_from(("password", "username", "ip", "token")), max_size=2),
    step=st.sampled_from(("isolation", "power", "recovery")),
)
def test_no_value_of_a_credential_is_ever_shown(
    *, text: str, template: str, common: dict[str, str], broken: str, keys: set[str], step: str
) -> None:
    """S12. Files and variables of a worker are named, which is what they are for: their names hold no canary but where the value
    itself is one."""
    listed = {"isolation": "", "power": "off on", "recovery": ""} | {step: "m"}
    objects = {
        "fence-config-n1": config(listed["isolation"], listed["power"], listed["recovery"], m=text + broken),
        "fence-template-bmc": {"template.properties": template},
        "fence-cluster-config": {"config.properties": lines(**common)},
    }
    found = read(objects, {"secret-fence-method-m-n1": tuple(sorted(keys))}, of=node(provider_id="gce://p-1/zone-1/n1"))
    shown = repr(shown_config(found)) + repr(found)
    try:
        shown += repr(compile_config(found))
    except PolicyError as error:
        shown += str(error)
    references = ("file:", "env:")
    if not any(prefix + CANARY in text + template + lines(**common) for prefix in references):
        assert CANARY not in shown
