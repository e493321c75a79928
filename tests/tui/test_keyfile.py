"""A person's own keys: what keys.toml may say, what is refused and why, and where the keys are told."""

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
    def test_people_write_keys_as_they_are_used_to(self, written: str, name: str):
        assert key_name(written) == name

    @pytest.mark.parametrize(
        "text", ["", "page", "ctl+x", "ctrl+", "xy", "<any>", "\x1b", "ctrl+i", "Ctrl+M", "shift+a"]
    )
    def test_what_is_no_key_or_never_sent_is_refused(self, text: str):
        with pytest.raises(KeyNameError):
            key_name(text)

    def test_every_key_of_the_table_can_be_written(self):
        for action in every_action():
            for key in keys_of(action, {}):
                assert key_name(key) == key, action.id


class TestTheFile:
    def test_without_a_file_there_is_nothing_to_say(self, file: Path):
        assert read_keys(file, every_action()) == OwnKeys({})

    def test_an_id_gets_a_key_or_several_however_toml_says_it(self, file: Path):
        own = read(file, 'list.columns = "c"\n"app.mark" = ["N", "ctrl+n"]\n[app]\ntheme = "T"\n[lines]\ntop = "0"\n')
        assert own.keymap["list.columns"] == "c"
        assert own.keymap["app.mark"] == "N,ctrl+n"
        assert own.keymap["app.theme"] == "T"
        assert not any("list.columns" in line for line in own.complaints)

    def test_an_id_of_the_previous_release_works_with_a_warning(self, file: Path):
        own = read(file, 'hang.walk = "w"\n')
        assert own.keymap == {"hang.next_pane": "w,tab"}
        text = "keys.toml:1: hang.walk was renamed to hang.next_pane; the next release ignores hang.walk"
        assert own.complaints == (text,)

    def test_no_key_at_all_is_an_empty_list(self, file: Path):
        assert read(file, "app.mark = []\n") == OwnKeys({"app.mark": ""})

    def test_a_fixed_key_stays_with_its_action_beside_the_new_one(self, file: Path):
        assert read(file, 'app.quit = "Z"\nlist.sort = "w"\n') == OwnKeys({"app.quit": "Z,q", "list.sort": "w,o"})

    def test_two_actions_may_swap_their_keys(self, file: Path):
        own = read(file, 'list.copy = "Y"\nlist.copy_json = "y"\n')
        assert own == OwnKeys({"list.copy": "Y", "list.copy_json": "y"})

    @pytest.mark.parametrize(
        ("line", "said"),
        [('list.sortt = "x"', "list.sortt: unknown action; did you mean list.sort?"),
         ('app.mark = "q"', "q is a fixed key"),
         ('app.mark = "ctrl+z"', "ctrl+z is a fixed key"),
         ('app.mark = "tab"', "tab is a fixed key"),
         ('app.mark = 7', 'not a key; use "x"'),
         ('app.mark = "hyperx+y"', "is not a key"),
         ('filter.previous = "r"', "r inserts text there"),
         ('app.mark = "y"', "y is already the key of hang.copy"),
         ('app.mark = "3"', "3 is already the key of app.view_hang"),
         ('columns.reset = "j"', "j is already the key of lines.down"),
         ('filter.previous = "ctrl+s"', "ctrl+s is already the key of app.screenshot")],
    )  # fmt: skip
    def test_what_cannot_be_is_told_with_its_line_and_the_rest_holds(self, file: Path, line: str, said: str):
        own = read(file, f'app.theme = "T"\n{line}\n')
        [complaint] = own.complaints
        assert complaint.startswith("keys.toml:2: ") and said in complaint
        assert dict(own.keymap) == {"app.theme": "T"}

    @pytest.mark.parametrize("lines", [("hang.walk", "hang.next_pane"), ("hang.next_pane", "hang.walk")])
    def test_new_id_wins_over_the_old_id_of_the_same_action(self, file: Path, lines: tuple[str, str]):
        own = read(file, "".join(f'{id} = "{"f6" if id == "hang.walk" else "f7"}"\n' for id in lines))
        assert own.keymap["hang.next_pane"].split(",")[0] == "f7"
        line = lines.index("hang.walk") + 1
        ignored = f"keys.toml:{line}: hang.walk is ignored because its new name, hang.next_pane, is set, too"
        assert own.complaints == (ignored,)

    def test_of_two_lines_that_want_one_key_the_later_gives_way(self, file: Path):
        own = read(file, 'app.theme = "T"\napp.doctor = "T"\n')
        assert dict(own.keymap) == {"app.theme": "T"}
        assert own.complaints == ("keys.toml:2: app.doctor: T is already the key of app.theme; change that one, too",)

    def test_who_gives_way_may_take_another_with_them(self, file: Path):
        own = read(file, 'app.theme = "M"\napp.mark = "y"\n')
        assert dict(own.keymap) == {}, "M stays with mark, because y is not free"
        assert len(own.complaints) == 2

    @pytest.mark.parametrize("text", ["list.sort = ", "\ufeffx = 1", "a.b.c.d = 'x'", "[[list]]\nsort = 's'\n"])
    def test_a_file_that_is_broken_raises_nothing(self, file: Path, text: str):
        own = read(file, text)
        assert own.keymap == {}
        assert own.complaints

    def test_a_file_of_other_bytes_or_no_file_at_all_is_told(self, file: Path, tmp_path: Path):
        file.write_bytes(b"\xff\xfe\x00" * 1000)
        assert "not UTF-8" in read_keys(file, every_action()).complaints[0]
        assert "cannot be read" in read_keys(tmp_path, every_action()).complaints[0]
        file.write_bytes(b"#" * 300_000)
        assert "larger than" in read_keys(file, every_action()).complaints[0]


class TestTheTable:
    async def test_it_knows_which_views_are_lists(self):
        for row in VIEWS:
            view = row.view(id=row.name)
            if in_scope(view.scope):
                assert isinstance(view, ListView) == (view.scope not in NO_LISTS), row.name

    def test_the_table_itself_has_no_key_twice_in_one_place(self):
        for place in places(every_action()):
            keys = [key for action in place for key in keys_of(action, {}) if key not in FIXED]
            assert len(keys) == len(set(keys)), [action.id for action in place]

    def test_config_keys_prints_a_file_that_says_nothing_until_it_is_changed(self, file: Path):
        printed = CliRunner().invoke(config, ["keys"]).output
        assert read(file, printed) == OwnKeys({})
        uncommented = "\n".join(line.removeprefix("# ") for line in printed.splitlines() if " = " in line)
        own = read(file, uncommented)
        assert own.complaints == ()
        assert own.keymap == {action.id: action.keys for action in every_action()}

    def test_config_keys_names_every_action_and_the_fixed_keys(self):
        text = keys_text(every_action())
        assert all(f"# {action.id} = " in text for action in every_action())
        assert all(key in text.splitlines()[1] for key in FIXED)


class TestOnTheScreen:
    async def test_footer_help_tabs_and_palette_tell_the_persons_keys(self, file: Path):
        own = read(file, 'app.pause = "P"\napp.view_ranks = "w"\nlist.filter = ["ctrl+f", "/"]\napp.theme = "T"\n')
        async with running(demo().app(keys=own), size=(120, 60)) as pilot:
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

    async def test_the_keys_do_what_they_say_and_the_old_ones_nothing(self, file: Path):
        own = read(file, 'app.pause = "P"\napp.theme = "T"\napp.mark = []\n')
        app = demo().app(keys=own)
        async with running(app) as pilot:
            before = app.theme
            await pilot.press("space", "M", "T")
            await until(pilot, lambda: app.theme != before)
            assert not app.frames.is_frozen and len(app.screen_stack) == 1
            await pilot.press("P")
            await shows(pilot, "FROZEN")

    async def test_what_is_wrong_stands_in_events_and_one_toast_says_so(self, file: Path):
        own = read(file, 'app.mark = "q"\napp.nothing = "x"\n')
        async with running(demo().app(keys=own), size=(120, 24), toasts=True) as pilot:
            await shows(pilot, "2 warnings; see Events")
            await pilot.press("8")
            await shows(pilot, "keys.toml:1: app.mark: q is a fixed key")
            await shows(pilot, "keys.toml:2: app.nothing: unknown action")
