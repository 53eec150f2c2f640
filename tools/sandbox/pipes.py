"""Pipes and files between this process and a child, without blocking the event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tools.sandbox.waiting import in_thread

LINE_LIMIT = 64 * 1024 * 1024
"""Bytes; one line of a long-lived child's answer."""


class End:
    """The child's end of a pipe or a file: closed once it has been handed over, or at the latest with its context."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


@asynccontextmanager
async def reading() -> AsyncIterator[tuple[asyncio.StreamReader, End]]:
    """A reader here, and the end that the child writes to."""
    here, there = os.pipe()
    end = End(there)
    try:
        reader, transport = await read_pipe(here)
        try:
            yield reader, end
        finally:
            transport.close()
    finally:
        end.close()


async def read_pipe(descriptor: int) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    """Read a pipe without blocking; the transport owns the descriptor."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LINE_LIMIT)
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(descriptor, "rb", 0))
    return reader, transport


@asynccontextmanager
async def writing() -> AsyncIterator[tuple[End, asyncio.StreamWriter]]:
    """The end that the child reads from, and a writer here."""
    there, here = os.pipe()
    end = End(there)
    loop = asyncio.get_running_loop()
    protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
    try:
        transport, _ = await loop.connect_write_pipe(lambda: protocol, os.fdopen(here, "wb", 0))
        try:
            yield end, asyncio.StreamWriter(transport, protocol, None, loop)
        finally:
            if not transport.is_closing():
                transport.abort()
    finally:
        end.close()


@asynccontextmanager
async def given(data: bytes) -> AsyncIterator[End]:
    """The child's input as a file, so that it may read it or not."""
    end = await in_thread(lambda: End(memory_file(data)), undo=End.close)
    try:
        yield end
    finally:
        end.close()


def memory_file(data: bytes) -> int:
    """A descriptor that reads `data` from its beginning."""
    descriptor = os.memfd_create("devfix", os.MFD_CLOEXEC)
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
