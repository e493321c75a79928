"""Settings of the node and of its ranks, which the checks of a node compare and judge: on discovery and on change."""

import os
import re
import time

from ..history import boots
from ..proc import apart
from ..proc.packages import package_versions
from ..proc.procfs import SECRETS, ProcFs, printable
from ..proc.settings import settings
from .base import Sampler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from .base import Context, Fact, Fields, ProcessKey
    from .process_snapshot import RankRef

#: Seconds between two reads of the node; the ranks are looked for at each tick.
EVERY_S = 60.0
#: Variables of the libraries that ranks communicate and compute with. Those of one rank or one debug output differ.
PREFIXES = (b"NCCL_", b"RCCL_", b"OMP_", b"MKL_", b"TORCH_NCCL_", b"UCX_", b"GLOO_", b"FI_", b"PYTORCH_CUDA_ALLOC")
MOST_VARIABLES, LONGEST = 64, 200
DAY_S = 86400.0
_NAME = re.compile(r"[A-Za-z0-9_]{1,64}\Z")
#: A limit without a bound, and an unknown one.
UNLIMITED = -1


class SettingSampler(Sampler):
    """`setting` records of the node, `rank_setting` records of its ranks."""

    name = "settings"
    finest_s = 5.0
    etc, wtmp = "/etc", boots.WTMP

    def __init__(self, context: "Context") -> None:
        super(SettingSampler, self).__init__(context)
        self._procfs = ProcFs(context.proc)
        self._sent: "dict[tuple[str, str], str]" = {}
        self._ranks: "dict[ProcessKey, Fields]" = {}
        self._due = 0.0
        self._boots: "str | None" = None  # in the last day; each restarts the agent

    def start(self) -> None:
        """Count the boots."""
        try:
            since_s = time.time() - DAY_S
            self._boots = "%d" % sum(record.is_boot and record.at_s > since_s for record in boots.read_wtmp(self.wtmp))
        except (OSError, ValueError):
            pass  # containers and minimal systems have none

    def tick(self, now: float) -> "Iterator[Fact]":
        """Yield what is new, changed or gone."""
        is_due = now >= self._due
        if is_due:
            self._due = now + EVERY_S
            values = {("boots_in_a_day", ""): self._boots} if self._boots is not None else {}
            for name, subject, value in settings(self.context.sys, self.context.proc, self.etc):
                values[name, subject] = value
            for name, subject, value in package_versions():
                values[name, subject] = value
            for setting in [setting for setting in self._sent if setting not in values]:
                del self._sent[setting]
                yield "setting", {"name": setting[0], "subject": printable(setting[1], 64), "gone": True}
            for setting, value in values.items():
                if self._sent.get(setting) != value:
                    self._sent[setting] = value
                    name, subject = setting
                    yield "setting", {"name": name, "subject": printable(subject, 64), "value": printable(value, 200)}
        snapshot = self.context.shared.get("processes")
        ranks = {(rank.pid, rank.start_ticks): rank for rank in (snapshot.ranks if snapshot is not None else ())}
        for key in [key for key in self._ranks if key not in ranks]:
            del self._ranks[key]
        for key, rank in ranks.items():
            if is_due or key not in self._ranks:
                fields = self._of_rank(rank)
                if fields != self._ranks.get(key):
                    self._ranks[key] = fields
                    yield "rank_setting", fields

    def _of_rank(self, rank: "RankRef") -> "Fields":
        fields: "Fields" = {
            name: getattr(rank, name) for name in ("job", "attempt", "rank", "local_rank", "pid", "start_ticks", "gpu")
        }
        try:
            fields.update(limits(self._procfs.read_at_once(rank.pid, "limits").decode("ascii", "replace")))
        except OSError:
            pass  # gone
        try:
            limit = fields.get("open_files", UNLIMITED)
            if limit > 0:  # in steps of a tenth: a record is sent on change
                count = len(os.listdir(self._procfs.path(rank.pid, "fd")))
                fields["open_files_pct"] = min(100, count * 10 // limit * 10)
        except OSError:
            pass  # of another user, or gone
        try:
            for line in self._procfs.read_at_once(rank.pid, "status").decode("utf-8", "replace").splitlines():
                if line.startswith("Cpus_allowed_list:"):
                    fields["cpus"] = printable(line.partition(":")[2].strip(), LONGEST)
        except OSError:
            pass
        try:
            values = apart.read(
                self._procfs, rank.pid, ("environ",), lambda procfs, pid: variables(procfs.read(pid, "environ"))
            )
            fields["environment"] = _checked(values)
        except (OSError, ValueError):
            pass  # of another user
        return fields


def limits(text: str) -> "dict[str, int]":
    """Soft limits of /proc/PID/limits; `UNLIMITED` without a bound."""
    values = {}
    for name, field in (("Max locked memory ", "memlock_bytes"), ("Max open files ", "open_files")):
        start = text.find(name)
        words = text[start + len(name) :].split(None, 1) if start >= 0 else []
        if words and (words[0].isdigit() or words[0] == "unlimited"):
            values[field] = min(int(words[0]), (1 << 63) - 1) if words[0].isdigit() else UNLIMITED
    return values


def _checked(values: "Any") -> "dict[str, str]":
    """Variables that a child read. Raises ValueError."""
    if not isinstance(values, dict) or len(values) > MOST_VARIABLES:
        raise ValueError("invalid answer")
    return {apart.as_text(name, LONGEST): printable(apart.as_text(values[name]), LONGEST) for name in values}


def variables(block: bytes) -> "dict[str, str]":
    """The variables of `PREFIXES` in an environment, without those that may hold a secret."""
    values: "dict[str, str]" = {}
    for entry in sorted(block.split(b"\0")):
        name, equals, value = entry.partition(b"=")
        word = name.decode("ascii", "replace")
        if not equals or not name.startswith(PREFIXES) or len(values) >= MOST_VARIABLES:
            continue
        if _NAME.match(word) and not any(secret in word.lower() for secret in SECRETS):
            values[word] = printable(value[: 4 * LONGEST].decode("utf-8", "replace"), LONGEST)
    return values
