"""`import gconsole`: what it loads, and which names it has."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import gconsole

HEAVY = ("textual", "asyncssh", "pandas", "duckdb", "numpy", "asyncio")
STUB = Path(gconsole.__file__).with_suffix(".pyi")


def loaded_by(statements: str) -> list[str]:
    code = f"{statements}\nimport sys\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_import_loads_nothing_that_takes_time():
    assert loaded_by("import gconsole; gconsole.__version__; dir(gconsole)") == []


@pytest.mark.slow
def test_opening_a_file_loads_neither_the_screen_nor_ssh_nor_pandas(tmp_path):
    (tmp_path / "night.ndjson").write_bytes(b"")
    loaded = loaded_by(f"import gconsole; list(gconsole.open({str(tmp_path / 'night.ndjson')!r}).records())")
    assert not {"textual", "asyncssh", "pandas"} & set(loaded)


@pytest.mark.slow
def test_connecting_loads_neither_the_screen_nor_pandas_and_ssh_only_for_a_node_that_needs_it():
    loaded = loaded_by("import gconsole; gconsole.connect_async('node[1-2]')")
    assert "asyncio" in loaded
    assert not {"textual", "pandas", "asyncssh"} & set(loaded)


@pytest.mark.slow
def test_every_public_name_is_in_the_stub_and_can_be_imported():
    tree = ast.parse(STUB.read_text())
    imported = {alias.asname for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert imported | {"GconsoleError", "__version__"} == set(gconsole.__all__)
    for name in gconsole.__all__:
        assert getattr(gconsole, name) is not None
    assert set(gconsole.__all__) <= set(dir(gconsole))


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'disconnect'"):
        gconsole.disconnect  # noqa: B018


@pytest.mark.slow
def test_every_error_that_names_what_to_try_has_the_same_base():
    for name in ("ConfigError", "SessionError", "QueryError", "NoNodeReached", "NothingSelected"):
        assert issubclass(getattr(gconsole, name), gconsole.GconsoleError)


def test_package_is_marked_as_typed():
    assert (STUB.parent / "py.typed").exists()
