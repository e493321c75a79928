"""Parts of the app that act: captures, jobs, nodes, recordings, queries, views, themes, clipboard, shutdown."""

from __future__ import annotations


class Controller:
    """A part of the app. Its `action_` methods are bound as `namespace.action`, as those of a DOM node would be."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether the action can run now; None dims its key."""
        return True
