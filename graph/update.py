"""The border between LangGraph's plain channels and `AgentState`: validated on the way in and on the way out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NewType, TypeVar, cast

from langchain_core.messages import BaseMessage
from pydantic import BaseModel, TypeAdapter, ValidationError

from state.agent_state import AgentState, Tried
from state.errors import InvalidState
from state.failures import Failure
from state.messages import APPEND, flatten

Model = TypeVar("Model", bound=BaseModel)
Update = NewType("Update", dict[str, Any])
"""What a node may return: only `update(...)` makes one, so nothing unchecked is saved."""

_RECORDS = {"messages", "attempts"}
_ADDED = {"failures"}
"""Channels that take in what is written, where the others are replaced by it."""
_FIELDS: Mapping[str, TypeAdapter[Any]] = {
    name: TypeAdapter(cast("Any", info.annotation))
    for name, info in AgentState.model_fields.items()
    if name not in _RECORDS
}


def update(**fields: Any) -> Update:
    """A node's writes, validated by the state's own types and made JSON-plain.

    `messages` takes message objects, `attempts` takes Tried records, `failures` takes Failures: they are appended.

    Raises:
        InvalidState: a value does not fit its field.
    """
    return Update({name: _plain(name, value) for name, value in fields.items()})


def changed(raw: Mapping[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """What of a node's writes says something new: LangGraph stores each write again, changed or not.

    Values are compared as they are written out, for 1 is not true and 0 is not 0.0.
    """
    return {name: value for name, value in written.items() if _is_news(raw, name, value)}


def _is_news(raw: Mapping[str, Any], name: str, value: Any) -> bool:
    if name in _RECORDS:
        return bool(value[APPEND])
    if name in _ADDED:
        return bool(value)
    return name not in raw or repr(raw[name]) != repr(value)


def _plain(name: str, value: Any) -> Any:
    if name in _RECORDS:
        return {APPEND: [_record(item) for item in value]}
    if name not in _FIELDS:
        raise InvalidState(f"the state has no field {name!r}")
    try:
        return _FIELDS[name].dump_python(_FIELDS[name].validate_python(value))
    except ValidationError as error:
        raise InvalidState(_sentence(name, error)) from None


def _record(item: BaseMessage | Tried | Failure) -> dict[str, Any]:
    return flatten(item) if isinstance(item, BaseMessage) else item.model_dump()


def read(raw: Mapping[str, Any]) -> AgentState:
    """The state as nodes see it. Raises InvalidState, naming the field, for a bad value from outside."""
    return _read(AgentState, raw)


def read_as(model: type[Model], raw: Mapping[str, Any]) -> Model:
    """The same for another model that travels through LangGraph."""
    return _read(model, raw)


def _read(model: type[Model], raw: Mapping[str, Any]) -> Model:
    try:
        return model.model_validate(dict(raw))
    except ValidationError as error:
        raise InvalidState(_sentence("", error)) from None


def _sentence(name: str, error: ValidationError) -> str:
    first = error.errors()[0]
    path = ".".join(filter(None, [name, *map(str, first["loc"])]))
    return f"the state's field {path} is not valid ({first['msg']}); the saved steps are kept: correct it and resume"


def new_messages(state: AgentState) -> Sequence[Mapping[str, Any]]:
    """The messages that review has not seen yet."""
    return [record for record in state.messages[state.reviewed :] if isinstance(record, Mapping)]
