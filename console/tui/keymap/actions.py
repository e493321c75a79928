"""Every action in one table: binding id, keys, label, help. Footer, `?`, palette and bindings are derived from it.

A key belongs to a scope: `app` works everywhere, the others where such a view or widget has the focus. Ids are stable:
users' keymaps and the tests name them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from textual.binding import Binding, BindingType
from textual.types import IgnoreReturnCallbackType


class Action(msgspec.Struct, frozen=True):
    """A bindable action. `call` is Textual's `namespace.action`; without `keys` it is only in the palette."""

    id: str
    keys: str
    call: str
    label: str  # in the footer: one or two words
    help: str  # in `?` and the palette: a phrase
    footer: bool = False
    palette: bool = True
    shown_key: str = ""  # in the footer, instead of the key's name
    priority: bool = False  # works in every dialog, too

    @property
    def scope(self) -> str:
        """Where it works: the part of the id before the dot."""
        return self.id.partition(".")[0]


class PaletteCommand(NamedTuple):
    """A command of the palette: its name, its help text, and what it runs."""

    name: str
    help: str
    run: IgnoreReturnCallbackType


#: Its key stands on the line of the next cluster.
NEXT_CLUSTER: Final = Action(
    "app.next_cluster", "ctrl+n", "clusters.next", "cluster", "Show the next of several clusters"
)
ACTIONS: Final[tuple[Action, ...]] = (
    Action("overview.metric", "m", "metric", "metric", "Next heat-map metric", footer=True),
    Action("overview.copy", "y", "copy", "copy", "Copy the name under the cursor: node, job or culprits"),
    Action("overview.copy_row", "Y", "copy_row", "copy line", "Copy the line under the cursor"),
    Action("hang.cancel", "escape", "cancel", "cancel", "Cancel capture", footer=True, palette=False),
    Action("hang.next_pane", "tab", "walk", "next pane", "Next pane: verdict, stack tree, ranks, threads", footer=True,
           palette=False, shown_key="Tab"),
    Action("hang.previous_pane", "shift+tab", "walk_back", "previous pane", "Previous pane", palette=False),
    Action("hang.compare", "x", "compare", "compare",
           "Mark this branch; press again on another branch to compare them"),
    Action("hang.compare_captures", "X", "compare_captures", "diff captures", "Diff against previous capture"),
    Action("hang.collectives", "c", "collectives", "collectives", "Show collectives (Flight Recorder / NCCL)",
           footer=True),
    Action("hang.previous_capture", "left_square_bracket", "earlier", "previous capture", "Show the previous capture",
           shown_key="["),
    Action("hang.next_capture", "right_square_bracket", "later", "next capture", "Show the next capture",
           shown_key="]"),
    Action("hang.threads", "t", "threads", "threads", "Threads: main / blocking / all"),
    Action("hang.granularity", "v", "granularity", "group by", "Group by function / line / locals"),
    Action("hang.copy", "y", "copy", "copy", "Copy the verdict and the stacks as text"),
    Action("gpus.metric", "m", "figure", "metric", "Plot the next metric of the GPU", footer=True),
    Action("gpus.time_range", "t", "span", "5 min / 1 h", "Plot the last 5 minutes or the last hour", footer=True),
    Action("gpus.hottest", "T", "hottest", "hottest", "Sort by temperature, the hottest GPU first"),
    Action("clocks.matrix", "m", "matrix", "edges", "Toggle between the matrix of edges and the list of nodes",
           footer=True),
    Action("skew.mode", "m", "mode", "mode", "Mode: collectives / steps / captures", footer=True),
    Action("skew.why", "x", "why", "why", "Sample all ranks for 10 s: what does the slow rank do?"),
    Action("jobs.stop", "x", "stop", "stop", "Stop the job on all of its nodes (asks first)", footer=True),
    Action("ranks.evaluate", "E", "evaluations.evaluate", "eval",
           "Evaluate a Python expression in this rank, where [agent] allow_eval permits it (asks first)"),
    Action("jobs.start", "N", "start", "start", "Start a job: options and command, then the plan (asks first)",
           footer=True),
    Action("jobs.fetch", "f", "fetch", "fetch", "Copy files of the job from its nodes into a folder", footer=True),
    Action("jobs.sync", "u", "sync", "copy folder", "Copy a folder to the nodes of the job (asks first)"),
    Action("skew.copy", "y", "copy", "copy", "Copy this view as text"),
    Action("list.sort", "o", "sort", "sort", "Sort by the next column", footer=True),
    Action("list.sort_left", "less_than_sign", "sort_left", "sort ←", "Sort by the column on the left"),
    Action("list.sort_right", "greater_than_sign", "sort_right", "sort →", "Sort by the column on the right"),
    Action("list.reverse", "O", "reverse", "reverse", "Reverse sort"),
    Action("list.filter", "slash", "filter", "filter", "Filter rows", footer=True, shown_key="/"),
    Action("list.group", "b", "group", "group", "Group by the next attribute", footer=True),
    Action("list.copy_name", "y", "copy_name", "copy", "Copy the name under the cursor, or all names of a group"),
    Action("list.copy", "Y", "copy", "copy row", "Copy the row, or all rows of a group, as text"),
    Action("list.copy_json", "ctrl+y", "copy_json", "copy JSON", "Copy the row, or all rows of a group, as JSON"),
    Action("list.columns", "C", "columns", "columns", "Choose and reorder columns"),
    Action("columns.toggle", "space,enter", "show", "toggle", "Show or hide the column", palette=False),
    Action("columns.move_up", "K,shift+up", "earlier", "move up", "Move the column towards the front", palette=False),
    Action("columns.move_down", "J,shift+down", "later", "move down", "Move the column towards the end", palette=False),
    Action("columns.reset", "r", "first", "reset", "Reset columns and their order", palette=False),
    Action("columns.close", "escape,q,C", "close", "close", "Close the dialog", palette=False),
    Action("topology.drawing", "m", "picture", "drawing", "Toggle between the drawing and the matrix of the node",
           footer=True),
    Action("topology.copy", "y", "copy", "copy", "Copy the selected matrix and drawing as text"),
    Action("topology.copy_json", "Y", "copy_json", "copy JSON", "Copy the selected topology as JSON"),
    Action("topology.save_text", "", "save('text')", "save as text", "Save the topology as a text file"),
    Action("topology.save_dot", "", "save('dot')", "save as Graphviz", "Save the topology as a Graphviz file"),
    Action("topology.save_json", "", "save('json')", "save as JSON", "Save the topology as a JSON file"),
    Action("topology.save_svg", "", "save('svg')", "save as SVG", "Save the topology as an SVG image"),
    Action("filter.apply", "enter", "keep", "apply", "Apply the filter and go back to the list", footer=True,
           palette=False, shown_key="⏎"),
    Action("filter.complete", "tab", "complete", "complete", "Complete (again: next match)", footer=True,
           palette=False, shown_key="Tab"),
    Action("filter.forward", "right", "forward", "forward", "Move right; at the end, complete", palette=False),
    Action("filter.previous", "ctrl+r", "recall", "previous", "Previous filter", footer=True, palette=False,
           shown_key="^r"),
    Action("filter.clear", "escape", "clear", "clear", "Clear the filter", footer=True, palette=False,
           shown_key="Esc"),
    Action("query.edit", "slash,i", "edit", "edit", "Edit the SQL query", footer=True, shown_key="/"),
    Action("query.plot", "p", "plot", "plot", "Show the result as a table, line plot, bar chart or heat map",
           footer=True),
    Action("query.copy", "y", "copy", "copy", "Copy the row as text"),
    Action("query.copy_json", "Y", "copy_json", "copy JSON", "Copy the row as JSON"),
    Action("sql.run", "enter", "run", "run", "Run the query", footer=True, palette=False, shown_key="⏎"),
    Action("sql.newline", "ctrl+j", "newline", "new line", "Insert a line break", palette=False),
    Action("sql.complete", "tab", "complete", "complete", "Complete (again: next match)", footer=True, palette=False,
           shown_key="Tab"),
    Action("sql.previous", "ctrl+r", "recall", "previous", "Previous query", footer=True, palette=False,
           shown_key="^r"),
    Action("sql.cancel", "escape", "leave", "cancel", "Cancel the running query; otherwise go to the result",
           footer=True, palette=False, shown_key="Esc"),
    Action("lines.open", "enter", "open", "details", "Show details", footer=True, palette=False, shown_key="⏎"),
    Action("lines.down", "j,down", "down", "down", "Next line", palette=False),
    Action("lines.up", "k,up", "up", "up", "Previous line", palette=False),
    Action("lines.left", "h,left", "left", "left", "Left", palette=False),
    Action("lines.right", "l,right", "right", "right", "Right", palette=False),
    Action("lines.page_down", "pagedown,ctrl+d", "page_down", "page down", "Page down", palette=False),
    Action("lines.page_up", "pageup,ctrl+u", "page_up", "page up", "Page up", palette=False),
    Action("lines.top", "g,home", "top", "top", "First line", palette=False),
    Action("lines.bottom", "G,end", "bottom", "bottom", "Last line", palette=False),
    Action("app.capture", "s", "captures.capture", "stacks", "Capture the stacks of all ranks", footer=True),
    Action("app.capture_many", "S", "captures.capture_many", "stacks × n",
           "Capture the stacks of all ranks several times"),
    Action("app.diagnose", "d", "captures.diagnose", "diagnose",
           "Diagnose: sample until the blocking rank is identified", footer=True),
    Action("app.record", "r", "recordings.record", "record", "Start or stop a recording", footer=True),
    Action("app.export", "e", "app.export", "export", "Export a table, the screen, a report or stacks", footer=True),
    Action("app.link", "L", "app.link", "link", "Copy a command that opens this screen: view, filter, order, page"),
    Action("app.bookmarks", "B", "bookmarks.open", "bookmarks", "Keep this screen by a name, or go to one"),
    Action("app.reconnect", "R", "nodes.reconnect", "reconnect", "Reconnect this node", footer=True),
    Action("app.reconnect_failed", "", "nodes.reconnect_failed", "reconnect all", "Reconnect all disconnected nodes"),
    Action("app.add_nodes", "", "nodes.add", "add nodes", "Connect to more nodes"),
    Action("app.remove_node", "", "nodes.remove", "remove node", "Remove node (data kept)"),
    Action("app.doctor", "", "nodes.examine", "health check", "Run doctor on this node"),
    Action("app.doctor_all", "", "nodes.examine_all", "health check, all nodes", "Run doctor on all nodes"),
    Action("replay.play", "space", "replay.play", "play", "Play or pause", footer=True, shown_key="space"),
    Action("replay.previous_event", "left_square_bracket", "replay.earlier", "prev", "Previous event", footer=True,
           shown_key="["),
    Action("replay.next_event", "right_square_bracket", "replay.later", "next", "Next event", footer=True,
           shown_key="]"),
    Action("replay.slower", "less_than_sign", "replay.slower", "slower", "Play slower", footer=True, shown_key="<"),
    Action("replay.faster", "greater_than_sign", "replay.faster", "faster", "Play faster", footer=True,
           shown_key=">"),
    Action("replay.go_to", "T", "replay.go", "go to", "Go to time"),
    Action("replay.compare", "", "replay.compare", "compare", "Compare with another session"),
    Action("diff.sort", "o", "order", "sort", "Sort by name or by change", footer=True),
    Action("diff.copy", "y", "copy_text", "copy", "Copy the comparison as text", footer=True),
    Action("diff.keys", "question_mark,f1", "keys", "help", "Show key bindings", footer=True, shown_key="?"),
    Action("diff.close", "q,escape", "close", "close", "Close the comparison", footer=True, shown_key="q"),
    Action("app.mark", "M", "recordings.mark", "marker", "Add a marker"),
    Action("app.pause", "space", "frames.freeze", "pause", "Pause display (data keeps arriving)", footer=True,
           shown_key="space"),
    Action("app.palette", "ctrl+p,colon", "app.command_palette", "commands", "Command palette", footer=True,
           palette=False, shown_key="^p"),
    Action("app.keys", "question_mark,f1", "guide.show", "help", "Show key bindings", footer=True, shown_key="?"),
    NEXT_CLUSTER,
    Action("app.previous_cluster", "", "clusters.previous", "previous cluster", "Show the previous cluster"),
    Action("app.log", "f12", "app.log", "log", "Show the end of the console's log"),
    Action("app.quit", "q,ctrl+q", "app.quit", "quit", "Quit", footer=True),
    Action("app.back", "escape", "views.back", "back", "Back", palette=False),
    Action("progress.cancel", "escape", "cancel", "cancel", "Cancel", footer=True, palette=False),
    Action("gallery.theme", "t", "themes.next", "theme", "Next theme", footer=True),
    Action("gallery.quit", "q,ctrl+c", "quit", "quit", "Quit", footer=True),
    Action("dialog.down", "j", "down", "down", "Next line", palette=False),
    Action("dialog.up", "k", "up", "up", "Previous line", palette=False),
    Action("dialog.close", "escape,q,enter,question_mark", "close", "close", "Close the dialog", footer=True,
           palette=False),
    Action("prompt.cancel", "escape", "drop", "cancel", "Cancel", palette=False),
    Action("export.previous", "up", "previous", "previous", "Previous item", palette=False),
    Action("export.next", "down", "next", "next", "Next item", palette=False),
    Action("export.next_format", "tab", "form", "format", "Next format", palette=False),
    Action("export.previous_format", "shift+tab", "form_before", "format", "Previous format", palette=False),
    Action("export.cancel", "escape", "drop", "cancel", "Cancel", palette=False),
    Action("confirm.yes", "y", "yes", "yes", "Confirm", palette=False),
    Action("task.yes", "y", "yes", "yes", "Confirm", palette=False),
    Action("task.close", "escape,q", "close", "close", "Cancel the task; once it has ended, close", palette=False),
    Action("confirm.no", "n,escape,q", "no", "no", "Cancel", palette=False),
    Action("app.screenshot", "ctrl+s", "clip.save_screenshot", "screenshot",
           "Save a screenshot (SVG) in the current folder", priority=True),
    Action("app.theme", "", "themes.next", "theme", "Next theme"),
    Action("app.reset_layout", "", "ui_state.reset", "reset layout", "Reset layout"),
    Action("app.interrupt", "ctrl+c", "shutdown.interrupt", "quit", "Copy the selection; twice: quit", palette=False,
           priority=True),
    Action("app.suspend", "ctrl+z", "shutdown.suspend", "suspend", "Suspend", palette=False),
)  # fmt: skip


#: Keys that cannot be rebound: only the actions that have them here may use them.
FIXED: Final = ("q", "ctrl+c", "ctrl+z", "o", "b", "tab", "shift+tab", "escape", "enter")
#: Scopes in which the keys of views do not work.
APART: Final = (
    "filter", "sql", "columns", "dialog", "prompt", "export", "confirm", "task", "progress", "gallery",
    "replay", "diff",
)  # fmt: skip
#: Scopes of views without a list, in which the keys of lists do not work.
NO_LISTS: Final = ("overview", "hang", "topology", "skew", "query")
#: Actions of other scopes that work there, too.
_ALSO: Final = {
    "columns": ("lines.down", "lines.up", "lines.top", "lines.bottom"),
    "dialog": ("app.reconnect", "ranks.evaluate"),
    "task": ("dialog.down", "dialog.up"),
    "diff": ("lines.down", "lines.up", "lines.page_down", "lines.page_up", "lines.top", "lines.bottom"),
}  # fmt: skip


def in_scope(*scopes: str) -> list[Action]:
    """The actions of these scopes, in the table's order."""
    return [action for action in ACTIONS if action.scope in scopes]


def bindings(actions: Iterable[Action]) -> list[BindingType]:
    """Textual's bindings for these actions, with their ids."""
    return [
        Binding(action.keys or no_key(action.id), action.call, action.label, id=action.id, tooltip=action.help,
                show=action.footer, key_display=action.shown_key or None, priority=action.priority)
        for action in actions
    ]  # fmt: skip


def no_key(id: str) -> str:
    """The impossible key of an action without a key: Textual's keymap can only change existing bindings."""
    return f"no-key-of-{id}"


def keys_of(action: Action, keymap: Mapping[str, str]) -> list[str]:
    """The keys of an action: the user's, else the table's."""
    return [key for key in keymap.get(action.id, action.keys).split(",") if key]


def is_typed_into(action: Action) -> bool:
    """Whether it works in an input, where character keys insert text."""
    return action.scope in ("filter", "sql", "prompt", "export")


def places(actions: Sequence[Action]) -> list[list[Action]]:
    """Groups of actions that are active together, in which every key must be unique."""
    everywhere = [action for action in actions if action.scope == "app"]
    over_all = [action for action in everywhere if action.priority]
    scopes = list(dict.fromkeys(action.scope for action in actions))
    own = {scope: [action for action in actions if action.scope == scope] for scope in scopes}
    views = [scope for scope in scopes if scope not in (*APART, "app", "list", "lines")]
    lines, lists = own.get("lines", []), own.get("list", [])
    groups = [[*own[scope], *(() if scope in NO_LISTS else lists), *lines, *everywhere] for scope in views]
    groups.append([*lists, *lines, *everywhere])
    apart = []
    for scope in scopes:
        if scope in APART and scope != "gallery":
            also = [action for action in actions if action.id in _ALSO.get(scope, ())]
            apart.append([*own[scope], *also, *over_all])
    return [*groups, *apart, own.get("gallery", [])]  # the gallery is an app of its own


def key_names(keys: str) -> str:
    """Display names of keys: "j,down" → "j ↓"."""
    names = {
        "down": "↓", "up": "↑", "left": "←", "right": "→", "pagedown": "PgDn", "pageup": "PgUp", "home": "Home",
        "end": "End", "enter": "Enter", "escape": "Esc", "space": "Space", "question_mark": "?", "colon": ":",
        "slash": "/", "tab": "Tab", "shift+tab": "⇧Tab", "f1": "F1", "f12": "F12", "left_square_bracket": "[",
        "right_square_bracket": "]", "less_than_sign": "<", "greater_than_sign": ">",
    }  # fmt: skip
    return " ".join(names.get(key, key.replace("ctrl+", "^")) for key in keys.split(","))
