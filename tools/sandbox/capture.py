"""Output that is kept within a limit: the head and the tail, with the count of what was left out."""

from __future__ import annotations

from collections import deque


class Capture:
    """Takes bytes for ever, keeps the first and the last half of `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self._head_left = self._half = max(1, limit // 2)
        self._head: list[bytes] = []
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._left_out = 0

    def feed(self, data: bytes) -> None:
        if self._head_left:
            head, data = data[: self._head_left], data[self._head_left :]
            self._head.append(head)
            self._head_left -= len(head)
        if data:
            self._tail.append(data[-self._half :])
            self._left_out += max(0, len(data) - self._half)
            self._tail_size += len(self._tail[-1])
            self._trim()

    def _trim(self) -> None:
        while self._tail_size - len(self._tail[0]) >= self._half:
            dropped = len(self._tail.popleft())
            self._tail_size -= dropped
            self._left_out += dropped

    @property
    def truncated(self) -> bool:
        return self._left_out > 0 or self._tail_size > self._half

    @property
    def data(self) -> bytes:
        """What is kept, with a note where something is left out."""
        head, tail = b"".join(self._head), b"".join(self._tail)
        if not self.truncated:
            return head + tail
        left_out = self._left_out + len(tail) - self._half
        return head + f"\n… {left_out:,} bytes left out …\n".encode() + tail[-self._half :]
