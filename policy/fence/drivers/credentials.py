"""What a credential may look like, for each driver (S41).

A value that is written into a ConfigMap is judged when that is read. The worker judges every value at the moment of use;
it alone reads Secrets, files and variables. No text of a problem holds the value (S12).
"""

from __future__ import annotations

import re

from policy.fence.drivers import fence_agents
from policy.fence.drivers.agent_parameters import canonical_name
from policy.fence.drivers.agent_values import problem_of
from policy.fence.drivers.ec2 import ACCESS_KEY, SECRET_KEY, SESSION_TOKEN

_LINE = re.compile(r"[^\x00-\x1f\x7f]*")
# EC2's stand in the headers of requests.
_KEY_ID = re.compile(r"[A-Za-z0-9_-]{0,128}")
_PRINTED = re.compile(r"[!-~]*")
_GRAMMAR = {
    ("ec2", ACCESS_KEY): (_KEY_ID, "an access key's id of letters and digits"),
    ("ec2", SECRET_KEY): (_PRINTED, "printed characters without blanks"),
    ("ec2", SESSION_TOKEN): (_PRINTED, "printed characters without blanks"),
    # Neither protocol has arguments: IPMI sends them as bytes, Redfish in base64. So a dash in front means nothing there.
    ("ipmi", "username"): (_LINE, "a single line without control characters"),
    ("ipmi", "password"): (_LINE, "a single line without control characters"),
    ("redfish", "username"): (_LINE, "a single line without control characters"),
    ("redfish", "password"): (_LINE, "a single line without control characters"),
}


def problem_of_credential(driver: str, name: str, value: str) -> str | None:
    """Why the driver can't be given this credential, None where it can. Google's keys are judged by their driver."""
    if (agent := fence_agents.canonical(driver)) is not None:
        return problem_of(agent, canonical_name(name), value, published=agent in fence_agents.PUBLISHED)
    grammar = _GRAMMAR.get((driver, name))
    if grammar is None or grammar[0].fullmatch(value) is not None:
        return None
    return f"expected {grammar[1]}"
