"""Recording while a headless command runs: its session begins before the fleet does, and ends after it."""

from __future__ import annotations

import click

from ..config import Config
from ..core.control import ActiveRecording, CrashedRecording, Selection
from ..core.store import Store
from ..runtime import sessions_folder_of
from ..session.format.layout import Session, SessionError, named
from ..session.format.pseudonyms import Pseudonyms, key_of_this_user
from ..session.record import resume
from ..session.record.recorder import Recorder
from ..text.format import plural, size
from ..text.sanitize import printable


class Tape:
    """One named recording, from the start of a command to its end. Raises UsageError for what prevents it."""

    def __init__(self, name: str, selection: Selection | None) -> None:
        self.name, self.selection = name, selection
        self.failed = False
        self._recorder: Recorder | None = None
        self._session: Session | None = None

    def left_behind(self, config: Config) -> CrashedRecording | None:
        """Where a crashed console left this session: how to go on with it."""
        try:
            session = named(self.name, sessions_folder_of(config))
            if not session.path.is_dir():
                return None
            selection = session.read().selection
            names = Pseudonyms(key_of_this_user(session.path.parent)) if selection.anonymous else None
            left = resume.take_up(session, names.host if names else str)
        except (SessionError, OSError) as error:
            raise _explained(error) from error
        if not selection.anonymous:  # else it knows nobody by name
            self._session = session
        return left

    def refold(self, store: Store) -> None:
        """Tell the store what was known when the recording broke off."""
        if self._session is not None:
            resume.refold(self._session, store.apply)

    async def begin(self, recorder: Recorder) -> None:
        self._recorder = recorder
        try:
            await recorder.start(self.name, self.selection)
        except (SessionError, OSError) as error:
            raise _explained(error) from error

    @property
    def is_over(self) -> bool:
        """Somebody ended it in another terminal."""
        return self._recorder is not None and not self._recorder.now()

    def line(self) -> str:
        """How far it is, to stand behind the progress."""
        return "".join(f" · rec {now.name} {_figures(now)}" for now in self._recorder.now()) if self._recorder else ""

    async def end(self) -> None:
        """Close the session, and say what came of it."""
        if self._recorder is None:
            return
        for now in await self._recorder.close():
            self.failed = self.failed or bool(now.trouble)
            words = f"not all of it was written: {now.trouble}; " if now.trouble else ""
            click.echo(f"\ngconsole: {words}recorded {now.name}: {_figures(now)}", err=True)


def _figures(now: ActiveRecording) -> str:
    return printable(
        f"{plural(now.records, 'record')}, {size(now.bytes)}" + (f" ({now.trouble})" if now.trouble else "")
    )


def _explained(error: SessionError | OSError) -> click.UsageError:
    text = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
    return click.UsageError(printable(text))
