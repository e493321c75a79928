"""Commands of the user on the row under the cursor: read strictly, run without a shell, the terminal given back."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from clusters import demo
from fake_cluster import FakeCluster
from hypothesis import given
from hypothesis import strategies as st
from running import running
from test_suspend import Shell
from waiting import screen, shows, until

from gconsole.tui.app import ConsoleApp
from gconsole.tui.dialogs.prompts import Confirm, Prompt
from gconsole.tui.keymap.hints import bound_actions
from gconsole.tui.keymap.row_commands import (
    CommandFileContents,
    CommandInput,
    RowCommand,
    UnsafeValue,
    arguments,
    read_commands,
)
from gconsole.tui.views.registry import VIEWS

NAMES = [row.name for row in VIEWS]


def read(folder: Path, text: str) -> CommandFileContents:
    file = folder / "commands.toml"
    file.write_text(text)
    return read_commands(file, NAMES, bound_actions(), {})


SSH = """\
[[command]]
name = "log in"
shortcut = "F"
scopes = ["nodes", "ranks"]
command = ["ssh", "{node}"]
confirm = false
"""


def test_valid_file_has_its_commands(tmp_path: Path):
    text = SSH + (
        '[[command]]\nname = "drain"\nscopes = ["all"]\nconfirm = false\ninteractive = false\n'
        'command = ["scontrol", "update", "NodeName={node}", "State=DRAIN", "Reason={reason}"]\n'
        'inputs = [{ name = "reason", prompt = "Reason", default = "gconsole" }]\n'
    )
    contents = read(tmp_path, text)
    assert contents.complaints == ()
    ssh, drain = contents.commands
    assert (ssh.shortcut, ssh.scopes, ssh.is_confirmed) == ("F", ("nodes", "ranks"), False)
    assert drain.is_confirmed, "whatever the file says: it takes a node away from others"
    assert drain.scopes == tuple(NAMES) and drain.inputs == (CommandInput("reason", "Reason", "gconsole"),)
    values = {"node": "node7"}
    assert arguments(drain, values, {"reason": "a b; c"})[2:] == ["NodeName=node7", "State=DRAIN", "Reason=a b; c"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("command =", "comand ="), "commands.toml:5: command.comand: unknown key; did you mean command?"),
        (('"{node}"', '"{nod}"'), "commands.toml:5: command.command: {nod} is not a variable"),
        (('"nodes"', '"hosts"'), "commands.toml:4: command.scopes: 'hosts' is not a view"),
        (('"F"', '"j"'), "commands.toml:3: command.shortcut: j is already the key of lines.down"),
        (('"F"', '"strg+x"'), "commands.toml:3: command.shortcut: "),
        (('"ssh"', '"{node}"'), "commands.toml:5: command.command: the program must not depend on the row"),
        (("false", '"no"'), "commands.toml:6: command.confirm: must be true or false"),
        (("[[command]]", "[command"), "commands.toml:1"),
        (("[[command]]", "[command]"), "commands.toml:1: command: must be [[command]] entries"),
    ],
)
def test_error_is_said_with_its_line_and_drops_the_command(tmp_path: Path, change: tuple[str, str], complaint: str):
    contents = read(tmp_path, SSH.replace(*change))
    assert contents.commands == () and any(complaint in text for text in contents.complaints), contents.complaints


def test_same_key_or_name_twice_drops_the_second(tmp_path: Path):
    contents = read(tmp_path, SSH + SSH.replace("log in", "other") + SSH.replace('"F"', '"E"'))
    assert [command.name for command in contents.commands] == ["log in"]
    assert "F is already the key of log in" in contents.complaints[0] and "occurs twice" in contents.complaints[1]


def test_file_that_others_can_change_is_not_used(tmp_path: Path):
    file = tmp_path / "commands.toml"
    file.write_text(SSH)
    file.chmod(0o666)
    contents = read_commands(file, NAMES, (), {})
    assert contents.commands == () and "can be changed by other users" in contents.complaints[0]


def test_without_a_file_there_are_no_commands(tmp_path: Path):
    assert read_commands(tmp_path / "none.toml", NAMES, (), {}) == CommandFileContents()


@pytest.mark.parametrize(
    "value",
    [
        "a b",
        "a;b",
        "$(x)",
        "`x`",
        "-oProxyCommand=x",
        "a\nb",
        "a'b",
        "a|b",
        "a>b",
        "",
        None,
        "a*",
        "{pid}",
        "a&b",
        "\\x",
    ],
)
def test_value_that_a_shell_could_read_otherwise_is_refused(value: object):
    command = RowCommand("x", ("ssh", "{node}", "kill {pid}"), ("nodes",))
    with pytest.raises(UnsafeValue):
        arguments(command, {"node": value, "pid": 7}, {})


@given(st.text(max_size=20))
def test_every_accepted_value_is_one_word_of_a_shell(value: str):
    import shlex

    command = RowCommand("x", ("ssh", "{node}"), ("nodes",))
    try:
        argv = arguments(command, {"node": value}, {})
    except UnsafeValue:
        return
    assert shlex.split(argv[1]) == [value] and shlex.quote(value) in (value, f"'{value}'") and not value.startswith("-")


def test_text_from_an_answer_is_never_expanded():
    command = RowCommand("x", ("echo", "{a}", "{{node}}"), ("nodes",))
    assert arguments(command, {"node": "n"}, {"a": "{node}"}) == ["echo", "{node}", "{node}"]


# -- on the screen -----------------------------------------------------------------------------------------------------


def app_with(*commands: RowCommand, cluster: FakeCluster | None = None) -> ConsoleApp:
    return (cluster or demo()).app(commands=CommandFileContents(commands))


ECHO = RowCommand(
    "say", (sys.executable, "-c", "import sys; print('row', *sys.argv[1:])", "{node}", "{rank}", "{pid}"), ("ranks",),
    "F", confirm=False, interactive=False,
)  # fmt: skip


async def test_key_runs_the_command_on_the_row_and_shows_its_output():
    app = app_with(ECHO)
    async with running(app, "2", "j", "j", size=(160, 34)) as pilot:
        row = app.view.selected_values
        await pilot.press("F")
        await shows(pilot, f"row {row['node']} {row['rank']} {row['pid']}")
        await shows(pilot, "exit code 0")


async def test_command_works_only_in_its_views_and_is_listed_there():
    app = app_with(ECHO)
    async with running(app, "n", "F", "question_mark", size=(120, 60)) as pilot:
        assert "Your commands" not in screen(app)
        await pilot.press("escape", "2", "question_mark", "G")
        await until(pilot, lambda: any(entry.name == "say" for entry in app.row_commands.palette_entries()))
        await shows(pilot, "Your commands")


@pytest.mark.parametrize(("key", "runs"), [("y", True), ("escape", False)])
async def test_confirmed_command_shows_its_argument_list_and_runs_only_after_yes(key: str, runs: bool, tmp_path: Path):
    mark = tmp_path / "mark"
    command = RowCommand("touch", ("touch", str(mark)), ("ranks",), "F", interactive=False)
    app = app_with(command)
    async with running(app, "2", "F", size=(160, 34)) as pilot:
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        assert "touch" in screen(app) and not mark.exists()
        await pilot.press(key)
        await until(pilot, lambda: not isinstance(app.screen, Confirm))
        if runs:
            await until(pilot, mark.exists)
        await pilot.pause()
    assert mark.exists() == runs


async def test_inputs_are_asked_for_and_escape_runs_nothing():
    ask = RowCommand("ask", ("printf", "%s|", "{node}", "{why}"), ("nodes",), "F", False, False, (CommandInput("why"),))
    app = app_with(ask)
    async with running(app, "n", "F", size=(120, 34)) as pilot:
        await until(pilot, lambda: isinstance(app.screen, Prompt))
        await pilot.press("escape")
        await until(pilot, lambda: len(app.screen_stack) == 1)
        await pilot.press("F")
        await until(pilot, lambda: isinstance(app.screen, Prompt))
        await pilot.press(*"a b", "enter")
        await shows(pilot, "node1|a b|")


async def test_missing_value_and_missing_program_are_reported():
    missing = RowCommand("gone", ("gconsole-no-such-program", "{node}"), ("nodes",), "F", False, False)
    of_rank = RowCommand("rank", ("echo", "{rank}"), ("nodes",), "E", False, False)
    app = app_with(missing, of_rank)
    async with running(app, "n", "E", size=(120, 34), toasts=True) as pilot:
        await shows(pilot, "nothing under the cursor has a rank")
        await pilot.press("F")
        await shows(pilot, "No such file or directory")


PROGRAM = """
import sys
sys.path.insert(0, {here!r})
from clusters import demo
from gconsole.tui.keymap.row_commands import CommandFileContents, RowCommand
shell = RowCommand("shell", ("sh", "-c", "read line; echo got $line; exit $line"), ("nodes",), "F", confirm=False)
sleep = RowCommand("sleep", ("sh", "-c", "echo asleep $((40+2)); exec sleep 1000"), ("nodes",), "E", confirm=False)
demo().app(commands=CommandFileContents((shell, sleep))).run()
"""


def test_program_gets_the_terminal_and_the_screen_returns(tmp_path: Path):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.format(here=str(Path(__file__).parent)))
    shell = Shell()
    try:
        shell.until(b"ready> ")
        shell.type(f"{sys.executable} {script}\n".encode())
        shell.until(b"demo-ring")
        shell.type(b"n")
        shell.until(b"agent")
        for line, after in ((b"0", b""), (b"3", b"exit code 3; Enter returns")):
            shell.type(b"F")
            shell.until(b"\x1b[?1049l")
            shell.until(b"$ sh -c")
            shell.type(line + b"\n")
            shell.until(b"got " + line)
            if after:
                shell.until(after)
                shell.type(b"\n")
            shell.until(b"\x1b[?1049h")
            shell.until(b"agent")
        shell.type(b"E")
        shell.until(b"asleep 42")
        shell.type(b"\x03")  # ends the program, not the console
        shell.until(b"exit code")
        shell.type(b"\n")
        shell.until(b"\x1b[?1049h")
        shell.until(b"agent")
        shell.type(b"q")
        shell.until(b"\x1b[?1049l")
        shell.until(b"ready> ")
        shell.type(b"stty -a | grep -c -w icanon; echo ended $?\n")
        shell.until(b"ended 0")
    finally:
        shell.close()
