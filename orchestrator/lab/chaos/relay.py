"""A relay between two processes that cuts, holds back, loses answers, or says things twice.

TCP carries every byte once and in order or breaks; so a lost message is a broken connection, before or after the other
side has acted on it, a late one is held back, and a doubled one is sent again on a connection of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from enum import Enum
from types import TracebackType
from typing import Any, Self

_CHUNK_BYTES = 1 << 16
_TICK_S = 0.02
Address = tuple[str, int]


class Mode(Enum):
    """The treatment of what a relay is given."""

    CARRY = "carry"
    CUT = "cut"
    """Break every connection, and accept none."""
    LATE = "late"
    """Hold everything back until the mode changes; then send it."""
    LOSE_ANSWERS = "lose answers"
    """Deliver what is asked, throw the answers away, and break the connection."""
    TWICE = "twice"
    """Deliver what is asked a second time, on a connection of its own whose answers nobody reads."""


class Relays:
    """Relays in one thread, within a `with` statement."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._open: list[Relay] = []
        self._thread = threading.Thread(target=self._loop.run_forever, name="relays", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for relay in self._open:
            self._do_in_loop(relay.close())
        self._do_in_loop(self._cancel_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def open(self, at: Address, to: Address) -> Relay:
        """Listen at one address and connect to another for each connection."""
        relay = Relay(at, to)
        self._do_in_loop(relay.listen())
        self._open.append(relay)
        return relay

    def set(self, relay: Relay, mode: Mode) -> None:
        """Change what a relay does."""
        self._do_in_loop(relay.change(mode))

    def _do_in_loop(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10.0)

    async def _cancel_tasks(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Relay:
    """One relay; `Relays` makes and changes it."""

    def __init__(self, at: Address, to: Address) -> None:
        self.at = at
        self._to = to
        self._mode = Mode.CARRY
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def listen(self) -> None:
        """Start to accept connections."""
        self._server = await asyncio.start_server(self._serve_connection, *self.at)

    async def close(self) -> None:
        """Accept no more, and break every connection."""
        if self._server is not None:
            self._server.close()
        self._break_connections()

    async def change(self, mode: Mode) -> None:
        """Treat connections by this mode from now on."""
        self._mode = mode
        if mode is Mode.CUT:
            self._break_connections()

    def _break_connections(self) -> None:
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            if self._mode is Mode.CUT:
                return
            far_reader, far_writer = await asyncio.open_connection(*self._to)
            self._writers.add(far_writer)
            try:
                await self._carry_connection(reader, writer, far_reader, far_writer)
            finally:
                self._drop_connection(far_writer)
        except OSError:
            return
        finally:
            self._drop_connection(writer)

    def _drop_connection(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        with suppress(RuntimeError):
            writer.close()

    async def _carry_connection(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        far_reader: asyncio.StreamReader,
        far_writer: asyncio.StreamWriter,
    ) -> None:
        ways = (
            asyncio.create_task(self._carry_requests(reader, far_writer)),
            asyncio.create_task(self._carry_answers(far_reader, writer)),
        )
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _carry_requests(self, reader: asyncio.StreamReader, far: asyncio.StreamWriter) -> None:
        twin: asyncio.StreamWriter | None = None
        try:
            while chunk := await reader.read(_CHUNK_BYTES):
                await self._wait_while_late()
                far.write(chunk)
                await far.drain()
                if self._mode is Mode.TWICE:
                    twin = twin or (await asyncio.open_connection(*self._to))[1]
                    twin.write(chunk)
                    await twin.drain()
        finally:
            if twin is not None:
                twin.close()

    async def _carry_answers(self, far: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await far.read(_CHUNK_BYTES):
            await self._wait_while_late()
            if self._mode is Mode.LOSE_ANSWERS:
                return
            writer.write(chunk)
            await writer.drain()

    async def _wait_while_late(self) -> None:
        while self._mode is Mode.LATE:
            await asyncio.sleep(_TICK_S)
