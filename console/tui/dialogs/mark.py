"""The small dialog behind `M`: a person's note, kept as a record of the session."""

from __future__ import annotations

from typing import Final

from .prompts import Prompt

#: Characters of a note that are kept; whoever has more to say has a file for it.
LONGEST_NOTE: Final = 500


class MarkDialog(Prompt):
    """Asks for the note. Enter is the instant that gets marked."""

    def __init__(self) -> None:
        words = "The note will stand in Events and in the record of the session."
        super().__init__("Mark", words, enter="marks this instant", escape="drops it", hint="what happens now?")
