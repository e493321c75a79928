"""The base of all controllers, and what they need of the app that owns them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from textual.notifications import SeverityLevel


class AppHost(Protocol):
    """Toasts, dialogs, timers and background work: what every controller may use of the app."""

    @property
    def is_running(self) -> bool:
        """Whether the app's event loop runs."""
        ...

    def notify(
        self, message: str, *, title: str = "", severity: SeverityLevel = "information", timeout: float | None = None,
        markup: bool = False,
    ) -> None:  # fmt: skip
        """Show a toast."""
        ...

    def push_screen(self, screen: Any, callback: Any = None) -> Any:
        """Open a dialog; `callback` receives its result."""
        ...

    def run_worker(self, work: Coroutine[Any, Any, Any], name: str | None = "", group: str = "default") -> Any:
        """Run in the background."""
        ...

    def set_timer(self, delay: float, callback: Callable[[], Any]) -> Any:
        """Call once, after `delay` seconds."""
        ...


class Controller:
    """A part of the app. Its `action_` methods are bound as `namespace.action`, as those of a DOM node would be."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether the action can run now; None dims its key."""
        return True
