"""Values as the checkpoints keep them: in fewer bytes, and exactly the same."""

from __future__ import annotations

from typing import Any

import pytest

from state.codec import COMPRESSED, TAG, CompactSerializer, ExactSerializer
from state.errors import Unserializable

LONG = "the quick brown fox " * 200


@pytest.mark.parametrize("value", [LONG, [LONG, "\ud800", "\0", 1.5], {"text": LONG, "none": None}])
def test_long_values_are_stored_in_fewer_bytes_and_come_back_exactly(value: Any) -> None:
    """Text that no other form keeps included."""
    tag, stored = CompactSerializer().dumps_typed(value)
    assert tag == COMPRESSED
    assert len(stored) < len(ExactSerializer().dumps_typed(value)[1]) / 4
    assert CompactSerializer().loads_typed((tag, stored)) == value


@pytest.mark.parametrize("value", ["short", None, b"bytes" * 1000, 7])
def test_what_gains_nothing_is_stored_as_it_is(value: Any) -> None:
    """Short values, and bytes."""
    assert CompactSerializer().dumps_typed(value) == ExactSerializer().dumps_typed(value)


def test_what_was_stored_before_can_be_read() -> None:
    """A run that was begun by an older version goes on."""
    stored = ExactSerializer().dumps_typed(LONG)
    assert stored[0] == TAG
    assert CompactSerializer().loads_typed(stored) == LONG


@pytest.mark.parametrize("value", [{"text": LONG}, {"text": "short"}, {}, [LONG], 40, LONG])
def test_a_column_without_a_tag_takes_compressed_values_and_others(value: Any) -> None:
    """The first byte of a compressed one is 40 in msgpack, and then nothing follows."""
    codec = CompactSerializer()
    assert codec.loads(codec.dumps(value)) == codec.loads(ExactSerializer().dumps_typed(value)[1]) == value


def test_damaged_bytes_are_refused_in_a_sentence() -> None:
    stored = CompactSerializer().dumps({"text": LONG})
    with pytest.raises(Unserializable, match="damaged"):
        CompactSerializer().loads(stored[: len(stored) // 2])
    with pytest.raises(Unserializable, match="the receipt of x can't be read"):
        CompactSerializer().loads(ExactSerializer().dumps_typed({"text": LONG})[1][:100], "the receipt of x")
