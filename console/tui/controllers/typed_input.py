"""Keys are delivered one at a time, each to what has the focus once the key before it has taken effect.

A terminal delivers everything typed during a stall in one read. Textual would send all of it to the widget that has the
focus at that moment, so that text meant for a prompt that the first key opens would run as commands.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

from textual import events
from textual.app import App
from textual.message_pump import MessagePump
from textual.widgets import Input

from . import Controller

#: Seconds. The longest wait for the first layout of a screen or view that a key opened.
_LAYOUT_TIMEOUT_S: Final = 1.0
#: Seconds after which the next key is delivered although the effect of the key before it is not known.
_STALL_TIMEOUT_S: Final = 3.0


class TypedInput(Controller):
    """Queue of keys and pastes. `deliver` hands an event to the widget that has the focus."""

    def __init__(self, app: App[Any], deliver: Callable[[events.Event], Awaitable[None]]) -> None:
        self._app, self._deliver = app, deliver
        self._waiting: deque[events.Event] = deque()
        self._delivered = 0  # number of the newest event; callbacks of earlier ones are ignored
        self._is_busy = False

    @property
    def is_idle(self) -> bool:
        """Whether everything typed has taken effect."""
        return not self._is_busy

    async def put(self, event: events.Event) -> None:
        """Deliver a key or paste, now or once those before it have taken effect."""
        self._waiting.append(event)
        if not self._is_busy:
            await self._deliver_next()
        elif len(self._waiting) == 1:
            self._app.set_timer(_STALL_TIMEOUT_S, partial(self._next, self._delivered), name="stalled input")

    async def _next(self, number: int) -> None:
        """Deliver the next event if `number` is still the newest one."""
        if number == self._delivered:
            await self._deliver_next()

    async def _deliver_next(self) -> None:
        self._delivered += 1
        self._is_busy = bool(self._waiting) and bool(self._app.screen_stack)
        if not self._is_busy:
            self._waiting.clear()
            return
        before = self._focus
        path = self._path
        event = self._take()
        await self._deliver(event)
        # Once for the key itself, once for the messages that it caused, once for the focus that these request.
        self._pass([*path, *path, self._app], partial(self._settle, self._delivered, before))

    def _take(self) -> events.Event:
        """The next event; text for an input line at once, because each change may filter thousands of rows."""
        event = self._waiting.popleft()
        text = _text_of(event)
        if not isinstance(self._app.focused, Input) or not text:
            return event
        while self._waiting and (more := _text_of(self._waiting[0])):
            text += more
            self._waiting.popleft()
        return event if len(text) == 1 else events.Paste(text).set_sender(self._app)

    @property
    def _focus(self) -> tuple[object, object]:
        """The screen and the widget that get keys."""
        return (self._app.screen, self._app.focused) if self._app.screen_stack else (None, None)

    @property
    def _path(self) -> Sequence[MessagePump]:
        """The focused widget and its ancestors, through which a key passes."""
        return (self._app.focused or self._app.screen).ancestors_with_self

    def _pass(self, pumps: Sequence[MessagePump], then: Callable[[], object]) -> None:
        """Call `then` once each of these in turn has processed its messages."""
        for index, pump in enumerate(pumps):
            if pump.call_later(self._pass, pumps[index + 1 :], then):
                return
        self._app.call_later(then)

    async def _settle(self, number: int, before: tuple[object, object]) -> None:
        """Deliver the next event; where the focus moved, after the layout of what has it now."""
        focus = self._focus
        if number != self._delivered or focus == before or not self._waiting:
            await self._next(number)
            return
        again = partial(self._settle, number, focus)
        self._app.call_after_refresh(self._pass, [*self._path], again)
        self._app.set_timer(_LAYOUT_TIMEOUT_S, partial(self._next, number), name="layout of a view")


def _text_of(event: events.Event) -> str:
    """The character that a key inserts; empty for other keys and for a paste."""
    return (event.character or "") if isinstance(event, events.Key) and event.is_printable else ""
