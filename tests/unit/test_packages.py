"""Installed packages, whose folders have other names in the repository."""

import re
import tomllib
from pathlib import Path

from gconsole import __version__

ROOT = Path(__file__).parents[2]


def test_pyproject_lists_every_source_package():
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    sources = {
        ".".join((name, *init.parent.relative_to(ROOT / folder).parts))
        for name, folder in setuptools["package-dir"].items()
        for init in (ROOT / folder).rglob("__init__.py")
    }
    assert sorted(sources) == sorted(setuptools["packages"]), "pyproject.toml, [tool.setuptools] packages"


def test_version_is_written_once():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["dynamic"] == ["version"] and "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "gconsole.__version__"}


def test_version_is_later_than_the_last_release_while_the_changelog_has_unreleased_changes():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    unreleased = re.search(
        r"^## \[Unreleased\]\n(.*?)^## \[(\d+)\.(\d+)\.(\d+)\] - \d{4}-\d\d-\d\d$", changelog, re.M | re.S
    )
    assert unreleased is not None
    released = tuple(map(int, unreleased.groups()[1:]))
    working = tuple(map(int, __version__.split(".")[:3]))
    assert working > released if unreleased[1].strip() else working == released
