"""The payload has no function annotations and is otherwise unchanged."""

import ast

import pytest

from gconsole.fleet.deploy.agent_payload import _package_dir, without_annotations

SOURCES = sorted(_package_dir("gconsole_remote").rglob("*.py"))


class Unannotated(ast.NodeTransformer):
    """Removes the same annotations as `without_annotations`, in the syntax tree."""

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


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: "/".join(path.parts[-2:]))
def test_payload_differs_from_the_sources_by_annotations_alone(path):
    source = path.read_bytes()
    expected = Unannotated().visit(ast.parse(source))
    stripped = ast.parse(without_annotations(source))
    assert ast.dump(stripped) == ast.dump(expected)
    lines = [[node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt)] for tree in (stripped, expected)]
    assert lines[0] == lines[1]
