"""How many targets of a health check may be remediated at once."""

from __future__ import annotations

import pytest

from policy.remediation.ladder import MAX_IN_FLIGHT_ANNOTATION, read_limit
from policy.values.errors import PolicyError
from policy.values.fields import Threshold


def test_the_limit_of_a_health_check_is_an_annotation() -> None:
    assert read_limit({}, "NodeHealthCheck/w") is None
    assert read_limit({MAX_IN_FLIGHT_ANNOTATION: "3"}, "NodeHealthCheck/w") == Threshold(value=3)
    assert read_limit({MAX_IN_FLIGHT_ANNOTATION: "20%"}, "NodeHealthCheck/w") == Threshold(value=20, percent=True)


@pytest.mark.parametrize("text", ["", "-1", "101%", "a few", "9" * 5000])
def test_a_limit_that_cannot_be_used_is_refused_by_name(text: str) -> None:
    with pytest.raises(PolicyError, match=r"NodeHealthCheck/w: metadata\.annotations\.nodewarden\.io/max-in-flight: expected"):
        read_limit({MAX_IN_FLIGHT_ANNOTATION: text}, "NodeHealthCheck/w")
