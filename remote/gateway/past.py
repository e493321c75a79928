"""The past of one node, put into its stream behind the agent's hello: first what the disk has, then the agent goes on.

A line {"from": agent} says whose records follow. The files are removed once the console has acknowledged a record that
was sent after them: it stores in order.
"""

import re

from ..agent import wire
from . import keeper, spool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from ..samplers.base import Fields

_HELLO = re.compile(rb'\{"gconsole":\{[^\n]*\}\n')
_RECORD = re.compile(rb'(?:^|\n)(?:\{"kind":"[a-z_]{1,32}","seq":|\[[0-9]{1,3},)([0-9]{1,18}),')  # or rows
_ACK = re.compile(rb'\{"ack":([0-9]{1,18})\}')
#: Bytes of the lines before the hello.
_MAX_GREETING = 1 << 20


class Past(object):
    """What is put into one stream. Without files, or when they are sent, bytes pass as they are."""

    def __init__(self, folder: "spool.Folder", opening: "keeper.Opening") -> None:
        self._folder, self._opening = folder, opening
        self.is_sending = False  # nothing of the node is passed on
        self.is_over = not folder.files(opening.node)  # the files are removed, or there are none
        self._greeting = b""
        self.held = 0  # bytes of the node that are sent behind its past
        self._pieces: Iterator[bytes] = iter(())
        self._piece = b""
        self._live = 0  # number of the first record that was sent after the past
        self.is_sent, self._is_at_line = False, True
        self._agent, self._last, self._reason = "", 0, ""  # of the last line, and why what follows it may be missing

    def pass_on(self, data: bytes, room: int) -> bytes:
        """Bytes of the node; those that are passed on now. `room`: bytes that the console accepts beyond these."""
        if self.is_over:
            return data
        if self.is_sent:
            return data if self._live else self._begin_live(data, room)
        self._greeting += data
        match = _HELLO.search(self._greeting)
        if match is None:
            passed, line_end, begun = self._greeting.rpartition(b"\n")
            self._greeting = begun
            if len(begun) > _MAX_GREETING:
                self.is_over = True
                return passed + line_end + begun
            return passed + line_end
        passed, rest = self._greeting[: match.end()], self._greeting[match.end() :]
        self._greeting = b""
        try:
            agent = str(wire.decode(match.group(0))["gconsole"]["agent"])[:64]
        except (wire.BadFrame, KeyError, TypeError):
            self.is_over = True  # the console will not accept it either
            return passed + rest
        self._pieces, self.held = self._content(agent, rest), len(rest)
        self.is_sending = True
        return passed

    def next_bytes(self, most: int) -> bytes:
        """More of the past, at most `most` bytes; b"" once all is sent."""
        if not self._piece:
            try:
                self._piece = next(self._pieces, b"")
            except OSError:
                pass  # the disk is gone; the console counts what is missing
        sent, self._piece = self._piece[:most], self._piece[most:]
        if not sent:
            self.is_sending, self.is_sent = False, True
        return sent

    def on_input(self, data: bytes) -> None:
        """Bytes of the console to the node: an acknowledgement ends the past."""
        if self._live and not self.is_over:
            if any(int(number) >= self._live for number in _ACK.findall(data)):
                self.is_over = True
                self._folder.remove(self._opening.node)

    def _begin_live(self, data: bytes, room: int) -> bytes:
        """Bytes of the agent after the past; what is missing before its first record is explained."""
        match = _RECORD.search(data)
        is_line = match is not None and (match.start() > 0 or data[:1] == b"\n" or self._is_at_line)
        self._is_at_line = data.endswith(b"\n")
        if match is None or not is_line:
            return data
        self._live = int(match.group(1))
        gap = self._gap(self._live - 1)
        if not self._reason or self._live <= self._last + 1 or len(gap) > room:
            return data
        begin = match.end(0) - len(match.group(0).lstrip(b"\n"))
        return data[:begin] + gap + data[begin:]

    def _gap(self, until: int) -> bytes:
        return wire.encode({"gap": [self._last + 1, until], "reason": self._reason})

    def _content(self, live: str, rest: bytes) -> "Iterator[bytes]":
        start: Fields = self._opening.start or {}
        resumed, after = str(start.get("agent", "")), start.get("after")  # what the console has already
        for frame in spool.frames_of(self._folder, self._opening.node):
            self._reason = frame.damage or self._reason
            if frame.lines:
                if frame.agent != self._agent:
                    yield self._switch(frame.agent, resumed, after)
                if self._reason and frame.first > self._last + 1:
                    yield self._gap(frame.first - 1)
                self._reason, self._last = "", max(self._last, frame.last)
                yield frame.lines
        if live != self._agent:
            yield self._switch(live, resumed, after)
        if rest:
            yield self._begin_live(rest, len(rest) + 1024)  # as much of it as the window takes is sent at once

    def _switch(self, agent: str, resumed: str, after: "Any") -> bytes:
        self._agent, self._last = agent, after if agent == resumed and isinstance(after, int) else 0
        return wire.encode({"from": agent})
