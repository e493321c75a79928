"""`clean` removes only folders that are caches, and nothing that replaces them during the removal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gconsole_remote.agent import cache, cache_users
from gconsole_remote.agent import clean as cleaning


@pytest.fixture(autouse=True)
def only_the_configured_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits the search to the configured folder: the default ones may be in use by a console on this machine."""
    monkeypatch.setattr(cache, "places", lambda configured, uid: [configured] if configured else [])
    monkeypatch.setattr(cleaning, "_linger_folders", lambda uid: [])


def a_cache(path: Path) -> Path:
    """A cache as an agent leaves it: a binary, compiled code, a symlink."""
    cache.Cache(str(path))
    (path / "blob" / ("a" * 64)).write_text("x")
    (path / "code" / "deep").mkdir()
    (path / "code" / "deep" / "link").symlink_to(path.parent)
    return path


def user_folder(path: Path) -> Path:
    """A private folder with user data that is not a cache."""
    path.mkdir(0o700)
    (path / "blob").mkdir()
    (path / "blob" / "thesis").write_text("three years")
    return path


def clean(path: Path | str) -> dict[str, Any]:
    agent = SimpleNamespace(config={"cache_dir": str(path)}, context=SimpleNamespace(process_filter=None))
    return cleaning.clean(agent, {})


def link(there: Path, other: Path) -> None:
    there.symlink_to(other)


def move(there: Path, other: Path) -> None:
    other.rename(there)


@pytest.mark.parametrize("ending", ["", "/"])
def test_clean_removes_the_cache_without_following_symlinks(tmp_path: Path, ending: str) -> None:
    there = a_cache(tmp_path / "cache")
    beside = user_folder(tmp_path / "user_folder")
    assert clean(f"{there}{ending}")["removed"] == [f"{there}{ending}"]
    assert not there.exists() and (beside / "blob" / "thesis").exists()


@pytest.mark.parametrize("swap", [link, move])
def test_folder_swapped_in_during_clean_is_left_untouched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swap: Callable[[Path, Path], None]
) -> None:
    there, other = a_cache(tmp_path / "cache"), user_folder(tmp_path / "user_folder")
    who_uses = cache_users.users

    def swapped_meanwhile(root: str) -> Any:
        there.rename(tmp_path / "away")
        swap(there, other)
        return who_uses(root)

    monkeypatch.setattr(cache_users, "users", swapped_meanwhile)
    answer = clean(there)
    assert (there / "blob" / "thesis").read_text() == "three years"
    assert not list((tmp_path / "away").iterdir()), "the opened folder is emptied, wherever it was moved"
    [kept] = answer["kept"]
    assert kept["path"] == str(there) and "removal incomplete" in kept["why"]


def test_folder_with_foreign_files_is_not_cleaned(tmp_path: Path) -> None:
    there = a_cache(tmp_path / "cache")
    (there / "thesis").write_text("three years")
    answer = clean(there)
    assert answer["removed"] == [] and "'thesis'" in answer["kept"][0]["why"]
    assert sorted(path.name for path in there.iterdir()) == ["blob", "code", "run", "thesis"]


def test_folder_with_foreign_files_behind_a_symlinked_parent_is_not_cleaned(tmp_path: Path) -> None:
    """A user who can write to the parent folder replaces it with a symlink to a folder named like the cache."""
    user_folder(tmp_path / "cache")
    (tmp_path / "cache" / "letters").write_text("x")
    (tmp_path / "scratch").symlink_to(tmp_path)
    answer = clean(tmp_path / "scratch" / "cache")
    assert answer["removed"] == [] and "'letters'" in answer["kept"][0]["why"]
    assert (tmp_path / "cache" / "blob" / "thesis").exists()


def test_interrupted_clean_is_completed_by_the_next_one(tmp_path: Path) -> None:
    there = a_cache(tmp_path / "cache")
    (there / "run").rmdir()
    assert clean(there)["removed"] == [str(there)]
    there.mkdir(0o700)
    assert clean(there)["removed"] == [str(there)]
