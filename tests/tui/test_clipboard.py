"""Copied text: sent through the terminal, to a clipboard tool, or both; and the message if that fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from clusters import demo, pod
from running import running
from textual.pilot import Pilot
from textual.widgets import Input
from waiting import until

from gconsole.tui.controllers.clipboard import MOST_BYTES, TOOLS, ClipboardTool, find_tool, plan, run_tool

SIZE = (120, 24)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a display's environment and no tool yet; the file `taken` has a tool's input."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    monkeypatch.delenv("DISPLAY", raising=False)
    return tmp_path


def install(machine: Path, name: str, script: str = "") -> Path:
    """A tool that saves its input, after `script`."""
    path = machine / "bin" / name
    path.write_text(f'#!/bin/sh\n{script}\necho "$@" > {machine}/arguments\ncat > {machine}/taken.part\n'
                    f"mv {machine}/taken.part {machine}/taken\n")  # fmt: skip
    path.chmod(0o755)
    return path


def clipboard_text(machine: Path) -> str:
    file = machine / "taken"
    return file.read_text() if file.exists() else ""


async def until_toast(pilot: Pilot[None], text: str) -> None:
    """Wait until a toast contains this text."""
    await until(pilot, lambda: any(text in toast.message for toast in pilot.app._notifications), text)


class TestTools:
    @pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
    def test_clipboard_tool_is_found_only_with_its_display(self, machine: Path, tool: ClipboardTool):
        path = install(machine, tool.name)
        environ = {"PATH": str(machine / "bin")}
        command = find_tool(environ | ({tool.needs: ":0"} if tool.needs else {}))
        assert command is not None and command.argv == (str(path), *tool.argv[1:])
        assert (find_tool(environ) is None) == bool(tool.needs)

    def test_no_clipboard_tool_is_found_without_an_installed_one(self, machine: Path):
        assert find_tool({"PATH": str(machine / "bin"), "DISPLAY": ":0", "WAYLAND_DISPLAY": "w"}) is None

    def test_clipboard_tool_receives_raw_text_without_a_shell(self, machine: Path):
        path = install(machine, "xclip")
        assert run_tool(ClipboardTool((str(path), "-selection", "clipboard")), "$(touch x) 'ä'\n\x1b[31m") == ""
        assert clipboard_text(machine) == "$(touch x) 'ä'\n\x1b[31m"
        assert (machine / "arguments").read_text() == "-selection clipboard\n"

    def test_failing_clipboard_tool_reports_its_error_or_exit_code(self, machine: Path):
        path = install(machine, "xclip", 'echo "Error: Can\'t open display: :7" >&2; exit 1')
        assert run_tool(ClipboardTool((str(path),)), "x") == "xclip: Error: Can't open display: :7"
        assert run_tool(ClipboardTool((str(install(machine, "xsel", "exit 3")),)), "x") == "xsel: exit code 3"

    def test_hanging_clipboard_tool_times_out(self, machine: Path):
        path = install(machine, "xsel", "exec sleep 60")
        assert run_tool(ClipboardTool((str(path),)), "x", 0.2) == "xsel took longer than 0.2 s"

    def test_missing_clipboard_tool_is_reported(self, machine: Path):
        assert "No such file" in run_tool(ClipboardTool((str(machine / "bin" / "gone"),)), "x")

    def test_background_child_of_a_clipboard_tool_is_not_waited_for(self, machine: Path):
        path = install(machine, "wl-copy", "sleep 5 &")
        assert run_tool(ClipboardTool((str(path),)), "x", 4.0) == ""


class TestTheWay:
    @pytest.mark.parametrize(
        ("mode", "size", "tool", "osc52", "native", "refused"),
        [("osc52", 10, True, True, False, ""), ("osc52", MOST_BYTES + 1, True, False, False, "limit of 73.2 KiB"),
         ("native", 10, True, False, True, ""), ("native", 10, False, False, False, "pbcopy, wl-copy, xclip, xsel"),
         ("both", 10, True, True, True, ""), ("both", 10, False, True, False, ""),
         ("both", MOST_BYTES + 1, True, False, True, ""), ("both", MOST_BYTES + 1, False, False, False, "limit")],
    )  # fmt: skip
    def test_copy_path_is_chosen_by_mode_size_and_tool(
        self, mode, size: int, tool: bool, osc52: bool, native: bool, refused: str
    ):
        copy_plan = plan(mode, size, lambda: ClipboardTool(("xclip",)) if tool else None)
        assert (copy_plan.osc52, copy_plan.tool is not None) == (osc52, native)
        assert (refused in copy_plan.refused) if refused else not copy_plan.refused


class TestOnTheScreen:
    async def test_mode_both_copies_to_the_terminal_and_the_tool(self, machine: Path):
        install(machine, "wl-copy")
        app = demo().app(clipboard="both")
        async with running(app, "2", "g", "j", "Y", size=SIZE, toasts=True) as pilot:
            await until(pilot, lambda: clipboard_text(machine))
            assert clipboard_text(machine) == app.clipboard
            await until_toast(pilot, "OSC 52, wl-copy; the limit is 73.2 KiB")

    async def test_mode_native_bypasses_osc52_and_its_size_limit(self, machine: Path):
        install(machine, "wl-copy")
        app = pod().app(clipboard="native")
        async with running(app, size=SIZE, toasts=True) as pilot:
            terminal_writes: list[str] = []
            assert app._driver is not None
            app._driver.write = terminal_writes.append  # type: ignore[method-assign]
            await pilot.press("2", "g", "ctrl+y")
            await until(pilot, lambda: len(clipboard_text(machine)) > MOST_BYTES)
            assert not any("\x1b]52" in text for text in terminal_writes)
            await until_toast(pilot, "512 ranks copied")

    async def test_text_too_large_for_osc52_still_reaches_the_tool(self, machine: Path):
        install(machine, "wl-copy")
        async with running(pod().app(clipboard="both"), "2", "g", "ctrl+y", size=SIZE, toasts=True) as pilot:
            await until_toast(pilot, "wl-copy; too large for OSC 52")

    async def test_failing_tool_is_reported_beside_the_successful_osc52_copy(self, machine: Path):
        install(machine, "wl-copy", "echo 'no compositor' >&2; exit 1")
        async with running(demo().app(clipboard="both"), "2", "g", "j", "Y", size=SIZE, toasts=True) as pilot:
            await until_toast(pilot, "sent by OSC 52 only; wl-copy: no compositor")

    async def test_native_mode_without_a_tool_suggests_osc52(self, machine: Path):
        app = demo().app(clipboard="native")
        async with running(app, "2", "g", "j", "Y", size=SIZE, toasts=True) as pilot:
            await until_toast(pilot, 'clipboard = "osc52"')
            assert app.clipboard == ""

    async def test_ctrl_c_selection_reaches_the_terminal_and_the_tool(self, machine: Path):
        install(machine, "wl-copy")
        app = demo().app(clipboard="both")
        async with running(app, "2", "slash", *"rank:1", size=SIZE) as pilot:
            line = app.focused
            assert isinstance(line, Input)
            line.select_all()
            await pilot.press("ctrl+c")
            await until(pilot, lambda: clipboard_text(machine) == "rank:1")
            assert app.clipboard == "rank:1"
