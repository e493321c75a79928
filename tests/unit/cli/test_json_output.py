"""`--json`: every command that prints something has it, is listed with what it prints, and prints that."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest
from click.testing import CliRunner

from gconsole.cli.json_documents import DOCUMENTS, PRINTED
from gconsole.cli.main import COMMANDS, gconsole

SESSION = Path(__file__).parents[1] / "previous_release" / "session"
#: Commands without `--json`, and why.
WITHOUT = {
    "tui": "opens a screen",
    "link": "opens a screen",
    "replay": "opens a screen",
    "mcp": "stdout is the stream of the protocol",
    "completion": "prints a script for a shell to read",
}


def commands(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, with the words that call it; a group that also runs is one."""
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield name, command
    if isinstance(command, click.Group):
        for child in command.list_commands(click.Context(command)):
            inner = command.get_command(click.Context(command), child)
            assert inner is not None
            yield from commands(f"{name} {child}", inner)


EVERY = {
    name: command
    for first in COMMANDS
    for name, command in commands(first, gconsole.get_command(click.Context(gconsole), first))  # type: ignore[arg-type]
}


def test_every_command_prints_json_or_is_an_exception_with_a_reason() -> None:
    with_json = {name for name, command in EVERY.items() if any("--json" in option.opts for option in command.params)}
    assert with_json == set(PRINTED)
    assert set(EVERY) - with_json == set(WITHOUT)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("GCONSOLE_SESSIONS_FOLDER", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    shutil.copytree(SESSION, tmp_path / "night")
    (tmp_path / "hosts.toml").write_text('[[nodes]]\nhosts = "a"\n')
    return tmp_path


def printed(*args: str, code: int = 0) -> dict:
    run = CliRunner().invoke(gconsole, [*args, "--json"])
    assert run.exit_code == code, run.output
    document = json.loads(run.stdout)
    listed = PRINTED[next(name for name in (" ".join(args[:2]), args[0]) if name in PRINTED)]
    assert document["schema"] in listed
    types = {msgspec.structs.fields(kind)[0].default: kind for kind in DOCUMENTS}
    if document["schema"] in types:
        msgspec.convert(document, types[document["schema"]])
    return document


def test_operations_on_sessions_print_their_results(folder: Path) -> None:
    assert printed("sessions", "mark", "night", "lights out")["text"] == "lights out"
    renamed = printed("sessions", "rename", "night", "evening")
    assert (renamed["previous"], renamed["session"], renamed["path"]) == ("night", "evening", str(folder / "evening"))
    merged = printed("sessions", "merge", "evening", "--into", "all")
    assert merged["merged"] == ["evening"] and merged["records"] > 0
    compacted = printed("sessions", "compact", "all")
    assert compacted["records"] == merged["records"] and compacted["dropped_bytes"] is None
    assert printed("sessions", "compact", "all", "--drop-segments")["dropped_bytes"] > 0
    duckdb = printed("sessions", "duckdb", "all", "-o", "all.duckdb")
    assert (duckdb["output"], duckdb["records"], duckdb["damaged_bytes"]) == ("all.duckdb", merged["records"], 0)
    assert CliRunner().invoke(gconsole, ["export", "evening", "--json", "-o", "evening.json"]).exit_code == 0
    imported = printed("sessions", "import", "evening.json", "--name", "again")
    assert (imported["session"], imported["records"]) == ("again", merged["records"])
    recovered = printed("sessions", "recover", "again")["sessions"]
    assert [(entry["session"], entry["problem"]) for entry in recovered] == [("again", None)]
    assert printed("sessions", "recover")["sessions"] == []
    deleted = printed("sessions", "delete", "again", "--yes")["deleted"]
    assert deleted[0]["session"] == "again" and deleted[0]["bytes"] > 0
    assert not (folder / "again").exists()


def test_commands_that_set_gconsole_up_print_their_results(folder: Path) -> None:
    assert printed("config", "init", "new.toml")["path"] == "new.toml"
    keys = printed("config", "keys")
    assert any(action["id"] == "app.help" or action["keys"] for action in keys["actions"])
    added = printed("hosts", "add", "hosts.toml", "node[1-3]")
    assert (added["added"], added["removed"]) == (3, 0)
    assert printed("hosts", "remove", "hosts.toml", "node2")["removed"] == 1
    binaries = printed("bundle", "--list")["binaries"]
    assert {binary["name"] for binary in binaries} == {"py-spy"}
    assert all((binary["source"] is None) <= (binary["problem"] is not None) for binary in binaries)
    checks = printed("check", "--list")["checks"]
    assert checks and checks == json.loads(CliRunner().invoke(gconsole, ["check", "--json", "--list"]).stdout)["checks"]
    assert json.loads(CliRunner().invoke(gconsole, ["schema", "--json"]).stdout)["$id"] == "urn:gconsole:schema:1"


def test_unit_of_a_watch_is_printed_installed_and_removed_as_json(folder: Path) -> None:
    watch = ("watch", str(folder / "hosts.toml"))
    unit = printed(*watch, "--print")
    assert unit["action"] == "printed" and "[Service]" in unit["text"]
    assert printed(*watch, "--uninstall")["action"] == "absent"
    installed = printed(*watch, "--install")
    assert Path(installed["path"]).read_text() == installed["text"] and installed["next_steps"]
    assert printed(*watch, "--uninstall")["action"] == "removed"


def test_test_of_a_rule_prints_the_result_of_each_action(folder: Path) -> None:
    (folder / "hosts.toml").write_text(
        '[[nodes]]\nhosts = "a"\n[[watch.rule]]\nname = "page"\nkeep = true\nrun = ["true"]\n'
    )
    outcomes = printed("watch", str(folder / "hosts.toml"), "--test-rule", "page")["outcomes"]
    assert [(outcome["action"], outcome["is_ok"]) for outcome in outcomes] == [("keep", None), ("run", True)]


def test_reports_of_recordings_are_the_document_of_output_option(folder: Path) -> None:
    for command in (["diagnose", "night"], ["batch", "--from", "night"]):
        document = printed(*command)
        written = CliRunner().invoke(gconsole, [*command, "-o", "report.json"])
        assert written.exit_code == 0
        assert json.loads((folder / "report.json").read_text())["nodes"] == document["nodes"]
        refused = CliRunner().invoke(gconsole, [*command, "--json", "-o", "report.json"])
        assert refused.exit_code == 2 and "leave one of them out" in refused.output


def test_new_token_is_printed_and_one_of_a_file_is_not(folder: Path) -> None:
    api = ["api", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--for", "0s"]
    made = printed(*api)
    assert made["url"].startswith("http://127.0.0.1:") and len(made["token"]) >= 32 and made["access_file"] is None
    kept = printed(*api, "--token-file", "token")
    assert (kept["token"], kept["access_file"]) == (None, "token")
    assert (folder / "token").read_text().split()[0] not in json.dumps(kept)
