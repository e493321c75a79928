"""The screen of a visitor: one of several over the store and the fleet of one console."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from textual.actions import parse
from textual.dom import DOMNode

from ..config.model import Change, ConfigError, ReadOnly
from ..core.control import (
    ActiveRecording,
    BlackBoxStatus,
    CaptureRequest,
    CaptureResult,
    Control,
    KeptRecords,
    NodeAnswer,
    Recordings,
    Selection,
)
from ..core.store import Store
from ..core.wants import Want
from ..records import Failure
from ..session.format.layout import SessionError
from .app import ConsoleApp
from .keymap.actions import ACTIONS, in_scope

if TYPE_CHECKING:
    from textual.actions import ActionParseResult

    from ..config.diff import Changes
    from ..config.model import Config
    from ..core.job_protocol import FileList, NodeOrder, NodeStop, Readiness, ReadinessRequest, Synced, SyncFolder

#: Actions that capture, record, change the fleet or jobs, or write files where the console runs.
_ACTING: Final = frozenset(
    {
        "app.capture", "app.capture_many", "app.diagnose", "app.record", "app.mark", "app.export", "app.bookmarks",
        "app.reconnect", "app.reconnect_failed", "app.add_nodes", "app.remove_node", "app.doctor", "app.doctor_all",
        "app.screenshot", "jobs.stop", "jobs.start", "jobs.fetch", "jobs.sync", "skew.why", "ranks.evaluate",
        "topology.save_text", "topology.save_dot", "topology.save_json", "topology.save_svg",
    }
)  # fmt: skip
#: Actions of a terminal, or of the user whose console it is.
_OWN_ONLY: Final = frozenset({"app.suspend", "app.log"})
REFUSAL: Final = "read-only: visitors with this address may look, not act"


class VisitorApp(ConsoleApp):
    """`options` are those of ConsoleApp. Without `may_act`, actions are refused here, and by the control again.

    `watchers` is shared by all visitors of a console: who requested the output of each job.
    """

    def __init__(
        self, store: Store, control: Control, *, may_act: bool, watchers: defaultdict[str, set[str]], **options: Any
    ) -> None:
        refused = _OWN_ONLY if may_act else _OWN_ONLY | _ACTING
        actions = [action for action in in_scope("app") if action.id not in refused]
        self._refused = frozenset(parse(action.call)[:2] for action in ACTIONS if action.id in refused)
        self._visitor = VisitorControl(control, f"visitor {id(self)}", may_act, watchers)
        super().__init__(
            store, self._visitor, app_actions=actions, clipboard="osc52", remembers_theme=False, **options
        )  # fmt: skip

    async def close_requests(self) -> None:
        """End what was requested for this screen only; called once it is closed."""
        await self._visitor.release()

    def permits(self, call: str) -> bool:
        """Whether this visitor may run the action."""
        return parse(call)[:2] not in self._refused

    async def run_action(
        self, action: str | ActionParseResult, default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:  # fmt: skip
        """Run an action, or explain why this visitor may not."""
        parsed = parse(action) if isinstance(action, str) else action
        if parsed[:2] in self._refused:
            self.notify(REFUSAL, severity="warning", timeout=4)
            return True
        return await super().run_action(action, default_namespace, namespaces)

    async def action_quit(self) -> None:
        """Leave: recordings of the console go on."""
        self.exit()


class VisitorRefusal(ConfigError):
    """A visitor who may only look requested an action."""

    name = "read_only"

    def __init__(self) -> None:
        super().__init__("", "", REFUSAL)


class VisitorControl:
    """`control` as one visitor may use it. Requests that last are made under a name of the visitor's own."""

    def __init__(self, control: Control, who: str, may_act: bool, watchers: defaultdict[str, set[str]]) -> None:
        self._control, self._who, self._may_act, self._watchers = control, who, may_act, watchers
        self._watched: dict[str, Sequence[str]] = {}  # nodes by job
        self._probes: set[str] = set()
        self._wanting: set[str] = set()

    async def release(self) -> None:
        """End the requests of this visitor that last."""
        for who in list(self._probes):
            self.request_clock_probes(who, False)
        for who in list(self._wanting):
            self.want(who)
        for job, nodes in list(self._watched.items()):
            await self.watch_job(job, nodes, False)

    def _acting(self) -> Control:
        """What acts. Raises VisitorRefusal."""
        if not self._may_act:
            raise VisitorRefusal
        return self._control

    # -- looking -----------------------------------------------------------------------------------------------------

    def request_clock_probes(self, who: str, wanted: bool) -> None:
        """Probe continuously while any visitor wants it."""
        (self._probes.add if wanted else self._probes.discard)(who)
        self._control.request_clock_probes(f"{self._who} {who}", wanted)

    def want(self, who: str, *wants: Want) -> None:
        """Figures at the rate at which any visitor wants them."""
        (self._wanting.add if wants else self._wanting.discard)(who)
        self._control.want(f"{self._who} {who}", *wants)

    def in_background(self, is_hidden: bool) -> None:
        """No effect: another visitor may see the cluster."""

    def refusal(self, change: Change) -> ReadOnly | None:
        """The reason why a change is not allowed."""
        return self._control.refusal(change) if self._may_act else ReadOnly(change)

    @property
    def recordings(self) -> Recordings | None:
        """The recordings, to look at."""
        recordings = self._control.recordings
        return recordings if self._may_act or recordings is None else _RecordingsToLookAt(recordings)

    async def watch_job(self, job: str, nodes: Sequence[str], wanted: bool) -> Mapping[str, Failure]:
        """A job's output, until no visitor wants it any more."""
        watchers = self._watchers[job]
        if wanted:
            watchers.add(self._who)
            self._watched[job] = nodes
        else:
            watchers.discard(self._who)
            self._watched.pop(job, None)
            if watchers:
                return {}
        return await self._control.watch_job(job, nodes, wanted)

    async def stop(self) -> None:
        """Nothing: the fleet is not the visitor's."""

    # -- acting ------------------------------------------------------------------------------------------------------

    async def mark(self, text: str) -> None:
        """As the console, for visitors who may act."""
        await self._acting().mark(text)

    async def reconnect(self, node: str) -> None:
        """As the console, for visitors who may act."""
        await self._acting().reconnect(node)

    async def remove_node(self, node: str) -> None:
        """As the console, for visitors who may act."""
        await self._acting().remove_node(node)

    async def add_nodes(self, names: str) -> Sequence[str]:
        """As the console, for visitors who may act."""
        return await self._acting().add_nodes(names)

    async def apply(self, config: Config) -> Changes:
        """As the console, for visitors who may act."""
        return await self._acting().apply(config)

    async def examine(self, nodes: Sequence[str]) -> Sequence[NodeAnswer]:
        """As the console, for visitors who may act."""
        return await self._acting().examine(nodes)

    async def capture(self, order: CaptureRequest) -> CaptureResult:
        """As the console, for visitors who may act."""
        return await self._acting().capture(order)

    async def profile(self, blocks: int) -> Sequence[NodeAnswer]:
        """As the console, for visitors who may act."""
        return await self._acting().profile(blocks)

    async def probe_job(self, nodes: Sequence[str], request: ReadinessRequest) -> Mapping[str, Readiness | Failure]:
        """As the console, for visitors who may act."""
        return await self._acting().probe_job(nodes, request)

    async def sync_folder(
        self, nodes: Sequence[str], folder: SyncFolder, workdir: str
    ) -> Mapping[str, Synced | Failure]:
        """As the console, for visitors who may act."""
        return await self._acting().sync_folder(nodes, folder, workdir)

    async def start_job(self, orders: Mapping[str, NodeOrder]) -> Mapping[str, Failure]:
        """As the console, for visitors who may act."""
        return await self._acting().start_job(orders)

    async def stop_job(self, job: str, nodes: Sequence[str], grace_s: float) -> Mapping[str, NodeStop | Failure]:
        """As the console, for visitors who may act."""
        return await self._acting().stop_job(job, nodes, grace_s)

    async def follow_job(self, job: str, nodes: Sequence[str], tail: int | None, follow: bool) -> Mapping[str, Failure]:
        """As the console, for visitors who may act."""
        return await self._acting().follow_job(job, nodes, tail, follow)

    async def list_job_files(self, job: str, node: str, path: str) -> FileList | Failure:
        """As the console, for visitors who may act."""
        return await self._acting().list_job_files(job, node, path)

    async def read_job_file(self, job: str, node: str, path: str, offset: int) -> tuple[bytes, bool] | Failure:
        """As the console, for visitors who may act."""
        return await self._acting().read_job_file(job, node, path, offset)


class _RecordingsToLookAt:
    def __init__(self, recordings: Recordings) -> None:
        self._recordings = recordings

    def active(self) -> Sequence[ActiveRecording]:
        return self._recordings.active()

    def black_box(self) -> BlackBoxStatus | None:
        return self._recordings.black_box()

    async def start(self, name: str, selection: Selection | None = None, since_s: float = 0.0) -> bool:
        raise SessionError(REFUSAL)

    async def stop(self, name: str) -> ActiveRecording:
        raise SessionError(REFUSAL)

    async def keep_last(self, name: str, last_s: float) -> KeptRecords:
        raise SessionError(REFUSAL)
