"""The data converter: Temporal's for pydantic, with one set of schemas for a whole process.

The SDK makes a converter anew for each workflow instance, and with it every schema that its payloads need: some 20 ms of
a core for an episode, twice that in the sandbox. What a type looks like is the same for all of them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter
from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import PydanticJSONPlainPayloadConverter
from temporalio.converter import CompositePayloadConverter, DataConverter, DefaultPayloadConverter, JSONPlainPayloadConverter

_adapter = lru_cache(maxsize=1024)(TypeAdapter[Any])
"""A pure function of the type. Our wire types are all hashable."""


class SharedSchemas(PydanticJSONPlainPayloadConverter):
    """JSON by pydantic."""

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        """The value, as the type that is asked for. Raises pydantic's ValidationError where it is none."""
        return _adapter(Any if type_hint is None else type_hint).validate_json(payload.data)


class PayloadConverter(CompositePayloadConverter):
    """The SDK's converters, with ours for JSON."""

    def __init__(self) -> None:
        usual = DefaultPayloadConverter.default_encoding_payload_converters
        super().__init__(*(SharedSchemas() if isinstance(each, JSONPlainPayloadConverter) else each for each in usual))


DATA_CONVERTER = DataConverter(payload_converter_class=PayloadConverter)
