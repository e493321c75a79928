"""Standalone program: facts on the Python that will run a job. It reads its arguments from the last line of its source.

It runs in the interpreter and the environment of the job, so that it finds what the job would find. It looks modules up
and compiles the script, and imports and executes neither: the job's folder is the last one of its path.
"""

import importlib.util
import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: First word of the line with the result: a `sitecustomize` may print other lines.
MARK = "gconsole-python-facts "
#: Bytes. Larger scripts are not parsed.
_MAX_SCRIPT = 4 << 20


def main(text: str) -> None:
    """Print the facts as one line of JSON after MARK."""
    args = json.loads(text)
    sys.path[:] = [*sys.path[1:], args["folder"]]  # last: no module of the job takes the place of one of Python
    problems = []
    if args["module"] is not None and not is_present(args["module"].split(".")[0]):
        problems.append("module %s is not installed for this Python" % args["module"].split(".")[0])
    if args["script"] is not None:
        problems += script_problems(args["script"], args["imports"])
    facts = {
        "version": "%d.%d.%d" % sys.version_info[:3],
        "versions": {name: version_of(name) for name in args["packages"]},
        "problems": problems,
    }
    print(MARK + json.dumps(facts))


def is_present(name: str) -> bool:
    """Whether a top-level module can be found; it is not imported."""
    if name in sys.modules or name in sys.builtin_module_names:
        return True
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError, AttributeError):
        return False


def version_of(name: str) -> "str | None":
    """The version of a package from its metadata; None if it is not installed, "?" if it has none."""
    if not is_present(name):
        return None
    try:
        from importlib import metadata  # Python 3.8

        return metadata.version(name)
    except Exception:  # noqa: BLE001 - metadata of a foreign package may be broken in any way
        return "?"


def script_problems(path: str, imports: bool) -> "list[str]":
    """Why a script cannot start: its syntax, and with `imports` modules that it imports and that are not found."""
    import ast  # 1 ms, which the agent, for which this is text, does not need

    try:
        with open(path, "rb") as file:
            source = file.read(_MAX_SCRIPT + 1)
    except (IOError, OSError) as error:
        return ["%s: %s" % (path, error.strerror)]
    if len(source) > _MAX_SCRIPT:
        return []
    try:
        tree = ast.parse(source, path)
    except SyntaxError as error:
        return ["%s, line %s: %s" % (path, error.lineno, error.msg)]
    except (ValueError, RecursionError, MemoryError):
        return []  # it may run all the same
    if not imports:
        return []
    sys.path.append(os.path.dirname(os.path.abspath(path)))
    missing = sorted(name for name in imported_names(tree) if not is_present(name))
    return ["%s imports %s, not installed for this Python" % (path, ", ".join(missing))] if missing else []


def imported_names(tree: "Any") -> "set[str]":
    """Top-level modules that a script imports unconditionally: those in `try` or `if` may be missing."""
    import ast

    names: set[str] = set()
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            names.update(alias.name.split(".")[0] for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom) and statement.level == 0 and statement.module:
            names.add(statement.module.split(".")[0])
    return names
