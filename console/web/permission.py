"""Whether a client may change what runs on the nodes: what `[console] read_only` and `--allow-run` say."""

from __future__ import annotations

from ..config.read_only import Change
from .context import WebContext
from .problems import http_problem


def permit(context: WebContext, change: Change) -> None:
    """Raises Refused where this console may not change that."""
    refusal = context.control.refusal(change)
    if refusal is not None:
        raise http_problem(
            403,
            refusal.name,
            f"{change.words} changes what runs on the nodes, which this server may not",
            "gconsole api --allow-run, or console.read_only = false",
        )
