"""Prints the figures of the structure with their goals, and checks them.

    python -m tests.structure              all figures
    python -m tests.structure console/tui  violations below one folder, with file and line
    python -m tests.structure --check      exit status 1 and the places if a goal is missed (but those of size)

Rules: one public class name per package, no banned word in a public name, a docstring on every public name, annotated
functions, no loose module at the top of `console/`, no file over 500 lines, no import from a lower layer to an upper.
"""

from __future__ import annotations

import ast
import gc
import re
import statistics
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
PACKAGES = ("console", "remote")
#: What `console/__init__.py` itself defines and rooms import.
OWN_NAMES = frozenset({"__version__", "GconsoleError"})
LOOSE = {"__init__.py", "__main__.py"}
#: Words that say nothing to a reader who does not know this code; none may be a part of a public name.
BANNED_PARTS = frozenset(
    [
        "look",
        "looks",
        "told",
        "tell",
        "tells",
        "said",
        "say",
        "saying",
        "says",
        "hear",
        "heard",
        "hears",
        "knock",
        "knocking",
        "ask",
        "asks",
        "asked",
        "asking",
        "question",
        "questions",
        "answering",
        "wish",
        "blame",
        "judged",
        "judging",
        "standing",
        "scene",
        "camp",
        "camps",
        "teller",
        "story",
        "stories",
        "care",
        "doubt",
        "echo",
        "owed",
        "rations",
        "portions",
        "intake",
        "patience",
        "forgotten",
        "shelf",
        "tape",
        "tapes",
        "taking",
        "keeping",
        "somebody",
        "nobody",
        "whoever",
        "meeting",
        "meetings",
        "conversation",
    ]
)
#: Methods whose names mean something different on every class.
BANNED_METHODS = frozenset({"look", "told", "take", "said", "tell", "say", "hear", "keep"})
#: Variable names without meaning.
BANNED_VARIABLES = frozenset({"one", "found", "said", "told", "known", "at"})
LONGEST_FILE = 500
#: The last commits before and of the redesign.
BEFORE, AFTER = "5bf995b", "f626858a"
#: Figure → (smallest, largest) value allowed; None: no limit on that side.
GOALS: dict[str, tuple[float | None, float | None]] = {
    "product: lines after the redesign": (None, 73_972),  # fewer than before it; features may add lines since
    "console: median file, lines": (150, 250),
    "remote: median file, lines": (150, 250),
    "console: longest file, lines": (None, LONGEST_FILE),
    "remote: longest file, lines": (None, LONGEST_FILE),
    "console: folders at the top": (None, 20),
    "console: loose modules": (None, 0),
    "console: arrows between top folders": (None, 90),
    "console: circles of top folders": (None, 0),
    "console: upward arrows": (None, 0),
    "console: public names with a docstring, %": (100, None),
    "remote: public names with a docstring, %": (100, None),
    "installed, MB (pip included)": (None, 350),
}
#: Rules of which no violation is allowed.
RULES = (
    "class name twice", "banned word", "banned variable", "no docstring", "no return annotation", "'is no X'",
    "file too long",
)  # fmt: skip


@dataclass
class Findings:
    """Places that break a rule, as `file:line text`, by rule."""

    places: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, rule: str, path: Path, line: int, text: str) -> None:
        self.places[rule].append(f"{path.relative_to(ROOT)}:{line} {text}")


def is_public(name: str) -> bool:
    return not name.startswith("_")


def words(name: str) -> set[str]:
    """The lower-case words of a snake_case or CamelCase name."""
    return {part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[A-Z]+", name)}


def public_definitions(tree: ast.Module) -> Iterator[tuple[ast.AST, str, ast.ClassDef | None]]:
    """Public classes and functions of a module, and public methods of its public classes."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and is_public(node.name):
            yield node, node.name, None
            for member in node.body:
                if isinstance(member, (ast.FunctionDef, ast.AsyncFunctionDef)) and is_public(member.name):
                    yield member, member.name, node
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and is_public(node.name):
            yield node, node.name, None


def is_override(member: ast.AST) -> bool:
    """Overloads and property setters repeat a name that is documented elsewhere."""
    decorators = getattr(member, "decorator_list", [])
    return any(
        getattr(item, "attr", getattr(item, "id", "")) in ("setter", "overload", "override") for item in decorators
    )


def check_module(path: Path, tree: ast.Module, findings: Findings) -> int:
    """Check every rule that one file can break on its own; return the number of its public names."""
    count = 1
    length = path.read_text(encoding="utf-8").count("\n")
    if length > LONGEST_FILE:
        findings.add("file too long", path, length, "")
    if words(path.stem) & BANNED_PARTS:
        findings.add("banned word", path, 1, path.stem)
    if ast.get_docstring(tree) is None and tree.body:
        findings.add("no docstring", path, 1, "module")
    for node, name, owner in public_definitions(tree):
        count += 1
        line = getattr(node, "lineno", 1)
        qualified = f"{owner.name}.{name}" if owner else name
        if words(name) & BANNED_PARTS or (owner and name in BANNED_METHODS):
            findings.add("banned word", path, line, qualified)
        if ast.get_docstring(node) is None and not is_override(node) and not _is_framework_hook(name, owner):  # type: ignore[arg-type]
            findings.add("no docstring", path, line, qualified)
    nodes = list(ast.walk(tree))
    fields = {
        member.target  # of records and frames, whose names are those on the wire
        for node in nodes
        if isinstance(node, ast.ClassDef)
        for member in node.body
        if isinstance(member, ast.AnnAssign)
    }
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.returns is None:
            findings.add("no return annotation", path, node.lineno, node.name)
        stored = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node not in fields
        if isinstance(node, ast.Name) and stored and (node.id in BANNED_VARIABLES or words(node.id) & BANNED_PARTS):
            findings.add("banned variable", path, node.lineno, node.id)
        if isinstance(node, ast.arg) and (node.arg in BANNED_VARIABLES or words(node.arg) & BANNED_PARTS):
            findings.add("banned variable", path, node.lineno, node.arg)
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and " no " in node.value.lower()
            and re.search(r"(?<!\bthere )\b(is|are) no (?!longer\b)[a-z]", node.value, re.IGNORECASE)
        ):
            findings.add("'is no X'", path, node.lineno, node.value.strip().split("\n")[0][:80])
    return count


def _is_framework_hook(name: str, owner: ast.ClassDef | None) -> bool:
    """Methods that a framework names and documents itself (Textual handlers, asyncio protocols, NVML functions)."""
    hooks = ("nvml", "on_", "watch_", "validate_", "compute_", "action_", "visit_", "render", "compose", "get_content_")
    return owner is not None and name.startswith(hooks)


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def measure() -> tuple[dict[str, float], Findings]:
    """All figures, and the places behind them."""
    findings = Findings()
    figures: dict[str, float] = {"product: lines": 0}
    for package in PACKAGES:
        paths = sorted((ROOT / package).rglob("*.py"))
        lengths = [path.read_text(encoding="utf-8").count("\n") for path in paths]
        classes: dict[str, list[Path]] = defaultdict(list)
        names = 0
        for path in paths:
            tree = parsed(path)
            names += check_module(path, tree, findings)
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and is_public(node.name):
                    classes[node.name].append(path)
        for name, places in sorted(classes.items()):
            for place in places if len(places) > 1 else ():
                others = ", ".join(str(other.relative_to(ROOT)) for other in places if other is not place)
                findings.add("class name twice", place, 1, f"{name} (also {others})")
        without = sum(place.startswith(f"{package}/") for place in findings.places["no docstring"])
        figures["product: lines"] += sum(lengths)
        figures[f"{package}: files"] = len(paths)
        figures[f"{package}: lines"] = sum(lengths)
        figures[f"{package}: median file, lines"] = statistics.median(lengths)
        figures[f"{package}: longest file, lines"] = max(lengths)
        figures[f"{package}: files of at most 60 lines"] = sum(1 for length in lengths if length <= 60)
        figures[f"{package}: public names with a docstring, %"] = 100 * (names - without) / names
    top = ROOT / "console"
    figures["console: folders at the top"] = sum(1 for entry in top.iterdir() if (entry / "__init__.py").exists())
    loose = sorted(entry.name for entry in top.glob("*.py") if entry.name not in LOOSE)
    figures["console: loose modules"] = len(loose)
    pairs = arrows()
    figures["console: arrows between top folders"] = len(pairs)
    figures["console: circles of top folders"] = len(circles(pairs))
    figures["console: upward arrows"] = len(upward(pairs))
    for rule in RULES:
        figures[rule] = len(findings.places[rule])
    return figures, findings


def arrows() -> set[tuple[str, str]]:
    """(importing room, imported room) of the folders at the top of `console/`, type-checking imports included."""
    pairs = set()
    for path in (ROOT / "console").rglob("*.py"):
        parts = path.relative_to(ROOT / "console").with_suffix("").parts
        package = parts[:-1]
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = package[: len(package) - (node.level - 1)]
                target = (*base, *(node.module.split(".") if node.module else ()))
                rooms = [target[0]] if target else [alias.name for alias in node.names if alias.name not in OWN_NAMES]
                pairs.update((parts[0], room) for room in rooms if room != parts[0])
    return pairs


def circles(pairs: Iterable[tuple[str, str]]) -> set[frozenset[str]]:
    """Sets of rooms that import each other, directly or by way of others."""
    reached: dict[str, set[str]] = defaultdict(set)
    for importing, imported in pairs:
        reached[importing].add(imported)
    for middle in list(reached):
        for rooms in reached.values():
            if middle in rooms:
                rooms |= reached[middle]
    return {
        frozenset(other for other in rooms if room in reached[other])
        for room, rooms in reached.items()
        if room in rooms
    }


def upward(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Imports from a lower layer to an upper or to one beside it, by the layers of the import contract."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    depth = {
        name.strip().removeprefix("gconsole."): place for place, layer in enumerate(layers) for name in layer.split("|")
    }
    layered = [(importing, imported) for importing, imported in pairs if importing in depth and imported in depth]
    return [(importing, imported) for importing, imported in layered if depth[importing] >= depth[imported]]


def installed_mb() -> float:
    """Space on disk of pip, gconsole and everything that gconsole requires without extras, in MB."""
    files = {path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file()}
    waiting, done = ["pip", "gconsole"], set()
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name in done:
            continue
        done.add(name)
        distribution = metadata.distribution(name)
        files.update(Path(str(distribution.locate_file(file))) for file in distribution.files or ())
        for requirement in map(Requirement, distribution.requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)
    return sum(path.stat().st_blocks * 512 for path in files if path.is_file()) / 1e6


def is_met(name: str, value: float) -> bool:
    """Whether a figure is within its goal; figures without a goal are."""
    smallest, largest = GOALS.get(name, (None, 0 if name in RULES else None))
    return (smallest is None or value >= smallest) and (largest is None or value <= largest)


def line_of(name: str, value: float) -> str:
    """A figure with its goal."""
    smallest, largest = GOALS.get(name, (None, 0 if name in RULES else None))
    limits = [f"{sign} {limit:g}" for sign, limit in (("≥", smallest), ("≤", largest)) if limit is not None]
    goal = "" if not limits else f"goal {', '.join(limits):14s} {'met' if is_met(name, value) else 'MISSED'}"
    return f"{name:45s} {value:<10.6g} {goal}".rstrip()


def lines_at(commit: str) -> int | None:
    """Lines of the product at a commit; None where its history is not at hand."""
    counting = ["git", "grep", "--count", "", commit, "--", "console/*.py", "remote/*.py"]
    done = subprocess.run(counting, cwd=ROOT, capture_output=True, text=True)
    return sum(int(line.rpartition(":")[2]) for line in done.stdout.splitlines()) or None


def main() -> int:
    gc.disable()  # a million nodes of syntax trees, none in a cycle: collections took half of the time
    figures, findings = measure()
    below = sys.argv[1:]
    if below == ["--check"]:
        broken = [f"{rule}: {place}" for rule, places in sorted(findings.places.items()) for place in places]
        broken += [line_of(name, value) for name, value in figures.items() if not is_met(name, value)]
        print("\n".join(broken) or "every rule of the structure holds")
        return 1 if broken else 0
    if below:
        for rule, places in sorted(findings.places.items()):
            for place in places:
                if place.startswith(tuple(below)):
                    print(f"{rule}: {place}")
        return 0
    for name, commit in (("before", BEFORE), ("after", AFTER)):
        if (lines := lines_at(commit)) is not None:
            figures[f"product: lines {name} the redesign"] = lines
    figures["installed, MB (pip included)"] = installed_mb()
    print("\n".join(line_of(name, value) for name, value in figures.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
