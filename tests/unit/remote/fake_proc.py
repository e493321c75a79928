"""A fake /proc of files, and a process sampler that reads it."""

import shutil
from pathlib import Path

import msgspec

from gconsole.records import KINDS
from gconsole_remote.proc.procfs import ProcFs
from gconsole_remote.samplers.base import Context
from gconsole_remote.samplers.processes import ProcessSampler

PYTHON = "/usr/bin/python3.11"
KERNEL_THREAD = 0x00200000

TORCH = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}


def torch_rank(rank, size, **more):
    """Environment that torchrun sets for a rank on the only node of its job."""
    env = dict(TORCH, RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(size))
    return {**env, **more}


class FakeProc:
    """A folder in the layout of /proc. Processes are added, changed and removed by pid."""

    def __init__(self, root: Path):
        self.root = root
        self.denied: set[int] = set()
        self.hidden: set[int] = set()
        (root / "uptime").write_text("10000.00 1.0\n")

    def python(self, pid, argv="train.py", **more):
        """A Python process running `argv` (one string, split at spaces)."""
        return self.process(pid, f"{PYTHON} {argv}", exe=PYTHON, **more)

    def process(
        self, pid, argv, *, exe="/bin/bash", ppid=1, env=None, comm=None, state="S", start=None, uid=1000, ns_pid=None,
        cpu=0, switches=0, threads=("main",), exit_code=0, env_start=0, flags=0, denied=False, hidden=False, net=77,
    ):  # fmt: skip
        home = self.root / str(pid)
        home.mkdir(exist_ok=True)
        comm = comm or Path(exe).name[:15]
        fields = ["0"] * 52
        fields[0], fields[1], fields[2], fields[3] = str(pid), f"({comm})", state, str(ppid)
        fields[8], fields[13], fields[19] = str(flags), str(cpu), str(len(threads))
        fields[21] = str(start if start is not None else pid)
        fields[23], fields[49], fields[51] = "100", str(env_start), str(exit_code)
        (home / "stat").write_text(" ".join(fields) + "\n")
        (home / "status").write_text(
            f"Name:\t{comm}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nNSpid:\t{pid}" + (f"\t{ns_pid}" if ns_pid else "") + "\n"
            f"voluntary_ctxt_switches:\t{switches}\nnonvoluntary_ctxt_switches:\t0\n"
        )
        (home / "cmdline").write_bytes(b"".join(part.encode() + b"\0" for part in argv.split()))
        (home / "environ").write_bytes(b"".join(f"{k}={v}".encode() + b"\0" for k, v in (env or {}).items()))
        (home / "wchan").write_text("0")
        (home / "maps").write_text("")
        (home / "mem").write_bytes(b"")
        shutil.rmtree(home / "task", ignore_errors=True)
        for number, name in enumerate(threads):
            (home / "task" / str(pid + number)).mkdir(parents=True)
            (home / "task" / str(pid + number) / "comm").write_text(name + "\n")
        (home / "ns").mkdir(exist_ok=True)
        for link, target in ((home / "exe", exe), (home / "ns" / "net", f"net:[{net}]")):
            link.unlink(missing_ok=True)
            if target:  # a kernel thread has no executable
                link.symlink_to(target)
        (self.denied.add if denied else self.denied.discard)(pid)
        (self.hidden.add if hidden else self.hidden.discard)(pid)
        return pid

    def end(self, pid):
        shutil.rmtree(self.root / str(pid))


class GuardedProcFs(ProcFs):
    """/proc with the kernel's permission checks, since file modes do not restrict tests that run as root."""

    def __init__(self, fake):
        super().__init__(str(fake.root))
        self.fake = fake

    def path(self, pid, name):
        if pid in self.fake.hidden:
            raise PermissionError(1, "Operation not permitted", name)
        if pid in self.fake.denied and name in ("environ", "exe", "mem", "maps", "ns/net", "wchan"):
            raise PermissionError(13, "Permission denied", name)
        return super().path(pid, name)


class Watch:
    """A process sampler on a fake /proc with its records: `ranks`, `processes` and `stats` by pid."""

    def __init__(self, proc, process_filter=None, boot_id="boot-a"):
        self.context = Context(proc=str(proc.root), process_filter=process_filter, boot_id=boot_id)
        self.sampler = ProcessSampler(self.context)
        self.sampler.procfs = GuardedProcFs(proc)
        self.sampler.start()
        self.now = 1000.0
        self.ranks, self.processes, self.stats = {}, {}, {}
        self.said = []

    def tick(self, seconds=2.0):
        """Sample `seconds` after the previous tick; returns the new records."""
        self.now += seconds
        records = [check(kind, fields) for kind, fields in self.sampler.tick(self.now)]
        tables = {"rank": self.ranks, "process": self.processes, "rank_stat": self.stats}
        for record in records:
            if kind_of(record) in tables:
                tables[kind_of(record)][record.pid] = record
        self.said += records
        return records

    @property
    def seen(self):
        return self.context.shared["processes"]

    def numbers(self):
        """{pid: rank} of the ranks that are present."""
        return {pid: rank.rank for pid, rank in self.ranks.items() if rank.status == "present"}

    def roles(self):
        return {pid: process.role for pid, process in self.processes.items() if not process.gone}


def watch(proc, **more):
    """A Watch after its first tick."""
    seen = Watch(proc, **more)
    seen.tick()
    return seen


def check(kind, fields):
    """The typed record; fails on a field that the kind does not have, as the console does."""
    struct = KINDS[kind]
    unknown = set(fields) - set(struct.__struct_fields__)
    assert not unknown, f"{kind} has no field {unknown}"
    return msgspec.convert({"kind": kind, **fields}, struct)


def kind_of(record):
    return str(record.__struct_config__.tag)
