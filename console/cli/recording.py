"""Recording during a headless command."""

from __future__ import annotations

import click

from ..config import Config
from ..core.control import ActiveRecording, CrashedRecording, Selection
from ..core.store import Store
from ..runtime import sessions_folder_of
from ..session.format.layout import Session, SessionError, named
from ..session.format.pseudonyms import Pseudonyms, key_of_this_user
from ..session.record import recovery
from ..session.record.recorder import Recorder
from ..text.format import plural, size
from ..text.sanitize import printable


class HeadlessRecording:
    """One named recording that spans a command. Methods raise UsageError if the session cannot be written."""

    def __init__(self, name: str, selection: Selection | None) -> None:
        self.name, self.selection = name, selection
        self.failed = False
        self._recorder: Recorder | None = None
        self._session: Session | None = None

    def find_crashed(self, config: Config) -> CrashedRecording | None:
        """State to resume from if a session of this name was left by a crash; None for a new session."""
        try:
            session = named(self.name, sessions_folder_of(config))
            if not session.path.is_dir():
                return None
            selection = session.read().selection
            names = Pseudonyms(key_of_this_user(session.path.parent)) if selection.anonymous else None
            crashed = recovery.take_up(session, names.host if names else str)
        except (SessionError, OSError) as error:
            raise _usage_error(error) from error
        if not selection.anonymous:  # pseudonymous records cannot be folded
            self._session = session
        return crashed

    def refold(self, store: Store) -> None:
        """Restore the store to its state at the crash."""
        if self._session is not None:
            recovery.refold(self._session, store.apply)

    async def start(self, recorder: Recorder) -> None:
        """Start recording."""
        self._recorder = recorder
        try:
            await recorder.start(self.name, self.selection)
        except (SessionError, OSError) as error:
            raise _usage_error(error) from error

    @property
    def is_stopped(self) -> bool:
        """Whether `gconsole sessions stop` ended the recording."""
        return self._recorder is not None and not self._recorder.active()

    def line(self) -> str:
        """Suffix for the progress line: session name, records, bytes."""
        recordings = self._recorder.active() if self._recorder else ()
        return "".join(f" · rec {recording.name} {_figures(recording)}" for recording in recordings)

    async def stop(self) -> None:
        """Close the session and print its size and errors."""
        if self._recorder is None:
            return
        for now in await self._recorder.close():
            self.failed = self.failed or bool(now.trouble)
            words = f"recording is incomplete: {now.trouble}; " if now.trouble else ""
            click.echo(f"\ngconsole: {words}recorded {now.name}: {_figures(now)}", err=True)


def _figures(now: ActiveRecording) -> str:
    return printable(
        f"{plural(now.records, 'record')}, {size(now.bytes)}" + (f" ({now.trouble})" if now.trouble else "")
    )


def _usage_error(error: SessionError | OSError) -> click.UsageError:
    text = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
    return click.UsageError(printable(text))
