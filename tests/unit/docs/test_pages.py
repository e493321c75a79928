"""Documentation: complete against the tables in the code, no dead links, only existing commands."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import inspect
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import click
import pytest

import gconsole as gconsole_package
from gconsole.analysis.checks.table import CHECKS
from gconsole.analysis.finding import IDS
from gconsole.cli import main
from gconsole.cli.main import gconsole
from gconsole.config import schema
from gconsole.records import KINDS
from gconsole.runtime.blocking import ConnectedFleet, FindingStream
from gconsole.runtime.recorded import RecordedSession, RecordedState
from gconsole.runtime.results import SqlResult, StackCapture
from gconsole.tui.keymap.actions import ACTIONS
from gconsole.tui.views.registry import VIEWS
from gconsole.web.openapi import described
from gconsole.web.resources import OPERATIONS

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
WRITTEN = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG", "SECURITY")),
    *sorted(DOCS.rglob("*.md")),
]
README_LINES = 150


@cache
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "tools" / "reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def pages() -> dict[str, str]:
    """Text of every page by its path below docs/, both written and generated."""
    written = {path.relative_to(DOCS).as_posix(): path.read_text() for path in DOCS.rglob("*.md")}
    generated: dict[str, str] = reference().pages()
    assert written.keys().isdisjoint(generated)
    return written | generated


def nav() -> list[str]:
    """Pages in the navigation of mkdocs.yml."""
    text = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    return re.findall(r"^\s*- (?:[^:\n]+: )?(\S+\.md)$", text, re.MULTILINE)


def headings(text: str) -> list[str]:
    return re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)


def anchors(text: str) -> set[str]:
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings(text))
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip()) for heading in plain}


# -- the reference is complete -----------------------------------------------------------------------------------------


def command_names(command: click.Command, name: str) -> Iterator[str]:
    yield name
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=name, **command.context_settings)
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            if found is not None and not found.hidden:
                yield from command_names(found, f"{name} {child}")


def test_every_command_has_a_place_in_the_reference() -> None:
    assert set(command_names(gconsole, "gconsole")) == set(headings(pages()["reference/cli.md"])[1:])


def test_every_option_is_listed_with_its_command() -> None:
    text = pages()["reference/cli.md"]
    sections = {part.partition("\n")[0]: part for part in text.split("\n## ")[1:]}
    for name, command, _ in reference().commands():
        options = [param for param in command.params if isinstance(param, click.Option) and not param.hidden]
        for option in options:
            if option.opts[0] not in ("-v", "--verbose", "--log-file"):
                assert re.search(rf"`[^`\n]*{re.escape(option.opts[-1])}\b", sections[name]), (name, option.opts)


def test_the_manual_page_has_every_command_and_exit_code() -> None:
    text = reference().man_page().replace("\\-", "-")
    usages = [usage.split(" [OPTIONS]")[0] for usage in re.findall(r"^\.SS (.*)$", text, re.MULTILINE)]
    assert {"gconsole", *usages} == set(command_names(gconsole, "gconsole"))
    for code, _ in reference().EXIT_CODES:
        assert f"\n.B {code}\n" in text
    for option in ("-V, --version", "-v, --verbose", "--log-file FILE", "-h, --help"):
        assert f"\n.B {option}\n" in text.partition("\n.SH OPTIONS\n")[2].partition("\n.SH COMMANDS\n")[0]
    assert "\n.SH FILES\n" in text and "\n.SH ENVIRONMENT\n" in text and "TARGET: a hosts.toml" in text


def test_exit_codes_of_their_own_are_those_of_existing_commands() -> None:
    names = set(command_names(gconsole, "gconsole"))
    assert [name for name, _ in reference().OWN_EXIT_CODES if f"gconsole {name}" not in names] == []


def test_every_configuration_key_has_a_place_in_the_reference() -> None:
    text = pages()["reference/hosts-toml.md"]
    sections = {part.partition("\n")[0].strip("[]"): part for part in text.split("\n## ")[1:]}
    assert set(sections) == {*schema.sections(), *schema.ENTRIES}
    missing = [
        f"{name}.{key}" for name in sections for key in schema.keys(name) if f"\n| `{key}` |" not in sections[name]
    ]
    assert missing == []


def test_every_record_kind_and_field_has_a_place_in_the_reference() -> None:
    sections = {part.partition("\n")[0]: part for part in pages()["reference/records.md"].split("\n## ")[1:]}
    assert set(sections) == set(KINDS)
    missing = [
        f"{kind}.{field}"
        for kind, struct in KINDS.items()
        for field in struct.__struct_encode_fields__
        if f"\n| `{field}` |" not in sections[kind]
    ]
    assert missing == []


def test_every_finding_has_cause_and_remedy_in_the_reference() -> None:
    sections = {part.partition("\n")[0]: part for part in pages()["reference/findings.md"].split("\n## ")[1:]}
    assert set(sections) == set(IDS)
    for text in sections.values():
        assert re.search(r"\*\*Usual causes\.\*\* \S", text) and re.search(r"\*\*What to do\.\*\* \S", text)


def test_every_node_check_is_in_the_reference_with_its_limit_and_remedy() -> None:
    page = pages()["reference/checks.md"]
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == [check.id for check in CHECKS]
    assert all(check.limit in page and check.remedy in page for check in CHECKS)


def test_every_key_has_a_place_in_the_reference() -> None:
    assert sorted(re.findall(r"\| `([\w.]+)` \|$", pages()["reference/keys.md"], re.MULTILINE)) == sorted(
        action.id for action in (*ACTIONS, *(view.action for view in VIEWS))
    )


def test_every_http_operation_has_a_place_in_the_reference() -> None:
    listed = re.findall(r"^\| `(\w+) (\S+)` \|", pages()["reference/http.md"], re.MULTILINE)
    assert sorted(path for _, path in listed) == sorted(operation.path for operation in described(OPERATIONS))


def test_every_exit_code_has_a_place_in_the_reference() -> None:
    listed = re.findall(r"^\| (\d+) \|", pages()["reference/exit-codes.md"], re.MULTILINE)
    codes = [code for name, code in vars(main).items() if name.startswith("EXIT_")]
    assert sorted(map(int, listed)) == sorted(codes)


def test_every_view_is_in_the_guide_with_its_key() -> None:
    listed = re.findall(r"^\| `(\w)` \| (\w+) \|", pages()["guide/views.md"], re.MULTILINE)
    assert listed == [(view.key, view.title) for view in VIEWS]


# -- pages and links ---------------------------------------------------------------------------------------------------


def test_every_public_name_of_the_python_interface_is_in_its_guide() -> None:
    page = pages()["guide/python.md"]
    names = [name for name in gconsole_package.__all__ if not name.startswith("__")]
    for kind in (ConnectedFleet, RecordedSession, RecordedState, StackCapture, SqlResult, FindingStream):
        names += [name for name in vars(kind) if not name.startswith("_")]
    missing = [name for name in names if not re.search(rf"\b{name}\b", page)]
    assert missing == []


def test_every_name_in_the_reference_of_the_python_interface_exists() -> None:
    reference_table = pages()["guide/python.md"].partition("## Reference")[2]
    holders = {"fleet": ConnectedFleet, "session": RecordedSession}
    for name, signature in re.findall(r"^\| `(\w+)\(([^)`]*)\)`", reference_table, re.MULTILINE):
        parameters = inspect.signature(getattr(gconsole_package, name)).parameters
        assert set(re.findall(r"(\w+)=", signature)) <= set(parameters), name
    for holder, name, signature in re.findall(r"`(fleet|session)\.(\w+)\(([^)`]*)\)`", reference_table):
        parameters = inspect.signature(getattr(holders[holder], name)).parameters
        assert set(re.findall(r"(\w+)=", signature)) <= set(parameters), name


@pytest.mark.parametrize("number", range(5))
def test_python_examples_of_the_guide_are_valid(number: int) -> None:
    block = re.findall(r"^```python\n(.*?)^```", pages()["guide/python.md"], re.MULTILINE | re.DOTALL)[number]
    compile(block, "guide/python.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_the_navigation_has_every_page_once() -> None:
    assert sorted(nav()) == sorted(pages())


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_internal_link_is_dead(path: Path) -> None:
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    dead = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith(("https://", "http://")):
            continue
        target, _, anchor = link.partition("#")
        file = (path.parent / target).resolve() if target else path
        name = os.path.relpath(file, DOCS)
        known = pages().get(name) or (file.read_text() if file.suffix == ".md" and file.is_file() else None)
        if (known is None and not file.exists()) or (anchor and anchor not in anchors(known or "")):
            dead.append(link)
    assert dead == []


def test_the_readme_has_at_most_150_lines() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_repository_paths_named_on_a_page_exist(path: Path) -> None:
    named = re.findall(r"`((?:console|remote|tests|tools|docs)/[\w/.-]+)`", path.read_text())
    assert [name for name in named if not (ROOT / name.replace("NAME/", "")).exists()] == []


def test_module_members_named_on_a_page_exist_in_that_module() -> None:
    pattern = re.compile(r"`(\w+)`(?:\)|,)? (?:of|to|from|in|in a file of)\s+`((?:console|remote|tests)/[\w/]+\.py)`")
    for page in ("adding-a-view.md", "adding-a-record.md", "adding-a-finding.md"):
        named = pattern.findall(pages()[page])
        assert named, page
        assert [(name, file) for name, file in named if not re.search(rf"\b{name}\b", (ROOT / file).read_text())] == []


# -- commands ----------------------------------------------------------------------------------------------------------


def command_lines() -> Iterator[tuple[str, list[str]]]:
    """(page, words) of every `gconsole …` line in a shell block."""
    for path in WRITTEN:
        for block in re.findall(r"^ *```sh\n(.*?)^ *```", path.read_text(), re.DOTALL | re.MULTILINE):
            for line in block.splitlines():
                for part in re.split(r"\||&&|;|>", line.partition(" #")[0].strip()):
                    if part.strip().startswith("gconsole "):
                        yield path.name, shlex.split(part)[1:]


def test_every_command_that_a_page_shows_exists_with_its_options() -> None:
    lines = list(command_lines())
    assert len(lines) > 60
    for page, words in lines:
        command: click.Command = gconsole
        context = click.Context(gconsole, info_name="gconsole", **gconsole.context_settings)
        while isinstance(command, click.Group) and words and words[0] in command.list_commands(context):
            child = command.get_command(context, words.pop(0))
            assert child is not None
            command, context = child, click.Context(child, parent=context)
        assert not isinstance(command, click.Group) or words, (page, words)
        given = words[: words.index("--")] if "--" in words else words
        options = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
        unknown = [word for word in given if re.match(r"--?[a-z]", word) and word.partition("=")[0] not in options]
        assert unknown == [], (page, words)


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_commands_and_options_named_in_text_exist(path: Path) -> None:
    text = re.sub(r"^ *```.*?^ *```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    names = set(command_names(gconsole, "gconsole"))
    own = {name: _flags(command) for name, command, _ in reference().commands()}
    wrong = []
    for span in re.findall(r"`([^`\n]*--[a-z][^`\n]*|gconsole [^`\n]*)`", text):
        words = span.removeprefix("gconsole ").split()
        command = "gconsole"
        while words and f"{command} {words[0]}" in names:
            command += f" {words.pop(0)}"
        given = {re.split(r"[=,|\]]", word)[0] for word in words if word.startswith("--") and len(word) > 2}
        is_command = command != "gconsole" or span.startswith("gconsole ")
        allowed = own[command] if command != "gconsole" else set().union(*own.values())
        if span.startswith("--") or is_command:
            wrong += [(span, flag) for flag in given if flag not in allowed]
    assert wrong == []


def _flags(command: click.Command) -> set[str]:
    return {"--help", *(name for param in command.params for name in (*param.opts, *param.secondary_opts))}


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    if importlib.util.find_spec("material") is None or importlib.util.find_spec("mkdocs") is None:
        pytest.skip("mkdocs-material is not installed (extra `docs`)")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "guide/hang/index.html").is_file()
    assert (tmp_path / "reference/records/index.html").is_file()


def test_the_release_page_lists_the_binaries_of_both_architectures_with_their_hashes() -> None:
    text = (DOCS / "releases.md").read_text()
    for name in ("py_spy",):
        version = importlib.metadata.version(name)
        for arch in ("x86_64", "aarch64"):
            assert re.search(rf"`{name}-{version}-\S+{arch}\.whl` \| `[0-9a-f]{{64}}`", text), (name, arch)
