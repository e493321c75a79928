"""Every action in one table: its binding id, keys, words. Footer, `?`, palette and bindings are made from it.

A key belongs to a scope: `app` works everywhere, the others where such a view or widget has the focus. Ids are stable:
a person's own keymap and the tests name them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from textual.binding import Binding, BindingType


@dataclass(frozen=True)
class Action:
    """Something a person can do. `call` is Textual's name for it; no `keys` means that only the palette has it."""

    id: str
    keys: str
    call: str
    label: str  # in the footer: one word or two
    tells: str  # in `?` and the palette: a sentence
    footer: bool = False
    palette: bool = True
    shown_key: str = ""  # in the footer, where the key's own name is not what people press
    priority: bool = False  # works in every dialog, too

    @property
    def scope(self) -> str:
        return self.id.partition(".")[0]


ACTIONS: Final[tuple[Action, ...]] = (
    Action("overview.metric", "m", "metric", "metric", "Show the next figure in the heat map", footer=True),
    Action("hang.cancel", "escape", "cancel", "cancel", "Give up the capture that is under way", footer=True,
           palette=False),
    Action("hang.walk", "tab", "walk", "walk on", "On from the verdict to the tree, the ranks, the threads",
           footer=True, palette=False, shown_key="Tab"),
    Action("hang.walk_back", "shift+tab", "walk_back", "walk back", "Back to the part before", palette=False),
    Action("hang.compare", "x", "compare", "compare", "Mark a branch; on another one: the two side by side"),
    Action("hang.compare_captures", "X", "compare_captures", "what changed", "Who moved since the capture before"),
    Action("hang.collectives", "c", "collectives", "collectives", "What communication libraries recorded", footer=True),
    Action("hang.earlier", "left_square_bracket", "earlier", "earlier", "Look at the capture before this one",
           shown_key="["),
    Action("hang.later", "right_square_bracket", "later", "later", "Look at the capture after this one", shown_key="]"),
    Action("hang.threads", "t", "threads", "all threads",
           "Fold the main threads; those that hold these up; every thread"),
    Action("hang.granularity", "v", "granularity", "by line", "Tell ranks apart by function, line, or variables"),
    Action("hang.copy", "y", "copy", "copy", "Copy the verdict as text"),
    Action("gpus.figure", "m", "figure", "figure", "Draw the curve of the next figure of the GPU", footer=True),
    Action("gpus.span", "t", "span", "5 min / 1 h", "Draw the last five minutes, or the last hour", footer=True),
    Action("clocks.matrix", "m", "matrix", "edges", "Show the matrix of all edges, or the list of nodes again",
           footer=True),
    Action("skew.meetings", "m", "meetings", "meetings", "Look at collectives, at steps, or at captures", footer=True),
    Action("jobs.stop", "x", "stop", "stop", "End the job on all of its nodes, after a question", footer=True),
    Action("skew.copy", "y", "copy", "copy", "Copy what stands here, as text"),
    Action("list.sort", "o", "sort", "sort", "Sort by the next column", footer=True),
    Action("list.reverse", "O", "reverse", "reverse", "Turn the order around"),
    Action("list.filter", "slash", "filter", "filter", "List only rows that match what you type", footer=True,
           shown_key="/"),
    Action("list.group", "b", "group", "group", "Group by the next thing rows have in common", footer=True),
    Action("list.copy", "y", "copy", "copy", "Copy the row, or all of a group from its head, as text"),
    Action("list.copy_json", "Y", "copy_json", "copy JSON", "Copy the same as JSON"),
    Action("list.columns", "C", "columns", "columns", "Choose the columns of this list, and their order"),
    Action("columns.show", "space,enter", "show", "on, off", "Show the column, or leave it out", palette=False),
    Action("columns.earlier", "K,shift+up", "earlier", "up", "Move the column one place to the front",
           palette=False),
    Action("columns.later", "J,shift+down", "later", "down", "Move the column one place to the end", palette=False),
    Action("columns.first", "r", "first", "as at first", "All columns in the order they had at first", palette=False),
    Action("columns.close", "escape,q,C", "close", "closes", "Close the dialog", palette=False),
    Action("topology.picture", "m", "picture", "drawing", "Show the drawing of the node, or its matrix again",
           footer=True),
    Action("topology.copy", "y", "copy", "copy", "Copy what is chosen, matrix and drawing, as text"),
    Action("topology.copy_json", "Y", "copy_json", "copy JSON", "Copy the same as JSON"),
    Action("topology.save_text", "", "save('text')", "save as text", "Write the topology as text into a new file"),
    Action("topology.save_dot", "", "save('dot')", "save as Graphviz", "Write the topology for dot into a new file"),
    Action("topology.save_json", "", "save('json')", "save as JSON", "Write the topology as JSON into a new file"),
    Action("topology.save_svg", "", "save('svg')", "save as SVG", "Write a picture of the topology into a new file"),
    Action("filter.keep", "enter", "keep", "keep", "Keep the filter and go back to the list", footer=True,
           palette=False, shown_key="⏎"),
    Action("filter.complete", "tab", "complete", "complete", "Put in what may come next; again: the one after it",
           footer=True, palette=False, shown_key="Tab"),
    Action("filter.forward", "right", "forward", "forward", "One character on; at the end, complete", palette=False),
    Action("filter.recall", "ctrl+r", "recall", "earlier", "Bring back the filter before this one", footer=True,
           palette=False, shown_key="^r"),
    Action("filter.clear", "escape", "clear", "clear", "Clear the filter; on the list, Esc clears a kept one",
           footer=True, palette=False, shown_key="Esc"),
    Action("query.edit", "slash,i", "edit", "ask", "Type a question in SQL", footer=True, shown_key="/"),
    Action("query.plot", "p", "plot", "draw", "Show the answer as a table, a line, bars, a heat map", footer=True),
    Action("query.copy", "y", "copy", "copy", "Copy the row under the cursor as text"),
    Action("query.copy_json", "Y", "copy_json", "copy JSON", "Copy the row under the cursor as JSON"),
    Action("sql.ask", "enter", "ask", "ask", "Ask what stands here", footer=True, palette=False, shown_key="⏎"),
    Action("sql.newline", "ctrl+j", "newline", "new line", "Begin a new line", palette=False),
    Action("sql.complete", "tab", "complete", "complete", "Put in what may come next; again: the one after it",
           footer=True, palette=False, shown_key="Tab"),
    Action("sql.recall", "ctrl+r", "recall", "earlier", "Bring back the question before this one", footer=True,
           palette=False, shown_key="^r"),
    Action("sql.leave", "escape", "leave", "leave", "Give up what is under way; else go to the answer", footer=True,
           palette=False, shown_key="Esc"),
    Action("lines.open", "enter", "open", "details", "Tell everything about the thing under the cursor", footer=True,
           palette=False, shown_key="⏎"),
    Action("lines.down", "j,down", "down", "down", "Next line", palette=False),
    Action("lines.up", "k,up", "up", "up", "Previous line", palette=False),
    Action("lines.left", "h,left", "left", "left", "Cell or column to the left", palette=False),
    Action("lines.right", "l,right", "right", "right", "Cell or column to the right", palette=False),
    Action("lines.page_down", "pagedown,ctrl+d", "page_down", "page down", "One screen down", palette=False),
    Action("lines.page_up", "pageup,ctrl+u", "page_up", "page up", "One screen up", palette=False),
    Action("lines.top", "g,home", "top", "top", "First line", palette=False),
    Action("lines.bottom", "G,end", "bottom", "bottom", "Last line", palette=False),
    Action("app.capture", "s", "app.capture", "stacks", "Read every rank's stack now", footer=True),
    Action("app.capture_many", "S", "app.capture_many", "many stacks", "Read every rank's stack as often as you say"),
    Action("app.diagnose", "d", "app.diagnose", "diagnose", "Read stacks until it is clear who holds the job",
           footer=True),
    Action("app.record", "r", "app.record", "record", "Begin a recording, or end one", footer=True),
    Action("app.export", "e", "app.export", "export", "Save the table, the screen, the report or the stacks as a file",
           footer=True),
    Action("app.reconnect", "R", "app.reconnect", "reconnect", "Connect to the selected node again now", footer=True),
    Action("app.reconnect_failed", "", "app.reconnect_failed", "reconnect all failed",
           "Connect again to every node that is not here"),
    Action("app.add_nodes", "", "app.add_nodes", "add nodes", "Connect to more nodes, by name"),
    Action("app.remove", "", "app.remove", "remove node", "Let go of the selected node"),
    Action("app.examine", "", "app.examine", "health check", "Let the doctor look at the selected node"),
    Action("app.examine_all", "", "app.examine_all", "health check of all nodes", "Let the doctor look at every node"),
    Action("replay.play", "space", "app.replay_play", "play", "Play the recording, or stand still", footer=True,
           shown_key="space"),
    Action("replay.earlier", "left_square_bracket", "app.replay_earlier", "back", "Go to the event before",
           footer=True, shown_key="["),
    Action("replay.later", "right_square_bracket", "app.replay_later", "next", "Go to the next event",
           footer=True, shown_key="]"),
    Action("replay.slower", "less_than_sign", "app.replay_slower", "slower", "Play slower", footer=True,
           shown_key="<"),
    Action("replay.faster", "greater_than_sign", "app.replay_faster", "faster", "Play faster", footer=True,
           shown_key=">"),
    Action("replay.go", "T", "app.replay_go", "go to", "Go to a time"),
    Action("replay.compare", "", "app.replay_compare", "compare", "Compare this session with another one"),
    Action("diff.order", "o", "order", "order", "Order figures by name, or by how much they changed", footer=True),
    Action("diff.copy", "y", "copy_text", "copy", "Copy all of it as text", footer=True),
    Action("diff.keys", "question_mark,f1", "keys", "help", "List the keys that work here", footer=True, shown_key="?"),
    Action("diff.close", "q,escape", "close", "leave", "Leave the comparison", footer=True, shown_key="q"),
    Action("app.mark", "M", "app.mark", "mark", "Mark this instant with a note of yours"),
    Action("app.freeze", "space", "app.freeze", "pause", "Freeze the picture; data go on arriving", footer=True,
           shown_key="space"),
    Action("app.palette", "ctrl+p,colon", "app.command_palette", "commands", "Find any command by its name",
           footer=True, palette=False, shown_key="^p"),
    Action("app.keys", "question_mark,f1", "app.keys", "help", "List the keys that work here", footer=True,
           shown_key="?"),
    Action("app.quit", "q,ctrl+q", "app.quit", "quit", "Leave; nothing stays running", footer=True),
    Action("app.back", "escape", "app.back", "back", "Climb out: close a dialog, back to the Overview", palette=False),
    Action("progress.cancel", "escape", "cancel", "cancel", "Give up what is under way", footer=True, palette=False),
    Action("gallery.theme", "t", "next_theme", "theme", "Next theme: dark, light, …", footer=True),
    Action("gallery.quit", "q,ctrl+c", "quit", "quit", "Leave the gallery", footer=True),
    Action("dialog.down", "j", "down", "down", "Next line", palette=False),
    Action("dialog.up", "k", "up", "up", "Previous line", palette=False),
    Action("dialog.close", "escape,q,enter,question_mark", "close", "close", "Close the dialog", footer=True,
           palette=False),
    Action("prompt.drop", "escape", "drop", "drop", "Close the dialog, give no answer", palette=False),
    Action("export.previous", "up", "previous", "previous", "Save what stands above", palette=False),
    Action("export.next", "down", "next", "next", "Save what stands below", palette=False),
    Action("export.form", "tab", "form", "form", "Write it in the next form", palette=False),
    Action("export.form_before", "shift+tab", "form_before", "form", "Write it in the form before",
           palette=False),
    Action("export.drop", "escape", "drop", "drop", "Close the dialog, save nothing", palette=False),
    Action("confirm.yes", "y", "yes", "yes", "Do it", palette=False),
    Action("confirm.no", "n,escape,q", "no", "no", "Leave it", palette=False),
    Action("app.screenshot", "ctrl+s", "app.save_svg", "screenshot", "Save the screen as an SVG in the current folder",
           priority=True),
    Action("app.theme", "", "app.next_theme", "theme", "Next theme: dark, light, …"),
    Action("app.forget", "", "app.forget", "reset what is remembered", "Arrange everything as at first"),
    Action("app.interrupt", "ctrl+c", "app.interrupt", "quit", "Copy what is selected; twice: leave", palette=False,
           priority=True),
    Action("app.suspend", "ctrl+z", "app.suspend_process", "suspend", "Put the console into the background",
           palette=False),
)  # fmt: skip


#: Keys that mean the same for everybody: no action gets one of them that has it not here.
FIXED: Final = ("q", "ctrl+c", "ctrl+z", "o", "b", "tab", "shift+tab", "escape", "enter")
#: Scopes of what stands over a view or in the place of one: there the view's keys mean nothing.
_APART: Final = (
    "filter", "sql", "columns", "dialog", "prompt", "export", "confirm", "progress", "gallery",
    "replay", "diff",
)  # fmt: skip
#: Scopes of views that are no lists: there the keys of lists mean nothing.
NO_LISTS: Final = ("overview", "hang", "topology", "skew", "query")
#: What also works there, beside what works in every dialog.
_ALSO: Final = {
    "columns": ("lines.down", "lines.up", "lines.top", "lines.bottom"),
    "dialog": ("app.reconnect",),
    "diff": ("lines.down", "lines.up", "lines.page_down", "lines.page_up", "lines.top", "lines.bottom"),
}  # fmt: skip


def in_scope(*scopes: str) -> list[Action]:
    """The actions of these scopes, in the table's order."""
    return [action for action in ACTIONS if action.scope in scopes]


def bindings(actions: Iterable[Action]) -> list[BindingType]:
    """Textual's bindings for these actions, with their ids."""
    return [
        Binding(action.keys or no_key(action.id), action.call, action.label, id=action.id, tooltip=action.tells,
                show=action.footer, key_display=action.shown_key or None, priority=action.priority)
        for action in actions
    ]  # fmt: skip


def no_key(id: str) -> str:
    """What an action without a key is bound to: a key that no keyboard has. Textual's keymap only moves bindings."""
    return f"no-key-of-{id}"


def keys_of(action: Action, keymap: Mapping[str, str]) -> list[str]:
    """The keys of an action where a person's own may stand in the place of the table's."""
    return [key for key in keymap.get(action.id, action.keys).split(",") if key]


def is_typed_into(action: Action) -> bool:
    """Whether it works where text is typed: there a letter is a letter."""
    return action.scope in ("filter", "sql", "prompt", "export")


def places(actions: Sequence[Action]) -> list[list[Action]]:
    """Which actions work at the same time: a key may mean only one of them."""
    everywhere = [action for action in actions if action.scope == "app"]
    over_all = [action for action in everywhere if action.priority]
    scopes = list(dict.fromkeys(action.scope for action in actions))
    own = {scope: [action for action in actions if action.scope == scope] for scope in scopes}
    views = [scope for scope in scopes if scope not in (*_APART, "app", "list", "lines")]
    lines, lists = own.get("lines", []), own.get("list", [])
    found = [[*own[scope], *(() if scope in NO_LISTS else lists), *lines, *everywhere] for scope in views]
    found.append([*lists, *lines, *everywhere])
    apart = []
    for scope in scopes:
        if scope in _APART and scope != "gallery":
            also = [action for action in actions if action.id in _ALSO.get(scope, ())]
            apart.append([*own[scope], *also, *over_all])
    return [*found, *apart, own.get("gallery", [])]  # the gallery is an app of its own


def key_names(keys: str) -> str:
    """Keys as people read them: "j,down" → "j ↓"."""
    names = {
        "down": "↓", "up": "↑", "left": "←", "right": "→", "pagedown": "PgDn", "pageup": "PgUp", "home": "Home",
        "end": "End", "enter": "Enter", "escape": "Esc", "space": "Space", "question_mark": "?", "colon": ":",
        "slash": "/", "tab": "Tab", "shift+tab": "⇧Tab", "f1": "F1", "left_square_bracket": "[",
        "right_square_bracket": "]", "less_than_sign": "<", "greater_than_sign": ">",
    }  # fmt: skip
    return " ".join(names.get(key, key.replace("ctrl+", "^")) for key in keys.split(","))
