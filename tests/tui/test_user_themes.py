"""User themes: found, reloaded when saved, rejected with a message; and the saved choice."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

import pytest
from clusters import demo
from running import running
from waiting import accept, shows, until

from gconsole.tui.controllers import theming
from gconsole.tui.theme.catalog import ThemeCatalog

DARK = (resources.files("gconsole.tui.theme.builtin") / "dark.toml").read_text(encoding="utf-8")
MINE = DARK.replace('name = "dark"', 'name = "mine"')


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "themes"
    path.mkdir()
    return path


def save(path: Path, text: str) -> None:
    """Write, with a distinct modification time."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text(text, encoding="utf-8")
    os.utime(path, ns=(before + 10**9, before + 10**9))


def names(catalog: ThemeCatalog) -> list[str]:
    return [theme.name for theme in catalog.themes]


class TestTheFolder:
    def test_theme_of_the_guide_is_listed(self, folder: Path):
        guide = (Path(__file__).parents[2] / "docs/guide/views.md").read_text(encoding="utf-8")
        example = guide.partition("## Use a theme of your own")[2].partition("```toml\n")[2].partition("```")[0]
        save(folder / "night.toml", example)
        catalog = ThemeCatalog(folder)
        changes = catalog.scan()
        assert (changes.names, changes.complaints) == (("night",), ())

    def test_user_theme_is_listed_after_the_builtin_themes(self, folder: Path):
        save(folder / "mine.toml", MINE)
        catalog = ThemeCatalog(folder)
        assert catalog.scan().names == ("mine",)
        assert names(catalog)[-1] == "mine"
        assert len(names(catalog)) == 6

    def test_missing_theme_folder_is_not_reported(self, tmp_path: Path):
        assert not ThemeCatalog(tmp_path / "nowhere").scan()

    def test_scan_without_changes_reports_nothing(self, folder: Path):
        save(folder / "mine.toml", MINE)
        catalog = ThemeCatalog(folder)
        catalog.scan()
        assert not catalog.scan()

    def test_changed_theme_file_is_reloaded(self, folder: Path):
        save(folder / "mine.toml", MINE)
        catalog = ThemeCatalog(folder)
        catalog.scan()
        save(folder / "mine.toml", MINE.replace("#4fca86", "#7fda96"))
        assert catalog.scan().names == ("mine",)
        assert catalog.themes[-1].status.ok == "#7fda96"

    def test_deleted_theme_file_removes_its_theme(self, folder: Path):
        save(folder / "mine.toml", MINE)
        catalog = ThemeCatalog(folder)
        catalog.scan()
        (folder / "mine.toml").unlink()
        assert catalog.scan().names == ("mine",)
        assert "mine" not in names(catalog)

    def test_user_theme_named_dark_replaces_the_builtin_one(self, folder: Path):
        save(folder / "dark.toml", DARK.replace("#4fca86", "#7fda96"))
        catalog = ThemeCatalog(folder)
        catalog.scan()
        assert names(catalog).count("dark") == 1
        assert catalog.themes[0].status.ok == "#7fda96"

    def test_second_file_with_a_used_theme_name_is_reported(self, folder: Path):
        save(folder / "a.toml", MINE)
        save(folder / "b.toml", MINE)
        (complaint,) = ThemeCatalog(folder).scan().complaints
        assert complaint == "theme b.toml: name 'mine' is already used by a.toml; choose another one"

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (b"name = = 1", "line 1"),
            (b"\xff\xfe", "not UTF-8"),
            (b"# " + b"x" * 70_000, "larger than 64.0 KiB"),
            (MINE.replace("#0f141b", "red").encode(), "colors.background"),
            (MINE.replace('"mine"', '"[bold]x"').encode(), "letters, digits"),
        ],
        ids=["toml", "bytes", "size", "colour", "name"],
    )
    def test_broken_theme_file_is_reported_once_in_one_line(self, folder: Path, data: bytes, message: str):
        (folder / "mine.toml").write_bytes(data)
        catalog = ThemeCatalog(folder)
        (complaint,) = catalog.scan().complaints
        assert complaint.startswith("theme mine.toml: ")
        assert message in complaint
        assert not catalog.scan()
        assert "mine" not in names(catalog)

    def test_theme_is_kept_when_its_file_becomes_invalid(self, folder: Path):
        save(folder / "mine.toml", MINE)
        catalog = ThemeCatalog(folder)
        catalog.scan()
        save(folder / "mine.toml", "name = 'mi")
        (complaint,) = catalog.scan().complaints
        assert complaint.endswith("its theme is unchanged")
        assert names(catalog)[-1] == "mine"

    def test_low_contrast_theme_is_reported_but_still_usable(self, folder: Path):
        save(folder / "mine.toml", MINE.replace("#96a2b4", "#303844"))
        catalog = ThemeCatalog(folder)
        (complaint,) = catalog.scan().complaints
        assert "muted on background has a contrast of 1." in complaint
        assert names(catalog)[-1] == "mine"

    def test_theme_folder_or_file_of_the_wrong_type_raises_no_exception(self, tmp_path, folder):
        (tmp_path / "file").write_text("")
        ThemeCatalog(tmp_path / "file").scan()
        (folder / "mine.toml").mkdir()
        (complaint,) = ThemeCatalog(folder).scan().complaints
        assert "directory" in complaint


class TestTheChoice:
    def test_chosen_theme_is_stored_and_read_back(self, tmp_path: Path):
        memory = tmp_path / "state" / "theme"
        assert ThemeCatalog(memory=memory).remember("light") == ""
        assert ThemeCatalog(memory=memory).chosen() == "light"

    @pytest.mark.parametrize("held", [b"", b"a-theme-that-is-gone", b"\xff\xff"], ids=["empty", "gone", "bytes"])
    def test_invalid_stored_theme_falls_back_to_the_default(self, tmp_path: Path, held: bytes):
        (tmp_path / "theme").write_bytes(held)
        assert ThemeCatalog(memory=tmp_path / "theme").chosen() == "dark"

    def test_unwritable_theme_choice_is_reported_as_not_saved(self, tmp_path: Path):
        (tmp_path / "file").write_text("")
        assert "not saved" in ThemeCatalog(memory=tmp_path / "file" / "theme").remember("light")


class TestOnTheScreen:
    async def test_theme_chosen_from_the_palette_is_restored_at_the_next_start(self, tmp_path: Path):
        catalog = ThemeCatalog(memory=tmp_path / "theme")
        async with running(demo().app(themes=catalog), "ctrl+p", *"theme terminal") as pilot:
            await accept(pilot, "Use the terminal theme")
            await until(pilot, lambda: pilot.app.theme == "gconsole-terminal")
        app = demo().app(themes=ThemeCatalog(memory=tmp_path / "theme"))
        assert app.theme == "gconsole-terminal"

    async def test_current_theme_is_reloaded_when_its_file_changes(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(theming, "RELOAD_EVERY_S", 0.05)
        save(folder / "mine.toml", MINE)
        app = demo().app(themes=ThemeCatalog(folder))
        async with running(app) as pilot:
            app.themes.use("mine")
            await until(pilot, lambda: app.screen.styles.background.hex == "#0F141B")
            save(folder / "mine.toml", MINE.replace("#0f141b", "#000000"))
            await until(pilot, lambda: app.screen.styles.background.hex == "#000000")
            (folder / "mine.toml").unlink()
            await until(pilot, lambda: app.theme == "gconsole-dark")
            assert "mine" not in app.themes.names

    async def test_broken_theme_is_reported_as_a_toast_without_a_crash(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(theming, "RELOAD_EVERY_S", 0.05)
        save(folder / "first.toml", "name = [")
        app = demo().app(themes=ThemeCatalog(folder))
        async with running(app, toasts=True) as pilot:
            await shows(pilot, "first.toml")
            save(folder / "second.toml", "[bold]")
            await shows(pilot, "second.toml")
            assert app.theme == "gconsole-dark"
