"""Removes unused definitions from a module: the agent uses a tenth of pynvml's eight thousand lines.

Removed are the functions, classes, constants and imports that neither the wanted names nor any remaining statement
refers to.
"""

import ast

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable

#: pynvml makes an exception class of each of these, by going through its own names.
_ALWAYS = ("NVML_ERROR_", "NVML_SUCCESS")


def prune(source: bytes, wanted: "Iterable[str]") -> "ast.Module":
    """The syntax tree of a module with only what `wanted` names need. Raises SyntaxError."""
    tree = ast.parse(source)
    needs = [_needs(statement) for statement in tree.body]
    by_name: dict[str, list[int]] = {}
    for place, statement in enumerate(tree.body):
        for name in _droppable(statement):
            by_name.setdefault(name, []).append(place)
    kept = {place for place, statement in enumerate(tree.body) if not _droppable(statement)}
    kept.update(place for name in by_name if name.startswith(_ALWAYS) for place in by_name[name])
    kept.update(place for name in wanted for place in by_name.get(name, ()))
    waiting = list(kept)
    while waiting:
        for name in needs[waiting.pop()]:
            for place in by_name.get(name, ()):
                if place not in kept:
                    kept.add(place)
                    waiting.append(place)
    tree.body = [statement for place, statement in enumerate(tree.body) if place in kept]
    return tree


def _droppable(statement: "ast.stmt") -> "tuple[str, ...]":
    """The names that a statement only defines; () for one that must stay."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return (statement.name,)
    if isinstance(statement, (ast.Import, ast.ImportFrom)):  # of ctypes.util, which pynvml does not use: 0.8 MB
        names = [(alias.asname or alias.name).partition(".")[0] for alias in statement.names]
        return () if "*" in names or getattr(statement, "module", "") == "__future__" else tuple(names)
    if isinstance(statement, ast.Assign) and not any(isinstance(node, ast.Call) for node in ast.walk(statement)):
        names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
        if len(names) == len(statement.targets):
            return tuple(names)
    return ()


def _needs(statement: "ast.stmt") -> "set[str]":
    """Every word in a statement that may be a name of the module, also in strings."""
    words = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Name):
            words.add(node.id)
        elif isinstance(node, ast.Attribute):
            words.add(node.attr)
        else:
            text = getattr(node, "value", None) if type(node).__name__ == "Constant" else getattr(node, "s", None)
            if isinstance(text, str):
                words.add(text)
    return words
