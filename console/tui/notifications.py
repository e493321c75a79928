"""Notifications whose toasts always end."""

from __future__ import annotations

from typing import Final

from textual.notifications import Notification

#: Seconds. A timer of Textual with a negative interval never gives the event loop back; one of 0 fails.
_LEAST_S: Final = 0.05


class TimedNotification(Notification):
    """A notification with time left for its toast.

    Textual checks that a notification has not expired, and then starts the toast's timer with the time that is left:
    if it expires in between, that time is negative, and the timer of Textual 8.2 runs without end.
    """

    @property
    def time_left(self) -> float:
        """Seconds until it expires, at least `_LEAST_S`."""
        return max(_LEAST_S, super().time_left)

    @property
    def has_expired(self) -> bool:
        """Whether its time has passed."""
        return super().time_left <= 0
