"""Executes the cells of a notebook as a kernel does: in one namespace, inside a running event loop, with displays.

python run_notebook.py NOTEBOOK     prints the text of every displayed value
"""

import ast
import asyncio
import json
import sys
import traceback
from pathlib import Path
from typing import Any


def displayed(value: Any) -> str:
    """The value as a notebook shows it: it must have HTML or a text, and HTML must be a text, too."""
    html = getattr(value, "_repr_html_", lambda: None)()
    assert html is None or isinstance(html, str)
    return repr(value)


async def run(title: str, cells: list[dict[str, Any]]) -> None:
    """Execute the code cells of a notebook in order; the value of a last expression is displayed."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(cells):
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        name = f"{title}[{number}]"
        exec(compile(tree, name, "exec"), namespace)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
            if value is not None:
                print(f"--- {number}\n{displayed(value)}")


if __name__ == "__main__":
    try:
        asyncio.run(run(sys.argv[1], json.loads(Path(sys.argv[1]).read_text())["cells"]))
    except Exception:
        traceback.print_exc()
        sys.exit(1)
