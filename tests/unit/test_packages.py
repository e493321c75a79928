"""Installed packages, whose folders have other names in the repository."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_pyproject_lists_every_source_package():
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    sources = {
        ".".join((name, *init.parent.relative_to(ROOT / folder).parts))
        for name, folder in setuptools["package-dir"].items()
        for init in (ROOT / folder).rglob("__init__.py")
    }
    assert sorted(sources) == sorted(setuptools["packages"]), "pyproject.toml, [tool.setuptools] packages"
