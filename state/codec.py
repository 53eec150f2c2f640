"""How values are stored: what is saved is what is loaded, or it is refused before the commit.

LangGraph's own serializer replaces lone surrogates, forgets a class that is nested in another, and answers a
value that it can't rebuild with its raw data (langgraph #6718, #6970, #7695, #8185). This one keeps text, numbers,
tuples, enumerations, dataclasses and Pydantic models exactly, leaves the other types that LangGraph knows to
LangGraph's serializer, and compares what came of it.
"""

from __future__ import annotations

import dataclasses
import importlib
import threading
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, cast

import ormsgpack
import zstandard
from langchain_core.messages import BaseMessage, message_to_dict, messages_from_dict
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Interrupt, Send
from pydantic import BaseModel
from zstandard import ZstdCompressor, ZstdDecompressor

from state.errors import Unserializable

TAG = "devfix"
COMPRESSED = "devfix+zstd"
_WORTH_COMPRESSING = 512
_FRAME = zstandard.FRAME_HEADER
"""What each zstd frame begins with."""
MOST_BYTES = 64 * 2**20
"""Of one value. Where PostgreSQL takes no more, the connection breaks as if the database were away."""

_TEXT, _INTEGER, _TUPLE, _SEND, _INTERRUPT, _SNAPSHOT, _ENUM, _MODEL, _DATACLASS, _MESSAGE, _FOREIGN = range(11)
_MAPPING, _ERROR = 11, 12

_EXACT = (
    ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_UUID
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
)
_INT64 = range(-(2**63), 2**64)


class ExactSerializer(SerializerProtocol):
    """LangGraph's serializer protocol with a promise: equal when loaded, or `Unserializable` when saved."""

    def __init__(self) -> None:
        self._foreign = JsonPlusSerializer(allowed_msgpack_modules=None)
        self._makers: Mapping[int, Callable[[Any], Any]] = {
            _INTEGER: int,
            _TUPLE: tuple,
            _SEND: lambda parts: Send(parts[0], parts[1], timeout=parts[2]),
            _INTERRUPT: lambda parts: Interrupt(parts[0], parts[1], response_schema=parts[2]),
            _SNAPSHOT: _DeltaSnapshot,
            _MESSAGE: lambda content: messages_from_dict([content])[0],
            _FOREIGN: lambda typed: self._foreign.loads_typed((typed[0], typed[1])),
            _MAPPING: dict,
            _ERROR: str,
        }

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Raises Unserializable, naming the type, for a value that would not come back equal, and for one that is far
        too large."""
        if obj is None:
            return "null", b""
        if type(obj) is bytes:
            return "bytes", obj
        payload = self._pack(obj)
        if len(payload) > MOST_BYTES:
            raise Unserializable(f"{_largest(obj)}, and {MOST_BYTES} is the most that is kept of one value")
        return TAG, payload

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Raises Unserializable where a class that the value needs is gone or has changed."""
        tag, payload = data
        return self._unpack(payload) if tag == TAG else self._foreign.loads_typed(data)

    def _pack(self, value: Any) -> bytes:
        try:
            return ormsgpack.packb(value, default=self._extend, option=_EXACT)
        except ormsgpack.MsgpackEncodeError:
            return self._pack_escaped(value)

    def _pack_escaped(self, value: Any) -> bytes:
        """Again, with the text, numbers and keys that msgpack has no form for wrapped first."""
        try:
            return ormsgpack.packb(self._escape(value), default=self._extend, option=_EXACT)
        except ormsgpack.MsgpackEncodeError as error:
            where, culprit = self._locate(value)
            raise Unserializable(f"{where or 'the value'} is {_name(culprit)}: {_reason(error)}") from None

    def _locate(self, value: Any) -> tuple[str, Any]:
        """The path to the first part that can't be stored, and that part."""
        items = value.items() if type(value) is dict else enumerate(value) if type(value) is list else ()
        for key, item in items:
            try:
                ormsgpack.packb(self._escape(item), default=self._extend, option=_EXACT)
            except (ormsgpack.MsgpackEncodeError, Unserializable):
                deeper, culprit = self._locate(item)
                return ".".join(filter(None, [str(key), deeper])), culprit
        return "", value

    def _escape(self, value: Any) -> Any:
        kind = type(value)
        if kind is str:
            return value if _is_utf8(value) else _Escaped(_TEXT, value.encode("utf-8", "surrogatepass"))
        if kind is int:
            return value if value in _INT64 else _Escaped(_INTEGER, ormsgpack.packb(str(value)))
        if kind is list:
            return [self._escape(item) for item in value]
        if kind is dict:
            if all(type(key) is str and _is_utf8(key) for key in value):
                return {key: self._escape(item) for key, item in value.items()}
            return _Escaped(_MAPPING, self._pack([list(pair) for pair in value.items()]))
        return value

    def _unpack(self, payload: bytes) -> Any:
        troubles: list[Unserializable] = []

        def revive(code: int, data: bytes) -> Any:
            try:
                return self._revive(code, data)
            except Unserializable as trouble:
                troubles.append(trouble)
                raise

        try:
            return ormsgpack.unpackb(payload, ext_hook=revive)
        except ValueError as error:  # msgpack has its own words for whatever a hook raises
            raise (troubles[0] if troubles else error) from None

    def _extend(self, value: Any) -> ormsgpack.Ext:
        match value:
            case _Escaped(code=code, payload=payload):
                return ormsgpack.Ext(code, payload)
            case tuple() if type(value) is tuple:
                return ormsgpack.Ext(_TUPLE, self._pack(list(value)))
            case Send():
                return ormsgpack.Ext(_SEND, self._pack([value.node, value.arg, value.timeout]))
            case Interrupt():
                return ormsgpack.Ext(_INTERRUPT, self._pack([value.value, value.id, value.response_schema]))
            case BaseException():  # what LangGraph keeps of a failed task: for people to read
                return ormsgpack.Ext(_ERROR, self._pack(repr(value)))
            case _DeltaSnapshot():
                return ormsgpack.Ext(_SNAPSHOT, self._pack(value.value))
        return self._verified(value)

    def _verified(self, value: Any) -> ormsgpack.Ext:
        code, payload = self._describe(value)
        again = self._revive(code, payload)
        if type(again) is not type(value) or again != value:
            raise Unserializable("it would not come back equal; use a plain JSON value instead")
        return ormsgpack.Ext(code, payload)

    def _describe(self, value: Any) -> tuple[int, bytes]:
        if isinstance(value, Enum):
            return _ENUM, self._pack([*_address(value), value.value])
        if isinstance(value, BaseMessage):
            return _MESSAGE, self._pack(message_to_dict(value))
        if isinstance(value, BaseModel):
            return _MODEL, self._pack([*_address(value), dict(value)])
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
            return _DATACLASS, self._pack([*_address(value), fields])
        return _FOREIGN, self._describe_foreign(value)

    def _describe_foreign(self, value: Any) -> bytes:
        try:
            return self._pack(list(self._foreign.dumps_typed(value)))
        except (TypeError, ormsgpack.MsgpackEncodeError):
            raise Unserializable("no form is known for it; use a plain JSON value instead") from None

    def _revive(self, code: int, payload: bytes) -> Any:
        if code == _TEXT:
            return payload.decode("utf-8", "surrogatepass")
        value = self._unpack(payload)
        if code in (_ENUM, _MODEL, _DATACLASS):
            return _rebuild(code, value)
        return self._makers[code](value)


class CompactSerializer(ExactSerializer):
    """The same promise in fewer bytes: what is longer than a few hundred of them is stored compressed (zstd).

    A value of 2 KB is just too long for a row of a PostgreSQL page and takes 3.3 KB beside it; compressed (20 µs, and
    7 µs to read) it fits. Not for digests: equal values may be compressed to other bytes by another version.
    """

    def __init__(self) -> None:
        super().__init__()
        self._threads = threading.local()  # zstd's contexts are quick to use again, and one thread's alone

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        tag, payload = super().dumps_typed(obj)
        if tag != TAG or len(payload) < _WORTH_COMPRESSING:
            return tag, payload
        compressed = self._zstd[0].compress(payload)
        return (COMPRESSED, compressed) if len(compressed) < len(payload) else (tag, payload)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return super().loads_typed((TAG, self.decompressed(data)) if data[0] == COMPRESSED else data)

    def decompressed(self, data: tuple[str, bytes]) -> bytes:
        """The bytes of a stored value before they were compressed. Raises Unserializable where they are damaged."""
        tag, payload = data
        try:
            return self._zstd[1].decompress(payload) if tag == COMPRESSED else payload
        except zstandard.ZstdError as error:
            raise Unserializable(f"what is stored is damaged ({error}); nothing was changed") from None

    def dumps(self, value: Any) -> bytes:
        """For a column that has no tag beside it. Raises Unserializable."""
        return self.dumps_typed(value)[1]

    def loads(self, payload: bytes, of: str = "a value") -> Any:
        """What `dumps` made, or an ExactSerializer. Raises Unserializable, which says what it is a part `of`."""
        try:
            return self.loads_typed((tag_of(payload), payload))
        except (Unserializable, ValueError) as error:
            raise Unserializable(f"{of} can't be read: {error}") from None

    @property
    def _zstd(self) -> tuple[ZstdCompressor, ZstdDecompressor]:
        contexts: tuple[ZstdCompressor, ZstdDecompressor] | None = getattr(self._threads, "contexts", None)
        if contexts is None:
            contexts = self._threads.contexts = ZstdCompressor(level=3), ZstdDecompressor()
        return contexts


def tag_of(payload: bytes) -> str:
    """The tag of stored bytes by themselves: msgpack takes the first byte of a zstd frame for a whole small number."""
    return COMPRESSED if payload.startswith(_FRAME) else TAG


@dataclasses.dataclass(frozen=True)
class _Escaped:
    code: int
    payload: bytes


def _largest(value: Any, path: str = "") -> str:
    """Where in a value most of it stands, and how much that is."""
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    sizes = {str(name): (len(ormsgpack.packb(each, default=repr, option=_EXACT)), each) for name, each in items}
    whole = sum(size for size, _ in sizes.values())
    name = max(sizes, key=lambda each: sizes[each][0], default="")
    if name and 2 * sizes[name][0] > whole:
        return _largest(sizes[name][1], f"{path}.{name}" if path else name)
    size = whole or len(ormsgpack.packb(value, default=repr, option=_EXACT))
    return f"{path or 'the value'} takes {size} bytes"


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _address(value: Any) -> tuple[str, str]:
    return type(value).__module__, type(value).__qualname__


def _name(value: Any) -> str:
    return ".".join(("a value of type " + type(value).__module__, type(value).__qualname__))


def _reason(error: BaseException) -> str:
    cause = error.__cause__ or error.__context__
    return str(cause) if isinstance(cause, Unserializable) else "use a plain JSON value instead"


def _find(module: str, qualname: str) -> Any:
    """The class at this address. Raises Unserializable where this version of the code has none."""
    try:
        found: Any = importlib.import_module(module)
        for part in qualname.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        raise Unserializable(
            f"a saved value is a {module}.{qualname}, which this version of the code does not have: it needs "
            "migration; nothing was changed"
        ) from None
    return found


def _rebuild(code: int, value: Sequence[Any]) -> Any:
    module, qualname, content = value
    kind = _find(module, qualname)
    try:
        if code == _MODEL:
            return cast("type[BaseModel]", kind).model_validate(content)
        return kind(**content) if code == _DATACLASS else kind(content)
    except (TypeError, ValueError) as error:
        raise Unserializable(
            f"a saved {module}.{qualname} does not fit this version of the class ({error}): it needs migration; "
            "nothing was changed"
        ) from None
