"""Reference pages of the documentation, generated from the code: CLI, hosts.toml, records, findings, keys, HTTP.

`mkdocs build` calls `on_files` (mkdocs.yml, hooks); `python tools/reference.py man FILE` writes the manual page.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

EXIT_CODES = (
    ("0", "nothing at or above `--fail-on` (default: `error`)"),
    ("1", "a finding at or above `--fail-on`"),
    ("2", "usage or configuration error"),
    ("3", "partial: nodes or ranks were not seen, or jobs or Python processes that may be jobs were not judged"),
    ("4", "nothing reachable"),
    ("5", "internal error; one line names the log file"),
    ("130", "interrupted (Ctrl-C)"),
)
#: Commands with a meaning of their own for 1, 3 or further codes.
OWN_EXIT_CODES = (
    ("check", "1: a check failed; 3: some nodes or their GPUs were not judged"),
    ("diff", "1: the sessions differ in nodes, facts or findings"),
    ("sessions verify", "1: damaged, torn or missing records"),
    ("sessions compact", "1: a damaged segment was skipped"),
    ("run plan", "1: the job cannot start"),
    ("run start", "1: not started; 3: not started, and the cleanup is not confirmed; with `--follow` as `run wait`"),
    ("run wait", "the code of the first node that failed (128 + N for signal N); 124: `--timeout` passed"),
    ("run logs", "3: some nodes could not be read"),
    ("run stop", "1: processes remain, or not confirmed; 3: some nodes were not reached"),
    ("run fetch", "3: some nodes failed"),
)
FILES = (
    ("hosts.toml", "nodes and settings; the default TARGET in the current folder"),
    ("~/.config/gconsole/keys.toml", "keys of the TUI; gconsole config keys prints the defaults"),
    ("~/.config/gconsole/themes/", "themes of the TUI"),
    ("~/.local/share/gconsole/sessions/", "recorded sessions"),
    ("~/.local/state/gconsole/gconsole.log", "log, secrets redacted"),
)
ENVIRONMENT = (
    (
        "GCONSOLE_SECTION_KEY",
        "sets a key of hosts.toml, e.g. GCONSOLE_SSH_PORT; --set wins over it, it wins over the file",
    ),
    ("GCONSOLE_SESSIONS_FOLDER", "folder of the sessions"),
    (
        "XDG_CONFIG_HOME, XDG_DATA_HOME, XDG_STATE_HOME, XDG_CACHE_HOME",
        "folders used in place of the defaults on Linux",
    ),
)
#: Upper limits from which on a range has none for a reader.
UNBOUNDED, UNBOUNDED_BYTES = 1e9, 1 << 60


def pages() -> dict[str, str]:
    """Markdown of every generated page by its path below the documentation folder."""
    return {
        "reference/cli.md": cli_page(),
        "reference/hosts-toml.md": config_page(),
        "reference/records.md": records_page(),
        "reference/findings.md": findings_page(),
        "reference/checks.md": checks_page(),
        "reference/exit-codes.md": exit_codes_page(),
        "reference/keys.md": keys_page(),
        "reference/http.md": http_page(),
        "reference/json.md": json_page(),
    }


def commands() -> Iterator[tuple[str, click.Command, click.Context]]:
    """Every command and subcommand as (full name, command, context), in the order of `gconsole --help`."""
    from gconsole.cli.main import gconsole

    root = click.Context(gconsole, info_name="gconsole", **gconsole.context_settings)

    def walk(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command, click.Context]]:
        yield context.command_path, command, context
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                if child is not None and not child.hidden:
                    yield from walk(child, click.Context(child, info_name=name, parent=context))

    return walk(gconsole, root)


def cli_page() -> str:
    """`reference/cli.md`: the help of every command."""
    parts = ["# Commands\n\nEvery command also takes `-v`, `-vv` and `--log-file FILE`.\n"]
    for name, command, context in commands():
        parts.append(f"## {name}\n\n{_paragraphs(command.help or '')}\n\n```text\n{_usage(command, context)}\n```\n")
        if command.epilog:
            parts.append(_paragraphs(command.epilog) + "\n")
        rows = [option.get_help_record(context) for option in command.get_params(context)]
        options = [row for row in rows if row and row[1] and not re.search(r"--(help|verbose|log-file)\b", row[0])]
        if options:
            parts.append(_table(("option", "meaning"), ((f"`{flag}`", text) for flag, text in options)))
    return "\n".join(parts)


def config_page() -> str:
    """`reference/hosts-toml.md`: every section and key."""
    from gconsole.config import schema

    parts = [
        "# hosts.toml\n\nEvery key can also be set by its environment variable or with `--set SECTION.KEY=VALUE`; "
        "flags win over variables, variables over the file. Keys marked *per node* may stand in a `[[nodes]]` entry.\n"
    ]
    names = [*schema.sections(), *schema.ENTRIES]
    for section in names:
        title = f"[[{section}]]" if section in schema.ENTRIES else f"[{section}]"
        rows = [
            (
                f"`{key.name}`",
                _kind(key),
                "required" if key.required else "unset" if key.default is None else f"`{schema.written(key.default)}`",
                _key_help(key) + (" *per node*" if key.per_node else ""),
                "" if section in schema.ENTRIES else f"`{key.variable}`",
            )
            for key in schema.keys(section).values()
        ]
        note = "DCGM: a limit of NVIDIA DCGM's health checks; default: chosen by gconsole.\n\n" * (section == "health")
        parts.append(
            f"## {title}\n\n{note}" + _table(("key", "type and range", "default", "meaning", "variable"), rows)
        )
    return "\n".join(parts)


def records_page() -> str:
    """`reference/records.md`: the data dictionary."""
    from gconsole.records import KINDS
    from gconsole.session.format import table_schema

    parts = ["# Record kinds\n\nUnits are in the field names. Unknown values are `null`. `gconsole schema` prints the "
             "JSON schema.\n"]  # fmt: skip
    for kind in sorted(KINDS):
        rows = [(f"`{word.field}`", word.unit, word.meaning) for word in table_schema.words_of(kind)]
        parts.append(f"## {kind}\n\n{table_schema.meaning_of(kind)}\n\n" + _table(("field", "unit", "meaning"), rows))
    return "\n".join(parts)


def findings_page() -> str:
    """`reference/findings.md`: every finding with cause and remedy."""
    from gconsole.analysis.finding import FINDINGS

    parts = ["# Findings\n\nIds are stable: `--fail-on`, filters and reports use them.\n"]
    for kind in FINDINGS:
        parts.append(f"## {kind.id}\n\n{_sentence(kind.meaning)}\n\n**Usual causes.** {kind.cause}\n")
        parts.append(f"**What to do.** {kind.remedy}\n")
    return "\n".join(parts)


def checks_page() -> str:
    """`reference/checks.md`: every check of `gconsole check`."""
    from gconsole.analysis.checks.table import CHECKS

    parts = [
        "# Checks\n\n`gconsole check` evaluates every check once on every node. A check passes, fails, is `unknown` "
        "if the node does not report what it needs, or `absent` if the node has no such device.\n"
    ]
    rows = [(f"`{check.id}`", check.what, check.source, check.limit, check.severity, check.owner, check.remedy)
            for check in CHECKS]  # fmt: skip
    parts.append(_table(("check", "what", "source", "passes", "severity", "owner", "remedy"), rows))
    return "\n".join(parts)


def exit_codes_page() -> str:
    """`reference/exit-codes.md`."""
    return (
        "# Exit codes\n\nThe same for every headless command. Where several hold: 2, 5, 4, 1, 3, 0.\n\n"
        + _table(("code", "meaning"), EXIT_CODES)
        + "\n## Codes of their own\n\nFor these commands the codes below differ; the other codes hold.\n\n"
        + _table(("command", "codes"), ((f"`{name}`", text) for name, text in OWN_EXIT_CODES))
    )


def keys_page() -> str:
    """`reference/keys.md`: every action with its key and its id for keys.toml."""
    actions = importlib.import_module("gconsole.tui.keymap.actions")
    parts = ["# Keys\n\nIds are for `keys.toml` in the configuration folder, which changes the keys of an action.\n"]
    scopes = dict.fromkeys(action.scope for action in actions.ACTIONS)
    for scope in scopes:
        rows = [
            (actions.key_names(action.keys) or "palette only", _help_of(action), f"`{action.id}`")
            for action in actions.in_scope(scope)
        ]
        parts.append(f"## {scope}\n\n" + _table(("key", "action", "id"), rows))
    views = [view.action for view in importlib.import_module("gconsole.tui.views.registry").VIEWS]
    rows = [(actions.key_names(action.keys), _help_of(action), f"`{action.id}`") for action in views]
    parts.insert(1, "## views\n\n" + _table(("key", "action", "id"), rows))
    return "\n".join(parts)


def http_page() -> str:
    """`reference/http.md`: every operation of `gconsole api`."""
    from gconsole.web.openapi import described
    from gconsole.web.resources import OPERATIONS

    rows = []
    for operation in described(OPERATIONS):
        method = getattr(operation, "method", "GET")
        rows.append((f"`{method} {operation.path}`", _sentence(operation.summary)))
    return (
        "# HTTP API\n\n`gconsole api TARGET` serves it; every request carries the token as a bearer token. "
        "In a browser, the token is the password of any user name. `/openapi.json` describes requests and answers.\n\n"
        + _table(("operation", "meaning"), rows)
    )


def json_page() -> str:
    """`reference/json.md`: what every command prints with `--json`."""
    documents = importlib.import_module("gconsole.cli.json_documents")
    parts = [
        "# JSON output\n\nEvery command that prints something takes `--json`; the document goes to stdout, progress and"
        " warnings to stderr, and exit codes stay the same. An unknown value is `null`. Secrets are hidden. The number"
        " in `schema` changes when a key is removed or gets another meaning; new keys may be added without that."
        " `gconsole schema` prints the JSON schema of records, reports, topologies, exported sessions, and of the"
        " documents below.\n",
        _table(("command", "prints"), ((f"`{name}`", text) for name, text in documents.PRINTED.items())),
    ]
    pattern = re.compile(r"^    (\w+): ([^#=\n]*?)(?: = .*?)?(?:  # (.*))?$", re.MULTILINE)
    for document in documents.DOCUMENTS:
        rows = pattern.findall(inspect.getsource(document))
        fields = [(f"`{name}`", f"`{kind}`", meaning) for name, kind, meaning in rows if name != "schema"]
        for part in (getattr(documents, word, None) for row in rows for word in re.findall(r"\w+", row[1])):
            if inspect.isclass(part):
                inner = pattern.findall(inspect.getsource(part))
                fields += [(f"`{part.__name__}.{name}`", f"`{kind}`", meaning) for name, kind, meaning in inner]
        title = re.search(r'schema: Literal\["(.*?)"\]', inspect.getsource(document))
        head = f"## {title[1] if title else ''}\n\n{_paragraphs(document.__doc__)}\n\n"
        parts.append(head + _table(("key", "type", "meaning"), fields))
    return "\n".join(parts)


def man_page() -> str:
    """The manual page gconsole(1) in roff."""
    from gconsole import __version__

    lines = [f'.TH GCONSOLE 1 "" "gconsole {__version__}"']
    for name, command, context in commands():
        if name == "gconsole":
            lines += [
                ".SH NAME",
                r"gconsole \- diagnose hung or slow distributed training jobs over SSH",
                ".SH SYNOPSIS",
            ]
            lines += [_roff(_usage(command, context)), ".SH DESCRIPTION", _roff_help(command.help or "")]
            lines += [".PP", _roff_help(command.epilog or ""), ".SH OPTIONS", *_roff_options(command, context)]
            lines.append(".SH COMMANDS")
            continue
        lines += [f".SS {_roff(_usage(command, context))}", _roff_help(command.help or "")]
        lines += [".PP", _roff_help(command.epilog)] if command.epilog else []
        lines += _roff_options(command, context)
    lines.append(".SH EXIT STATUS")
    for code, meaning in EXIT_CODES:
        lines += [".TP", f".B {code}", _roff(meaning.replace("`", ""))]
    for title, rows in (("EXIT STATUS OF COMMANDS", OWN_EXIT_CODES), ("FILES", FILES), ("ENVIRONMENT", ENVIRONMENT)):
        lines.append(f".SH {title}")
        for name, meaning in rows:
            lines += [".TP", f".B {_roff(name)}", _roff(meaning.replace("`", ""))]
    return "\n".join(lines) + "\n"


def on_files(files: Any, config: Any) -> Any:
    """Hook of mkdocs: add the generated pages."""
    from mkdocs.structure.files import File

    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def _usage(command: click.Command, context: click.Context) -> str:
    return command.get_usage(context).removeprefix("Usage: ")


def _help_of(action: Any) -> str:
    return _sentence(getattr(action, "help", None) or getattr(action, "tells", ""))


def _roff_options(command: click.Command, context: click.Context) -> Iterator[str]:
    for option in command.get_params(context):
        row = option.get_help_record(context)
        if row is not None and row[1]:
            yield from (".TP", f".B {_roff(row[0])}", _roff(row[1]))


def _roff_help(help_text: str) -> str:
    """The help of a command in roff; paragraphs that click must not wrap are not filled."""
    paragraphs = []
    for block in re.split(r"\n\n+", inspect.cleandoc(help_text)):
        is_fixed = block.startswith("\b")
        text = _roff(block[1:].strip("\n") if is_fixed else block)
        paragraphs.append(f".nf\n{text}\n.fi" if is_fixed else text)
    return "\n.PP\n".join(paragraphs)


def _paragraphs(help_text: str) -> str:
    """The help of a command as Markdown; paragraphs that click must not wrap become code."""
    blocks = []
    for block in re.split(r"\n\n+", inspect.cleandoc(help_text)):
        if block.startswith("\b"):
            blocks.append("```text\n" + "\n".join(line.strip() for line in block[1:].strip("\n").split("\n")) + "\n```")
        else:
            blocks.append(re.sub(r"\s+", " ", block))
    return "\n\n".join(blocks)


def _kind(key: Any) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "text", tuple: "list of texts"}
    if key.choices:
        return " or ".join(f"`{choice}`" for choice in key.choices)
    low, high = key.minimum, key.maximum
    if low is None:
        span = ""
    elif high is None or high >= (UNBOUNDED_BYTES if key.name.endswith("_bytes") else UNBOUNDED):
        span = f", at least {_bound(key, low)}"
    else:
        span = f", {_bound(key, low)} to {_bound(key, high)}"
    return names[key.kind] + span + (f", {key.form}" if key.form else "")


def _bound(key: Any, bound: float) -> str:
    if key.name.endswith("_bytes"):
        from gconsole.text.format import size

        return size(bound).replace(".0 ", " ")
    return str(int(bound) if bound == int(bound) else bound)


def _key_help(key: Any) -> str:
    """The help of a key as a sentence, its values and file names as code."""
    values = {bool: ("true", "false")}.get(key.kind, key.choices) or ()
    text = key.help
    for value in values:
        text = re.sub(rf"(?<![\w\"`-]){re.escape(str(value))}(?=:|, \w+:|; off|$)", f"`{value}`", text)
    return _sentence(re.sub(r"^\w+_\w+", r"`\g<0>`", text))


def _sentence(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "!")) or not text else ".")


def _table(head: tuple[str, ...], rows: Any) -> str:
    def cell(text: str) -> str:
        return re.sub(r"\s+", " ", str(text)).replace("|", r"\|")

    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(map(cell, row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _roff(text: str) -> str:
    escaped = text.replace("\\", r"\\").replace("-", r"\-")
    return "\n".join("\\&" + line if line.startswith((".", "'")) else line for line in escaped.split("\n"))


def main() -> int:
    if len(sys.argv) == 3 and sys.argv[1] == "man":
        Path(sys.argv[2]).write_text(man_page(), encoding="utf-8")
        return 0
    print("usage: python tools/reference.py man FILE", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
