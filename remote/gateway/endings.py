"""Why a gateway ends: its console, or a signal."""

import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Signals that end a gateway in order.
SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class Ended(Exception):
    """The console has gone, or sent what is not the protocol, or a signal came: the text is the reason."""

    is_orderly = False


class ConsoleLost(Ended):
    """The console has gone without a word."""


class EndedByConsole(Ended):
    """The console has ended the gateway."""

    is_orderly = True


def end_on_signals() -> None:
    """Raise `Ended` in the main thread when one of `SIGNALS` comes."""
    for number in SIGNALS:
        signal.signal(number, end_on_signal)


def end_on_signal(number: int, _: "Any") -> None:
    """Signal handler: end in order."""
    raise Ended("signal %d" % number)
