"""A TCP relay in front of a node's server, to delay, reset and blackhole traffic: kernels often lack netem."""

import asyncio
import random
import socket
import struct
import threading
from collections.abc import Coroutine
from typing import Any

CALL_DEADLINE_S = 60.0
CHUNK_BYTES = 65536


class Relay:
    """Listens at (address, port) and forwards every connection to `target`.

    `delay_s` is added in each direction, plus up to `jitter_s`, drawn from `seed`; order is kept, as TCP keeps it.
    `stall` is the share of chunks that are delayed by another `stall_s`: the effect of a lost packet on TCP.
    """

    def __init__(
        self,
        target: tuple[str, int],
        address: str = "127.0.0.1",
        *,
        delay_s: float = 0.0,
        jitter_s: float = 0.0,
        stall: float = 0.0,
        stall_s: float = 0.2,
        seed: int = 0,
    ) -> None:
        self.target = target
        self.address = address
        self.delay_s = delay_s
        self.jitter_s = jitter_s
        self.stall = stall
        self.stall_s = stall_s
        self.connections_seen = 0
        self._random = random.Random(seed)
        self._flows: set[_Flow] = set()
        self._silent = False
        self._listener: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gct-relay", daemon=True)
        self._thread.start()
        self.port = 0
        self._call(self._listen())

    def cut(self) -> None:
        """Reset every connection and refuse new ones, until `resume`."""
        self._call(self._cut())

    def half_open(self) -> None:
        """Forward nothing in either direction without closing anything, as a network failure does, until `resume`."""
        self._call(self._set_silent(True))

    def resume(self) -> None:
        """Undo `cut` and `half_open`; blocked data are delivered now, as TCP would retransmit them."""
        self._call(self._set_silent(False))
        if self._listener is None:
            self._call(self._listen())

    def close(self) -> None:
        if not self._loop.is_closed():
            self._call(self._cut())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(CALL_DEADLINE_S)
            self._loop.close()

    def __enter__(self) -> "Relay":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def hold_back_s(self) -> float:
        """The delay of the next chunk, s."""
        wait = self.delay_s + self._random.uniform(0.0, self.jitter_s)
        return wait + (self.stall_s if self._random.random() < self.stall else 0.0)

    def _call(self, coroutine: Coroutine) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(CALL_DEADLINE_S)

    async def _listen(self) -> None:
        self._listener = await asyncio.start_server(self._accept, self.address, self.port, backlog=128)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def _cut(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        flows = list(self._flows)
        for flow in flows:
            flow.reset()
        await asyncio.gather(*(flow.done.wait() for flow in flows))

    async def _set_silent(self, silent: bool) -> None:
        self._silent = silent
        for flow in self._flows:
            flow.set_silent(silent)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections_seen += 1
        flow = _Flow(self, reader, writer)
        flow.set_silent(self._silent)
        self._flows.add(flow)
        try:
            await flow.run()
        finally:
            self._flows.discard(flow)


class _Flow:
    """One relayed connection: in each direction a reader that stamps chunks and a writer that delays them."""

    def __init__(self, relay: Relay, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._relay = relay
        self._client = (reader, writer)
        self._ends = [writer]
        self._task: asyncio.Task | None = None
        self._may_pass = asyncio.Event()
        self.done = asyncio.Event()

    def set_silent(self, silent: bool) -> None:
        if silent:
            self._may_pass.clear()
        else:
            self._may_pass.set()

    def reset(self) -> None:
        """Reset both sides, as a firewall that lost its connection state."""
        for end in self._ends:
            # struct linger {on, 0 s}: close() then resets instead of finishing.
            end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._task.cancel()

    async def run(self) -> None:
        self._task = asyncio.current_task()
        try:
            server = await asyncio.open_connection(*self._relay.target)
            self._ends.append(server[1])
            await self._pass_both_ways(server)
        except OSError:
            await self._may_pass.wait()  # a blackholed network does not propagate the end of a connection
        except asyncio.CancelledError:
            pass  # cut
        finally:
            for end in self._ends:
                end.transport.abort()
            self.done.set()

    async def _pass_both_ways(self, server: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
        directions = [
            asyncio.create_task(self._pass(self._client[0], server[1])),
            asyncio.create_task(self._pass(server[0], self._client[1])),
        ]
        try:
            finished, _ = await asyncio.wait(directions, return_when=asyncio.FIRST_EXCEPTION)
            for direction in finished:
                direction.result()
        finally:
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(256)
        pour = asyncio.create_task(self._pour(chunks, sink))
        try:
            data = b"-"
            while data:
                data = await source.read(CHUNK_BYTES)
                await chunks.put((asyncio.get_running_loop().time() + self._relay.hold_back_s(), data))
            await pour
        finally:
            pour.cancel()
            await asyncio.gather(pour, return_exceptions=True)

    async def _pour(self, chunks: asyncio.Queue, sink: asyncio.StreamWriter) -> None:
        while True:
            due, data = await chunks.get()
            await asyncio.sleep(due - asyncio.get_running_loop().time())
            await self._may_pass.wait()
            if not data:
                sink.write_eof()
                return
            sink.write(data)
            await sink.drain()
