"""The payload has no annotations and no docstrings of functions and classes, and is otherwise unchanged."""

import ast

import pytest

from gconsole.fleet.deploy.agent_payload import _package_dir, stripped_source

SOURCES = sorted(_package_dir("gconsole_remote").rglob("*.py"))


class Stripped(ast.NodeTransformer):
    """Removes the same annotations and docstrings as `stripped_source`, in the syntax tree."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        for arg in ast.walk(node.args):
            if isinstance(arg, ast.arg):
                arg.annotation = None
        return self.generic_visit(node)

    def visit_Module(self, node: ast.Module) -> ast.AST:
        guards = [item for item in node.body if "TYPE_CHECKING" in ast.unparse(item).split("\n")[0]]
        if not any(isinstance(item, ast.If) and item.orelse for item in guards):
            node.body = [item for item in node.body if item not in guards]
        return self.generic_visit(node)


class WithoutDocstrings(ast.NodeTransformer):
    """Empties docstrings of functions and classes: the payload keeps those that its pattern does not match."""

    def _visit(self, node: ast.FunctionDef | ast.ClassDef) -> ast.AST:
        first = node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            first.value.value = ""
        return self.generic_visit(node)

    visit_FunctionDef = visit_ClassDef = _visit


def test_docstrings_of_functions_and_classes_are_removed_and_other_texts_stay():
    source = b'''class A(object):
    """Two
    lines."""

    def f(self):
        """One line."""
        text = """not
        a docstring"""
        return {1:
                """nor this"""}
'''
    assert stripped_source(source) == source.replace(b'"""Two\n    lines."""', b'""\n').replace(
        b'"""One line."""', b'""'
    )


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: "/".join(path.parts[-2:]))
def test_payload_differs_from_the_sources_by_annotations_and_docstrings_alone(path):
    source = path.read_bytes()
    expected = Stripped().visit(ast.parse(source))
    stripped = WithoutDocstrings().visit(ast.parse(stripped_source(source)))
    expected = WithoutDocstrings().visit(expected)
    assert ast.dump(stripped) == ast.dump(expected)
    lines = [[node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt)] for tree in (stripped, expected)]
    assert lines[0] == lines[1]
