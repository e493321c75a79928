"""Runs the user's commands on the row under the cursor: prompts, confirmation, and the terminal while they need it."""

from __future__ import annotations

import asyncio
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from textual.app import SuspendNotSupported

from ...text.cells import clean
from ..dialogs.dialog import LinesDialog
from ..dialogs.prompts import Confirm, Prompt
from ..keymap.actions import Action, PaletteCommand
from ..keymap.row_commands import CommandFileContents, RowCommand, UnsafeValue, arguments
from . import Controller

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..app import ConsoleApp

#: Bytes of output that a dialog shows; seconds after which a command without a terminal is ended.
MOST_OUTPUT: Final = 64 * 1024
TIMEOUT_S: Final = 600.0
PROGRAM_MISSING: Final = 127


class RowCommandController(Controller):
    """Offers the commands of the present view and runs them, without a shell."""

    def __init__(self, app: ConsoleApp, contents: CommandFileContents) -> None:
        self._app = app
        self._commands = {command.name: command for command in contents.commands}
        self.complaints = contents.complaints

    def install(self) -> None:
        """Bind the keys. Call once the app is mounted."""
        for command in self._commands.values():
            if command.shortcut:
                self._app.bind(command.shortcut, f"row_commands.run({command.name!r})", description=command.name)

    @property
    def here(self) -> list[RowCommand]:
        """The commands of the view on the screen."""
        return [command for command in self._commands.values() if self._app.views.current in command.scopes]

    @property
    def actions(self) -> list[Action]:
        """They as actions, for the list of keys."""
        return [
            Action(f"command.{command.name}", command.shortcut, f"row_commands.run({command.name!r})", command.name,
                   f"{command.name}: {clean(shlex.join(command.command))}")
            for command in self.here
        ]  # fmt: skip

    def palette_entries(self) -> list[PaletteCommand]:
        """They for the palette."""
        return [
            PaletteCommand(command.name, clean(shlex.join(command.command)), self._starter(command))
            for command in self.here
        ]

    def _starter(self, command: RowCommand) -> Any:
        return lambda: self.action_run(command.name)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only in the views of the command."""
        return not parameters or any(command.name == parameters[0] for command in self.here)

    def action_run(self, name: str) -> None:
        """Prompt for the inputs of a command, ask where it may destroy something, and run it."""
        command = next((command for command in self.here if command.name == name), None)
        if command is not None:
            self._app.run_worker(self._run(command), name=f"command {name}")

    async def _run(self, command: RowCommand) -> None:
        values = self._values()
        answers: dict[str, str] = {}
        try:
            arguments(command, values, {prompt.name: "x" for prompt in command.inputs})  # before anything is asked
            for prompt in command.inputs:
                text = clean(prompt.prompt or prompt.name)
                dialog = Prompt(command.name, text, enter="continue", hint=prompt.default)
                typed = await self._app.push_screen_wait(dialog)
                if typed is None or not (typed or prompt.default):
                    return
                answers[prompt.name] = typed or prompt.default
            argv = arguments(command, values, answers)
        except UnsafeValue as error:
            self._app.notify(str(error), severity="warning", markup=False)
            return
        if command.is_confirmed:
            text = clean(shlex.join(argv))
            if not await self._app.push_screen_wait(Confirm(f"{command.name}?", f"Runs: {text}", "run")):
                return
        await (self._with_terminal(argv) if command.interactive else self._in_dialog(command.name, argv))

    def _values(self) -> dict[str, object]:
        cluster = self._app.clusters.current.source
        values = dict(self._app.view.selected_values)
        if cluster.target.startswith("k8s:"):
            values["namespace"] = cluster.target.removeprefix("k8s:").partition("/")[0]
            values["pod"] = values.get("node")
        return {**values, "cluster": cluster.cluster}

    async def _with_terminal(self, argv: Sequence[str]) -> None:
        """Run it on the terminal, restored afterwards; nodes are served meanwhile."""
        try:
            with self._app.suspend(), _interrupts_left_to_the_program():
                print(f"$ {clean(shlex.join(argv))}", flush=True)
                code = await _exit_code(argv)
                if code:
                    print(f"exit code {code}; Enter returns to gconsole", flush=True)
                    await asyncio.to_thread(sys.stdin.readline)
        except SuspendNotSupported:
            self._app.notify("this terminal cannot be handed over", severity="warning")

    async def _in_dialog(self, name: str, argv: Sequence[str]) -> None:
        """Run it without input, and show its output."""
        dialog = LinesDialog(name, [clean(shlex.join(argv)), "running …"])
        self._app.push_screen(dialog)
        try:
            process = await asyncio.create_subprocess_exec(
                *argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            dialog.show_lines([clean(shlex.join(argv)), f"{clean(argv[0])}: {error.strerror or error}"])
            return
        assert process.stdout is not None
        try:
            async with asyncio.timeout(TIMEOUT_S):
                output = b""
                while data := await process.stdout.read(MOST_OUTPUT):
                    output = (output + data)[:MOST_OUTPUT]
                ending = f"exit code {await process.wait()}"
        except TimeoutError:
            ending = f"ended after {TIMEOUT_S:g} s"
        finally:
            if process.returncode is None:
                process.kill()
        lines = [clean(line) for line in output.decode(errors="replace").splitlines()]
        dialog.show_lines([clean(shlex.join(argv)), *lines, ending])


async def _exit_code(argv: Sequence[str]) -> int:
    try:
        process = await asyncio.create_subprocess_exec(*argv)
    except OSError as error:
        print(f"{clean(argv[0])}: {error.strerror or error}", flush=True)
        return PROGRAM_MISSING
    try:
        return await process.wait()
    finally:
        if process.returncode is None:  # the app ends
            process.terminate()


@contextmanager
def _interrupts_left_to_the_program() -> Iterator[None]:
    """Ctrl-C reaches the program, which shares the terminal, and does not end the console."""
    before = signal.signal(signal.SIGINT, lambda *_: None)  # not SIG_IGN, which the program would inherit
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
