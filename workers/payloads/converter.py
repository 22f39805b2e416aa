"""The data converter: Temporal's for pydantic, with one set of schemas for a process, and terse between workflows and activities.

The SDK makes a converter anew for each workflow instance, and with it every schema that its payloads need: some 20 ms of
a core for an episode, twice that in the sandbox. What a type looks like is the same for all of them.

What goes into an activity and comes out of it leaves out each field that has its default: most have, and they would be half of an
episode's history. So the default of a wire type never changes: a stored history would be read with another one. What people and
programs write and read (inputs, results, signals, queries, updates) is told in full.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass, replace
from functools import cache, lru_cache
from typing import Any, Self

from pydantic import TypeAdapter
from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import PydanticJSONPlainPayloadConverter
from temporalio.converter import (
    ActivitySerializationContext,
    CompositePayloadConverter,
    DataConverter,
    DefaultFailureConverterWithEncodedAttributes,
    DefaultPayloadConverter,
    EncodingPayloadConverter,
    JSONPlainPayloadConverter,
    SerializationContext,
)

from policy.values import display_text
from workers.payloads.encryption import ENCODING, Encryption, unreadable

_adapters: dict[Any, TypeAdapter[Any]] = {}
_making = threading.Lock()


def _adapter(kind: Any) -> TypeAdapter[Any]:
    """A pure function of the type; our wire types are all hashable. One thread makes it and the others wait: that of an episode's
    state takes 45 ms of a core, fifty episodes that a worker takes over at once would take two seconds if each made its own, and
    after two the SDK gives workflow tasks up."""
    if (found := _adapters.get(kind)) is None:
        with _making:
            if (found := _adapters.get(kind)) is None:
                found = _adapters[kind] = TypeAdapter(kind)
    return found


class SharedSchemas(PydanticJSONPlainPayloadConverter):
    """JSON by pydantic. terse: without the fields that have their defaults."""

    def __init__(self, *, terse: bool = False) -> None:
        super().__init__()
        self._terse = terse

    def to_payload(self, value: Any) -> Payload | None:
        """The value as JSON. Raises pydantic's PydanticSerializationError for what JSON can't say."""
        if not (self._terse and is_dataclass(value)):
            return super().to_payload(value)
        kind: Any = type(value)
        content = _adapter(kind).dump_json(value, exclude_defaults=True)
        return Payload(metadata={"encoding": self.encoding.encode()}, data=content)

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        """The value, as the type that is asked for. Raises pydantic's ValidationError where it is none."""
        return _adapter(Any if type_hint is None else type_hint).validate_json(payload.data)


class Cleaned(SharedSchemas):
    """The same, for what people are shown: what others have written in it is cleaned as it is read (S50)."""

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        if b"\\" in payload.data or not payload.data.isascii():
            read = json.dumps(display_text.cleaned(json.loads(payload.data)))
            payload = Payload(metadata=payload.metadata, data=read.encode())
        return super().from_payload(payload, type_hint)


class Encrypted(EncodingPayloadConverter):
    """What comes to be read although it is encrypted: where there are no keys."""

    @property
    def encoding(self) -> str:
        return ENCODING

    def to_payload(self, value: Any) -> Payload | None:  # noqa: ARG002 - none is made here
        return None

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:  # noqa: ARG002 - as above
        """Raises SettingsError that says what is missing."""
        raise unreadable(payload, "none is known here")


class PayloadConverter(CompositePayloadConverter):
    """The SDK's converters, with ours for JSON."""

    schemas: type[SharedSchemas] = SharedSchemas

    def __init__(self, *, terse: bool = False) -> None:
        """The SDK makes one twice for each workflow task: what it consists of is shared."""
        self.converters = _encodings(self.schemas, terse=terse)

    def with_context(self, context: SerializationContext) -> Self:
        """The one for payloads of activities, or of everything else; neither is made anew."""
        made: Self = _converter(type(self), terse=isinstance(context, ActivitySerializationContext))
        return made


class PeoplesConverter(PayloadConverter):
    """The same for what people are shown."""

    schemas = Cleaned


@cache
def _encodings(schemas: type[SharedSchemas], *, terse: bool) -> Mapping[bytes, EncodingPayloadConverter]:
    usual = DefaultPayloadConverter.default_encoding_payload_converters
    ours = schemas(terse=terse)
    all_of_them = (*(ours if isinstance(each, JSONPlainPayloadConverter) else each for each in usual), Encrypted())
    return {each.encoding.encode(): each for each in all_of_them}


@lru_cache(maxsize=4)
def _converter(kind: type[Any], *, terse: bool) -> Any:
    return kind(terse=terse)


@dataclass(frozen=True)
class SharedConverter(DataConverter):
    """One for activities and one for everything else. The SDK asks for one in its context several times for each payload, and
    makes each of them anew: some 15 ms of a core for an episode. Nothing in ours knows more of a context than which it is."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "_in_context", {})

    def with_context(self, context: SerializationContext) -> Self:
        known: dict[bool, Self] = vars(self)["_in_context"]
        of_an_activity = isinstance(context, ActivitySerializationContext)
        if of_an_activity not in known:
            known[of_an_activity] = super().with_context(context)
        return known[of_an_activity]


DATA_CONVERTER = SharedConverter(payload_converter_class=PayloadConverter)


def for_people(converter: DataConverter) -> DataConverter:
    """The same, for a process that shows what it reads."""
    return replace(converter, payload_converter_class=PeoplesConverter)


def converter_with(encryption: Encryption | None) -> DataConverter:
    """The same, encrypting, None: without. Of a failure its message and its stack are encrypted as well: they name nodes."""
    if encryption is None:
        return DATA_CONVERTER
    return SharedConverter(
        payload_converter_class=PayloadConverter,
        payload_codec=encryption,
        failure_converter_class=DefaultFailureConverterWithEncodedAttributes,
    )
