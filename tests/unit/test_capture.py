"""Output that is kept within its limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.sandbox.capture import Capture


def text(capture: Capture) -> str:
    return capture.data.decode(errors="replace")


def captured(limit: int, *pieces: bytes) -> Capture:
    capture = Capture(limit)
    for piece in pieces:
        capture.feed(piece)
    return capture


def test_output_within_the_limit_is_whole() -> None:
    """Nothing is marked or lost."""
    capture = captured(10, b"hello", b"world")
    assert (text(capture), capture.truncated) == ("helloworld", False)


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_head_and_tail_are_kept_whatever_the_pieces(size: int) -> None:
    """The middle goes, with the count of what went."""
    data = b"A" * 50 + b"x" * 900 + b"Z" * 50
    capture = captured(100, *(data[at : at + size] for at in range(0, len(data), size)))
    assert text(capture) == "A" * 50 + "\n… 900 bytes left out …\n" + "Z" * 50
    assert capture.truncated


@given(st.lists(st.binary(max_size=40)), st.integers(1, 60))
def test_no_more_than_the_limit_is_held(pieces: list[bytes], limit: int) -> None:
    """Whatever comes, head and tail are the true head and tail."""
    data = b"".join(pieces)
    capture = captured(limit, *pieces)
    half = max(1, limit // 2)
    assert capture.truncated == (len(data) > 2 * half)
    if capture.truncated:
        assert capture.data.startswith(data[:half])
        assert capture.data.endswith(data[-half:])
    else:
        assert capture.data == data
