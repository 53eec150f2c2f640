"""What is saved is what is loaded, or it is refused before the commit with its field's name."""

from __future__ import annotations

import datetime
import decimal
import fractions
import math
import pathlib
import sys
import types
import uuid
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from langgraph.types import Send
from pydantic import BaseModel

from state.codec import ExactSerializer
from state.errors import Unserializable

CODEC = ExactSerializer()


class Box(BaseModel):
    class Colour(Enum):
        RED = "red"

    colour: Colour
    size: int = 1


@dataclass
class Point:
    x: int
    y: tuple[int, ...] = ()


def round_trip(value: Any) -> Any:
    return CODEC.loads_typed(CODEC.dumps_typed(value))


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(alphabet=st.characters(codec=None, categories=None)),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet=st.characters(categories=None)), inner),
    max_leaves=20,
)


@given(json_values)
def test_any_plain_value_comes_back_exactly(value: Any) -> None:
    """NUL, surrogates, infinities, integers of any size, at any depth."""
    again = round_trip(value)
    assert again == value
    assert repr(again) == repr(value)


def test_b51_a_nul_comes_back() -> None:
    """A tool's output may hold one."""
    assert round_trip({"output": "a\0b"}) == {"output": "a\0b"}


def test_b52_nan_and_infinity_come_back() -> None:
    """One NaN does not stop a run."""
    again = round_trip({"loss": math.nan, "best": math.inf})
    assert math.isnan(again["loss"])
    assert again["best"] == math.inf


def test_b53_a_lone_surrogate_comes_back() -> None:
    """The name of an undecodable file, as a key and as a value, inside a Send too."""
    assert round_trip({"a\ud800b": ["\udcff"]}) == {"a\ud800b": ["\udcff"]}
    assert round_trip(Send("node", {"path": "\udcff"})) == Send("node", {"path": "\udcff"})


def test_b54_an_enum_nested_in_a_class_comes_back_as_itself() -> None:
    """By its qualified name."""
    assert round_trip(Box(colour=Box.Colour.RED)) == Box(colour=Box.Colour.RED)
    assert round_trip(Box.Colour.RED) is Box.Colour.RED


def test_b56_a_class_that_is_gone_is_a_loud_error() -> None:
    """Never None, never raw data: the sentence says that it needs migration."""
    module = types.ModuleType("a_module_that_goes")
    exec("class Gone:\n    def __init__(self, x): self.x = x\n    def __eq__(self, o): return True", module.__dict__)  # noqa: S102
    sys.modules[module.__name__] = module
    gone = dataclass(type("Gone", (), {"__annotations__": {"x": int}, "__module__": module.__name__}))
    module.Gone = gone  # type: ignore[attr-defined]
    saved = CODEC.dumps_typed({"value": gone(1)})
    del sys.modules[module.__name__]
    with pytest.raises(Unserializable, match="needs migration"):
        CODEC.loads_typed(saved)


@pytest.mark.parametrize(
    "value", [fractions.Fraction(1, 2), 1 + 2j, range(3), pathlib.PurePosixPath("a"), object(), lambda: None]
)
def test_b58_what_has_no_form_is_refused_with_its_field(value: Any) -> None:
    """Before the commit, with the path to the field; a path type is taken if it comes back equal."""
    try:
        assert round_trip({"deep": [{"field": value}]}) == {"deep": [{"field": value}]}
    except Unserializable as error:
        assert "deep.0.field" in str(error)  # noqa: PT017 - either outcome is right, a changed value is not


def test_b61_models_need_no_allow_list() -> None:
    """They come back as themselves, and an unknown type is an error, not a dictionary."""
    assert round_trip({"box": Box(colour=Box.Colour.RED), "point": Point(1, (2,))}) == {
        "box": Box(colour=Box.Colour.RED),
        "point": Point(1, (2,)),
    }


@pytest.mark.parametrize(
    "value",
    [
        (1, (2, [3])),
        {1, 2},
        {1: "a", "b": 2},
        b"\0bytes",
        decimal.Decimal("1.10"),
        uuid.UUID(int=7),
        datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC),
        datetime.timedelta(days=1),
        AIMessage("hi", tool_calls=[{"id": "1", "name": "x", "args": {"a": "\ud800"}}]),
    ],
)
def test_other_values_come_back_equal_and_of_their_type(value: Any) -> None:
    """A tuple stays a tuple, also inside other containers."""
    again = round_trip({"value": value})["value"]
    assert again == value
    assert type(again) is type(value)
