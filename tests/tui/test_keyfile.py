"""Configured keys: the syntax of keys.toml, rejected bindings with reasons, and where keys are displayed."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from clusters import demo
from running import running
from waiting import screen, shows, until

from gconsole.cli.config import config
from gconsole.tui.keymap.actions import FIXED, NO_LISTS, in_scope, keys_of, places
from gconsole.tui.keymap.file import KeyNameError, OwnKeys, key_name, keys_text, read_keys
from gconsole.tui.keymap.hints import every_action
from gconsole.tui.views.list_view import ListView
from gconsole.tui.views.registry import VIEWS


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.toml"


def read(file: Path, text: str) -> OwnKeys:
    file.write_text(text, encoding="utf-8")
    return read_keys(file, every_action())


class TestNames:
    @pytest.mark.parametrize(
        ("written", "name"),
        [("x", "x"), ("X", "X"), ("?", "question_mark"), ("Ctrl+F", "ctrl+f"), ("PgDn", "pagedown"), ("Esc", "escape"),
         ("+", "plus"), (",", "comma"), (" ", "space"), ("shift+up", "shift+up"), ("f5", "f5"), ("ä", "ä"),
         ("ctrl+shift+p", "ctrl+shift+p"), ("alt+x", "alt+x"), ("exclamation_mark", "exclamation_mark")],
    )  # fmt: skip
    def test_key_names_are_parsed_in_common_spellings(self, written: str, name: str):
        assert key_name(written) == name

    @pytest.mark.parametrize(
        "text", ["", "page", "ctl+x", "ctrl+", "xy", "<any>", "\x1b", "ctrl+i", "Ctrl+M", "shift+a"]
    )
    def test_invalid_or_unsendable_key_name_is_rejected(self, text: str):
        with pytest.raises(KeyNameError):
            key_name(text)

    def test_every_default_key_is_a_valid_key_name(self):
        for action in every_action():
            for key in keys_of(action, {}):
                assert key_name(key) == key, action.id


class TestTheFile:
    def test_missing_key_file_changes_nothing(self, file: Path):
        assert read_keys(file, every_action()) == OwnKeys({})

    def test_key_file_accepts_one_or_several_keys_in_any_toml_form(self, file: Path):
        own_keys = read(
            file, 'list.columns = "c"\n"app.mark" = ["W", "ctrl+o"]\n[app]\ntheme = "Z"\n[lines]\ntop = "0"\n'
        )
        assert own_keys.keymap["list.columns"] == "c"
        assert own_keys.keymap["app.mark"] == "W,ctrl+o"
        assert own_keys.keymap["app.theme"] == "Z"
        assert not any("list.columns" in line for line in own_keys.complaints)

    def test_action_id_of_the_previous_release_works_with_a_warning(self, file: Path):
        own_keys = read(file, 'hang.walk = "w"\n')
        assert own_keys.keymap == {"hang.next_pane": "w,tab"}
        text = "keys.toml:1: hang.walk was renamed to hang.next_pane; the next release ignores hang.walk"
        assert own_keys.complaints == (text,)

    def test_empty_list_removes_all_keys_of_an_action(self, file: Path):
        assert read(file, "app.mark = []\n") == OwnKeys({"app.mark": ""})

    def test_fixed_key_is_kept_beside_the_configured_one(self, file: Path):
        assert read(file, 'app.quit = "Z"\nlist.sort = "w"\n') == OwnKeys({"app.quit": "Z,q", "list.sort": "w,o"})

    def test_two_actions_may_swap_their_keys(self, file: Path):
        own_keys = read(file, 'list.copy = "y"\nlist.copy_name = "Y"\n')
        assert own_keys == OwnKeys({"list.copy": "y", "list.copy_name": "Y"})

    @pytest.mark.parametrize(
        ("line", "message"),
        [('list.sortt = "x"', "list.sortt: unknown action; did you mean list.sort?"),
         ('app.mark = "q"', "q is a fixed key"),
         ('app.mark = "ctrl+z"', "ctrl+z is a fixed key"),
         ('app.mark = "tab"', "tab is a fixed key"),
         ('app.mark = 7', 'not a key; use "x"'),
         ('app.mark = "hyperx+y"', "is not a key"),
         ('filter.previous = "r"', "r inserts text there"),
         ('app.mark = "y"', "y is already the key of overview.copy"),
         ('app.mark = "3"', "3 is already the key of app.view_hang"),
         ('columns.reset = "j"', "j is already the key of lines.down"),
         ('filter.previous = "ctrl+s"', "ctrl+s is already the key of app.screenshot")],
    )  # fmt: skip
    def test_invalid_binding_is_reported_with_its_line_and_the_rest_applies(self, file: Path, line: str, message: str):
        own_keys = read(file, f'app.theme = "Z"\n{line}\n')
        [complaint] = own_keys.complaints
        assert complaint.startswith("keys.toml:2: ") and message in complaint
        assert dict(own_keys.keymap) == {"app.theme": "Z"}

    @pytest.mark.parametrize("lines", [("hang.walk", "hang.next_pane"), ("hang.next_pane", "hang.walk")])
    def test_new_id_wins_over_the_old_id_of_the_same_action(self, file: Path, lines: tuple[str, str]):
        own_keys = read(file, "".join(f'{id} = "{"f6" if id == "hang.walk" else "f7"}"\n' for id in lines))
        assert own_keys.keymap["hang.next_pane"].split(",")[0] == "f7"
        line = lines.index("hang.walk") + 1
        ignored = f"keys.toml:{line}: hang.walk is ignored because its new name, hang.next_pane, is set, too"
        assert own_keys.complaints == (ignored,)

    def test_later_of_two_bindings_for_one_key_is_rejected(self, file: Path):
        own_keys = read(file, 'app.theme = "Z"\napp.doctor = "Z"\n')
        assert dict(own_keys.keymap) == {"app.theme": "Z"}
        assert own_keys.complaints == (
            "keys.toml:2: app.doctor: Z is already the key of app.theme; change that one, too",
        )

    def test_rejected_binding_also_rejects_one_that_needed_its_key(self, file: Path):
        own_keys = read(file, 'app.theme = "M"\napp.mark = "y"\n')
        assert dict(own_keys.keymap) == {}, "M stays with mark, because y is not free"
        assert len(own_keys.complaints) == 2

    @pytest.mark.parametrize("text", ["list.sort = ", "\ufeffx = 1", "a.b.c.d = 'x'", "[[list]]\nsort = 's'\n"])
    def test_broken_key_file_is_reported_without_an_exception(self, file: Path, text: str):
        own_keys = read(file, text)
        assert own_keys.keymap == {}
        assert own_keys.complaints

    def test_unreadable_binary_or_oversized_key_file_is_reported(self, file: Path, tmp_path: Path):
        file.write_bytes(b"\xff\xfe\x00" * 1000)
        assert "not UTF-8" in read_keys(file, every_action()).complaints[0]
        assert "cannot be read" in read_keys(tmp_path, every_action()).complaints[0]
        file.write_bytes(b"#" * 300_000)
        assert "larger than" in read_keys(file, every_action()).complaints[0]


class TestTheTable:
    async def test_key_table_list_scopes_match_the_list_views(self):
        for row in VIEWS:
            view = row.view(id=row.name)
            if in_scope(view.scope):
                assert isinstance(view, ListView) == (view.scope not in NO_LISTS), row.name

    def test_default_keys_are_unique_in_each_scope(self):
        for scope_actions in places(every_action()):
            keys = [key for action in scope_actions for key in keys_of(action, {}) if key not in FIXED]
            assert len(keys) == len(set(keys)), [action.id for action in scope_actions]

    def test_config_keys_output_is_inactive_until_uncommented(self, file: Path):
        printed = CliRunner().invoke(config, ["keys"]).output
        assert read(file, printed) == OwnKeys({})
        uncommented = "\n".join(line.removeprefix("# ") for line in printed.splitlines() if " = " in line)
        own_keys = read(file, uncommented)
        assert own_keys.complaints == ()
        assert own_keys.keymap == {action.id: action.keys for action in every_action()}

    def test_config_keys_names_every_action_and_the_fixed_keys(self):
        text = keys_text(every_action())
        assert all(f"# {action.id} = " in text for action in every_action())
        assert all(key in text.splitlines()[1] for key in FIXED)


class TestOnTheScreen:
    async def test_footer_help_tabs_and_palette_show_configured_keys(self, file: Path):
        own_keys = read(file, 'app.pause = "P"\napp.view_ranks = "w"\nlist.filter = ["ctrl+f", "/"]\napp.theme = "Z"\n')
        async with running(demo().app(keys=own_keys), size=(120, 60)) as pilot:
            assert "P pause" in screen(pilot.app).splitlines()[-1]
            assert "w Ranks" in screen(pilot.app).splitlines()[1]
            await pilot.press("w")
            await shows(pilot, "^f filter")
            await pilot.press("question_mark")
            await shows(pilot, "^f /")
            await shows(pilot, "Pause display")
            assert any(line.split()[1:2] == ["P"] for line in screen(pilot.app).splitlines() if "Pause display" in line)
            await pilot.press("escape", "ctrl+p", *"pause display")
            await shows(pilot, "(data keeps arriving)   P")

    async def test_configured_keys_work_and_replaced_keys_do_nothing(self, file: Path):
        own_keys = read(file, 'app.pause = "P"\napp.theme = "Z"\napp.mark = []\n')
        app = demo().app(keys=own_keys)
        async with running(app) as pilot:
            before = app.theme
            await pilot.press("space", "M", "Z")
            await until(pilot, lambda: app.theme != before)
            assert not app.frames.is_frozen and len(app.screen_stack) == 1
            await pilot.press("P")
            await shows(pilot, "FROZEN")

    async def test_invalid_bindings_are_listed_in_events_and_announced_by_a_toast(self, file: Path):
        own_keys = read(file, 'app.mark = "q"\napp.nothing = "x"\n')
        async with running(demo().app(keys=own_keys), size=(120, 24), toasts=True) as pilot:
            await shows(pilot, "2 warnings; see Events")
            await pilot.press("8")
            await shows(pilot, "keys.toml:1: app.mark: q is a fixed key")
            await shows(pilot, "keys.toml:2: app.nothing: unknown action")
