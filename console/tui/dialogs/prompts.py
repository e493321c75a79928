"""Small dialogs that want something of a person: a secret, a node set, a yes; and the doctor's, which has an answer."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from ...text.cells import clean
from ..keymap.actions import bindings, in_scope
from .dialog import Dialog

#: Characters of a question that a server asks; what is longer is no question.
LONGEST = 400


class Prompt(ModalScreen[str | None]):
    """Asks for one line. Enter gives it back, Escape gives None."""

    BINDINGS = bindings(in_scope("prompt"))

    def __init__(
        self, title: str, words: str, *, enter: str, escape: str = "cancel", secret: bool = False, hint: str = ""
    ) -> None:
        super().__init__()
        self._title_text, self._words, self._enter, self._escape = title, words, enter, escape
        self._input = Input(password=secret, placeholder=hint)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_subtitle = hints(("Enter", self._enter), ("Esc", self._escape))
            yield Static(Content.styled(self._title_text, "bold"), classes="dialog-title")
            yield Static(Content(self._words), classes="prompt-words")
            yield self._input

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)

    def action_drop(self) -> None:
        self.dismiss(None)


class SecretPrompt(Prompt):
    """A login wants a passphrase, a password or a second factor. What is typed is not shown."""

    def __init__(self, who: str, question: str, waiting: int) -> None:
        more = f"\n{waiting} more question{'s wait' if waiting > 1 else ' waits'} behind this one." if waiting else ""
        super().__init__(
            f"Login: {clean(who)[:LONGEST]}", clean(question)[:LONGEST] + more, enter="logs in", escape="leaves it out",
            secret=True,
        )  # fmt: skip


class Confirm(ModalScreen[bool]):
    """Asks before something that cannot be undone by a key."""

    BINDINGS = bindings(in_scope("confirm"))

    def __init__(self, title: str, words: str, yes: str) -> None:
        super().__init__()
        self._title_text, self._words, self._yes = title, words, yes

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_subtitle = hints(("y", self._yes), ("Esc", "leaves it"))
            yield Static(Content.styled(self._title_text, "bold"), classes="dialog-title")
            yield Static(Content(self._words), classes="prompt-words")

    def action_yes(self) -> None:
        self.dismiss(True)

    def action_no(self) -> None:
        self.dismiss(False)


class LinesDialog(Dialog):
    """Lines that come later: first what is being waited for, then what came. Space at the left is kept when wrapped."""

    def __init__(self, title: str, lines: Sequence[str]) -> None:
        super().__init__()
        self._heading = title
        self._lines = list(lines)

    def on_mount(self) -> None:
        self.write()

    def show_lines(self, lines: Sequence[str]) -> None:
        """Show these lines instead; nothing happens where the person has closed the dialog."""
        self._lines = list(lines)
        if self.is_attached:
            self.write()

    def write(self) -> None:
        self.fill(Content.styled(self._heading, "bold"), [part for line in self._lines for part in self._wrapped(line)])

    def _wrapped(self, line: str) -> list[Content]:
        text = clean(line.lstrip())
        indent = len(line) - len(line.lstrip())
        return [Content(" " * indent) + part for part in Content(text).wrap(max(10, self.room - indent))] or [Content()]


def hints(*keys: tuple[str, str]) -> Content:
    """Keys and what they do, for the border of a box."""
    parts = [((f" {key} ", "$accent"), (f"{tells} ", "$muted")) for key, tells in keys]
    return Content.assemble(*(part for pair in parts for part in pair))
