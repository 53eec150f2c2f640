"""Messages as they are stored: flat dictionaries, read back through the message classes, in one neutral form.

`model_dump` with `convert_to_messages` loses `invalid_tool_calls` and usage; here every field comes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from pydantic import TypeAdapter, ValidationError

from state.errors import Unserializable

APPEND = "append"
"""The key of a write to a list of records. LangGraph turns message dictionaries in a bare list into message objects
on the way to a DeltaChannel, and loses fields doing so; it leaves a dictionary of this shape alone."""

_CLASSES: Mapping[str, type[BaseMessage]] = {
    "system": SystemMessage,
    "human": HumanMessage,
    "ai": AIMessage,
    "tool": ToolMessage,
}
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    kind: {
        name: field.get_default(call_default_factory=True)
        for name, field in cls.model_fields.items()
        if not field.is_required()
    }
    for kind, cls in _CLASSES.items()
}
_PLAIN = TypeAdapter(dict[str, Any])


def flatten(message: BaseMessage) -> dict[str, Any]:
    """The message as a flat dictionary without its empty fields. Raises Unserializable for a kind that is not kept."""
    if message.type not in _CLASSES:
        raise Unserializable(f"a message of type {message.type!r} is not kept in a run's history")
    fields = message.model_dump()
    defaults = _DEFAULTS[message.type]
    return {name: value for name, value in fields.items() if name == "type" or value != defaults.get(name, ...)}


def revive(record: Mapping[str, Any]) -> BaseMessage:
    """The message of a flat dictionary. Raises ValueError where it is none."""
    cls = _CLASSES.get(str(record.get("type")))
    if cls is None:
        raise ValueError(f"a message has the unknown type {record.get('type')!r}")
    try:
        return cls.model_validate(dict(record))
    except ValidationError as error:
        raise ValueError(f"a message of type {record['type']} is not valid: {error.errors()[0]['msg']}") from None


def append_records(present: Sequence[Any] | None, writes: Sequence[Any]) -> list[Any]:
    """The reducer of record lists: appends, and replaces the record that has the same id.

    Deterministic and associative over batches, as DeltaChannel demands. A write is `{"append": [...]}`; a bare list
    or message object, as Studio's state editor and `update_state` send, is taken too.
    """
    records = list(present or ())
    places: dict[str, int] | None = None
    for record in (record for write in writes for record in _records(write)):
        identifier = record.get("id") if isinstance(record, dict) else None
        if identifier is None:
            records.append(record)
            continue
        if places is None:
            places = {
                known["id"]: place for place, known in enumerate(records) if isinstance(known, dict) and "id" in known
            }
        if identifier in places:
            records[places[identifier]] = record
        else:
            places[identifier] = len(records)
            records.append(record)
    return records


def _records(write: Any) -> Iterable[Any]:
    items = write[APPEND] if isinstance(write, Mapping) and set(write) == {APPEND} else write
    for item in items if isinstance(items, (list, tuple)) else [items]:
        yield flatten(item) if isinstance(item, BaseMessage) else item
