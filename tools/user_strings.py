"""All texts that a user of gconsole can read, in one document: tests/unit/text/user_strings.txt.

    python tools/user_strings.py            prints the document
    python tools/user_strings.py --update   writes it

Commands, configuration keys, keys, findings and HTTP operations come from their registries. All other texts are string
literals of the source: those that read as prose, and labels, which are arguments of the calls and fields in `LABELS`.
Texts are sorted within a room, so that moving a function does not change the document. `{name}` is a placeholder.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "tests" / "unit" / "text" / "user_strings.txt"
#: Calls whose string arguments are labels or messages also when they are a single word.
LABELS = frozenset(
    [
        "Action", "ColumnField", "Fact", "Panel", "PageItem", "Span", "Tab", "ViewSpec", "column_field", "echo",
        "glyph_of", "group", "notify", "plain", "show_note", "Prompt", "Confirm", "LinesDialog",
    ]
)  # fmt: skip
#: Calls whose label is not the first argument, with its position.
LABEL_POSITIONS = {"ColumnField": 1, "column_field": 1}
#: Keyword arguments that are labels or messages in any call.
LABEL_KEYWORDS = frozenset(["help", "label", "title", "hint", "text", "try_", "summary", "placeholder", "heading"])
#: Calls whose arguments no user reads: patterns, queries, scripts, file names.
MACHINE_CALLS = frozenset(
    [
        "TypeVar", "Path", "compile", "execute", "sql", "match", "fullmatch", "search", "sub", "findall", "get",
        "encode", "startswith", "endswith", "removeprefix", "removesuffix", "partition", "rpartition", "split",
        "rsplit", "strip", "lstrip", "rstrip", "replace", "getenv", "getLogger", "import_module", "getattr", "setattr",
        "hasattr", "set_interval", "run_worker", "query_one", "query", "Literal", "cast", "strftime", "strptime",
        "environ", "CDLL", "unpack", "pack", "pack_into", "unpack_from", "Struct", "calcsize", "fromhex", "NewType",
        "index", "count", "find", "rfind", "field",
    ]
)  # fmt: skip
#: Texts shorter than this are listed although a registry has them, too.
_SHORT = 12
_WORD = re.compile(r"(?<![{\w.])[A-Za-z][a-z]{1,}(?![\w}])")
#: Keyword arguments that name things for the program: tasks, widgets, styles.
_MACHINE_KEYWORDS = frozenset(["name", "id", "classes", "style", "group", "encoding", "pattern", "words"])
#: Queries; then style sheets, scripts, HTML, XML attributes, formats of records, and alternatives of a pattern.
_SQL = re.compile(
    r"^\s*\(?(SELECT|CREATE|WITH|COPY|INSERT|ATTACH|PRAGMA|SET|DROP|FROM|WHERE|ORDER BY|AND|OR|TRY_CAST|MAP|AVG"
    r"|LIST_\w+|READ_PARQUET)\b ?[\"{*(\w]|^[\w, \"]+ IN \(|^rx >="
)
_CODE = re.compile(
    r"[;{]\s*(\n|$)|^\s*[.#]?[\w-]+ ?\{[\w-]+:|^[\w.-]+/[\w.+-]+;|^#!|</?[a-z]+\d?[ >]|\bimport \w+|^<!"
    r"|^,? ?[\w-]+=[\"\w]|%\(\w+\)|default-src|\w\|[A-Z(\w]\w+.*[ |]|\\[.(]|^hsl\("
)


def main() -> int:
    """Print or update the document; returns the exit code."""
    text = document()
    if sys.argv[1:] == ["--update"]:
        DOCUMENT.write_text(text, encoding="utf-8")
    elif sys.argv[1:]:
        print("usage: python tools/user_strings.py [--update]", file=sys.stderr)
        return 2
    else:
        sys.stdout.write(text)
    return 0


def document() -> str:
    """The whole document."""
    sections = registries()
    seen = "\n".join(line for lines in sections.values() for line in lines)
    for room, texts in sorted(literals().items()):
        own = {text for text in texts if len(text) < _SHORT or _without_default(text) not in seen}
        lines = sorted(own, key=lambda text: (text.casefold().lstrip(" ({\"'"), text))
        if lines:
            sections[room] = lines
    head = "Every text that a user of gconsole can read. Made by tools/user_strings.py --update; do not edit.\n"
    parts = [
        f"\n== {title} ==\n" + "".join(f"{line.rstrip()}\n" for line in lines) for title, lines in sections.items()
    ]
    return head + "".join(parts)


def _without_default(text: str) -> str:
    """An option's help without the default, which click shows together with the range of values."""
    return text.partition("  [default")[0].replace(" ⏎ ", "\n")


# -- registries --------------------------------------------------------------------------------------------------------


def registries() -> dict[str, list[str]]:
    """Lines of the sections that come from registries, by title."""
    reference = _reference()
    from gconsole.analysis.finding import FINDINGS
    from gconsole.config import schema
    from gconsole.records.metrics import CATALOGUE
    from gconsole.tui.keymap.hints import every_action
    from gconsole.web.resources import OPERATIONS

    commands: list[str] = []
    for name, command, context in reference.commands():
        commands += [name, *_folded(command.help or ""), *_folded(command.epilog or "")]
        for option in command.get_params(context):
            row = option.get_help_record(context)
            if row is not None and (name == "gconsole" or not re.search(r"--(help|verbose|log-file)\b", row[0])):
                commands.append(f"  {row[0]}  {row[1]}")
    keys: list[str] = []
    for section in (*schema.sections(), *schema.ENTRIES):
        keys += [f"{section}.{key.name}  {key.help}" for key in schema.keys(section).values()]
    findings: list[str] = []
    for kind in FINDINGS:
        findings += [kind.id, f"  {kind.meaning}", f"  {kind.cause}", f"  {kind.remedy}"]
    figures: list[str] = []
    for record, metrics in CATALOGUE.items():
        for metric in metrics:
            texts = [metric.title, metric.filter and f"filter: {metric.filter.help}"]
            texts += [shown and f"{shown.title} ({shown.unit})" for shown in (metric.plot, metric.heat)]
            texts += [metric.prometheus and metric.prometheus.help]
            figures.append(f"{record.__name__}.{metric.name}  {'  '.join(dict.fromkeys(filter(None, texts)))}")
    return {
        "Commands and options": commands,
        "Configuration keys": keys,
        "Keys and command palette": [f"{action.id}  {action.label}  {action.help}" for action in every_action()],
        "Findings: meaning, causes, remedy": findings,
        "Figures: titles, filter, plots, Prometheus help": figures,
        "Page of gconsole serve": _page_texts(),
        "HTTP operations": [f"{operation.path}  {operation.summary}" for operation in OPERATIONS],
    }


def _page_texts() -> list[str]:
    """Texts of the page in the browser, with its labels for screen readers."""
    page = (ROOT / "console" / "web" / "terminal" / "page" / "console.html").read_text(encoding="utf-8")
    labels = re.findall(r'aria-label="([^"]+)"', page)
    texts = re.sub(r"<(?!/?(code|a)\b)[^>]*>", "\n", page)  # links and code stand within a sentence
    lines = re.sub(r"<[^>]*>", "", texts).split("\n")
    return labels + [" ".join(line.split()) for line in lines if re.search(r"[A-Za-z]{2}", line)]


def _reference() -> object:
    """The module that makes the reference pages, which stands beside this one."""
    spec = importlib.util.spec_from_file_location("reference", Path(__file__).with_name("reference.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _folded(text: str) -> list[str]:
    """The paragraphs of a help text, a line each; paragraphs that click does not wrap keep their lines."""
    lines: list[str] = []
    for block in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        lines += block.replace("\b", "").strip("\n").split("\n") if "\b" in block else [" ".join(block.split())]
    return [line for line in lines if line.strip()]


# -- literals of the source --------------------------------------------------------------------------------------------


def literals() -> dict[str, set[str]]:
    """Texts of the source by room: the folder below console/ or remote/, in the TUI and a view's folder one deeper."""
    rooms: dict[str, set[str]] = {}
    for package in ("console", "remote"):
        for path in sorted((ROOT / package).rglob("*.py")):
            folder = path.relative_to(ROOT).parent.parts[:4]
            tree = ast.parse(path.read_text(encoding="utf-8"))
            rooms.setdefault("/".join(folder), set()).update(texts_of(tree))
    return rooms


def texts_of(tree: ast.Module) -> Iterator[str]:
    """Texts of one module that a user can read, with line breaks as ⏎."""
    nodes: list[ast.AST] = [tree]
    parents: dict[ast.AST, ast.AST] = {}
    for node in nodes:  # grows
        children = list(ast.iter_child_nodes(node))
        parents.update(dict.fromkeys(children, node))
        nodes += children
    annotations = {id(part) for node in nodes for field in _annotations(node) for part in ast.walk(field)}
    for node in nodes:
        if id(node) in annotations:
            continue
        if isinstance(node, ast.JoinedStr):
            text = template(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if not _is_machine(node, parents) and (is_prose(text) or (is_label(text) and _is_labelled(node, parents))):
            lines = text.strip("\n").replace("\n", " ⏎ ")
            yield re.sub(r"[\x00-\x1f]", lambda match: f"\\x{ord(match[0]):02x}", lines)


def _annotations(node: ast.AST) -> list[ast.expr]:
    """Annotations of a function, an argument or a variable, which are texts where they are quoted."""
    fields = (getattr(node, "annotation", None), getattr(node, "returns", None))
    return [field for field in fields if isinstance(field, ast.expr)]


def template(node: ast.JoinedStr) -> str:
    """The text of an f-string with `{name}` for each value."""
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else "{" + _name(part.value) + "}"
        for part in node.values
        if isinstance(part, ast.Constant | ast.FormattedValue)
    )


def _name(value: ast.expr) -> str:
    """A short name of an expression: of a call, that of its first argument."""
    match value:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(args=[first, *_]) if not isinstance(first, ast.Constant | ast.GeneratorExp):
            return _name(first)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name
        case ast.Subscript(value=inner) | ast.Starred(value=inner) | ast.Await(value=inner):
            return _name(inner)
        case ast.BinOp(left=ast.Constant(value=str(text))):
            return text
        case ast.BinOp(left=inner):
            return _name(inner)
        case ast.IfExp(body=ast.Constant(value=str(first)), orelse=ast.Constant(value=str(second))):
            return f"{first}|{second}"
        case ast.IfExp(body=inner):
            return _name(inner)
        case ast.BoolOp(values=[inner, *_]):
            return _name(inner)
    return "…"


def is_prose(text: str) -> bool:
    """Whether it has two words, or a word beside a placeholder, and is neither a query, a style sheet nor a script."""
    if " " not in text.strip() or _SQL.match(text) or _CODE.search(text):
        return False
    plain = re.sub(r"\{[^}]*\}", "{}", text)
    words = _WORD.findall(plain)
    return len(words) >= 2 or (bool(words) and ("{}" in plain or "," in plain))


def is_label(text: str) -> bool:
    """Whether it has a letter sequence that reads as a word."""
    return bool(re.search(r"[A-Za-z]{2}", re.sub(r"\{[^}]*\}", "", text)))


def _is_labelled(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    """Whether it is an argument of a call in `LABELS`, or a keyword argument in `LABEL_KEYWORDS`."""
    parent = parents.get(node)
    while isinstance(
        parent, ast.IfExp | ast.JoinedStr | ast.FormattedValue | ast.BinOp | ast.BoolOp | ast.Tuple | ast.List
    ):
        parent = parents.get(parent)
    if isinstance(parent, ast.keyword):
        return parent.arg in LABEL_KEYWORDS
    return (
        isinstance(parent, ast.Call) and called(parent) in LABELS and parent.args[:1] != [] and _is_first(node, parent)
    )


def _is_first(node: ast.AST, call: ast.Call) -> bool:
    """Whether `node` is below the argument that is the text: the first one, unless `LABEL_POSITIONS` has another."""
    position = LABEL_POSITIONS.get(called(call), 0)
    return any(child is node for argument in call.args[position : position + 1] for child in ast.walk(argument))


def called(call: ast.Call) -> str:
    """The last part of the name of what is called."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _is_machine(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    """Whether no user reads it: docstrings, annotations, keys, compared values, arguments of `MACHINE_CALLS`."""
    parent = parents.get(node)
    if isinstance(parent, ast.Expr | ast.Compare | ast.Subscript | ast.JoinedStr):
        return True
    if isinstance(parent, ast.Dict) and node in parent.keys:
        return True
    while parent is not None and not isinstance(parent, ast.stmt):
        if isinstance(parent, ast.keyword) and parent.arg in _MACHINE_KEYWORDS:
            return True
        if isinstance(parent, ast.Call) and called(parent) in MACHINE_CALLS:
            return True
        parent = parents.get(parent)
    if isinstance(parent, ast.Assign):
        names = {name.id for name in ast.walk(parent) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)}
        return bool(names & {"DEFAULT_CSS", "CSS", "__all__"})
    return False


if __name__ == "__main__":
    sys.exit(main())
