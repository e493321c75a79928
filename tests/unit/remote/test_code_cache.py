"""Modules of the bundle are compiled once per node, in a child process, and later loaded from the code cache."""

import hashlib
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from gconsole_remote.agent.bootstrap import BundleImporter

SOURCE = b"answer = 6 * 7\n"


def a_bundle(*names: str, travels_as: bytes = SOURCE) -> dict[str, list[object]]:
    """Modules with the source SOURCE; `travels_as` is sent instead under the same digest."""
    return {name: [hashlib.sha256(SOURCE).hexdigest(), zlib.compress(travels_as), False] for name in names}


@pytest.fixture
def imported(monkeypatch: pytest.MonkeyPatch):
    """Imports a module with an importer; both are removed afterwards."""

    def load(importer: BundleImporter, name: str):
        monkeypatch.setattr(sys, "meta_path", [importer, *sys.meta_path])
        monkeypatch.delitem(sys.modules, name, raising=False)
        return __import__(name)

    yield load
    for name in ("kept_one", "kept_two"):
        sys.modules.pop(name, None)


def test_modules_missing_from_the_code_folder_are_compiled_before_the_first_import(tmp_path: Path):
    BundleImporter(a_bundle("kept_one")).use_code_dir(str(tmp_path))
    [kept] = tmp_path.iterdir()
    assert kept.name.startswith(hashlib.sha256(SOURCE).hexdigest()[:32])


def test_later_start_uses_the_cached_bytecode_instead_of_the_source(tmp_path: Path, imported):
    BundleImporter(a_bundle("kept_one")).use_code_dir(str(tmp_path))
    later = BundleImporter(a_bundle("kept_one", travels_as=b"answer = 0\n"))
    later.use_code_dir(str(tmp_path))
    assert imported(later, "kept_one").answer == 42


def test_modules_are_importable_when_the_code_folder_does_not_exist(tmp_path: Path, imported):
    importer = BundleImporter(a_bundle("kept_one"))
    importer.use_code_dir(str(tmp_path / "absent"))
    assert imported(importer, "kept_one").answer == 42


def test_source_is_compiled_on_import_without_a_code_folder(imported):
    importer = BundleImporter(a_bundle("kept_two"))
    importer.use_code_dir(None)
    assert imported(importer, "kept_two").answer == 42


def test_agent_start_module_imports_only_the_cache_module():
    code = (
        "import sys, gconsole_remote.agent.start_agent\n"
        "print(*(name for name in sorted(sys.modules) if name.startswith('gconsole_')))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=90).stdout
    assert output.split() == [
        "gconsole_remote",
        "gconsole_remote.agent",
        "gconsole_remote.agent.cache",
        "gconsole_remote.agent.start_agent",
    ]
