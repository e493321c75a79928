"""Planted secrets appear in no file of a session: not in segments, Parquet, or any export format."""

import asyncio
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from session_builders import START

from gconsole.core.bus import Hub
from gconsole.records import (
    ConsoleRecord,
    Failure,
    Finding,
    Gap,
    GpuEvent,
    Job,
    JobNode,
    Local,
    Log,
    Mark,
    Node,
    NodeState,
    Process,
    Rank,
    RankStat,
    Stack,
    StackFrame,
    decode,
    encode,
)
from gconsole.session.export.formats import SESSION_FORMATS
from gconsole.session.export.slice import slice_session
from gconsole.session.format import reader
from gconsole.session.format.layout import Session, named
from gconsole.session.manage.compact import compact
from gconsole.session.manage.retention import Limits
from gconsole.session.record.recorder import Recorder
from gconsole.session.record.selection import select

#: Secrets in the places where users have them, each with a different word.
WORDS = ("planted-token", "planted-password", "planted-key", "planted-secret", "planted-url", "planted-local")
NAMES = ("gpu-host-1", "gpu-host-2", "alice-at-work", "ip-10-1-2-3")
#: Names found only in texts: host sets, addresses, home directories, a user named by a later record.
NAMES_IN_TEXTS = ("gpu-host", "10.20.30.40", "fe80::1ff:fe23:4567:890a", "bob-at-home", "carol-later")


def planted() -> list:
    made: list = []
    place = {"pid": 7, "start_ticks": 1}

    def say(node, *records):
        for record in records:
            at = START + len(made) * 1_000_000_000
            record.node, record.agent, record.seq = node, f"agent{NAMES.index(node) if node else 9}", len(made) + 1
            record.t = record.rx = at
            record.mono = at - START
            made.append(record)

    for node in NAMES[:2]:
        say(
            node,
            NodeState(state="failed", error=Failure("auth", "https://u:planted-url@h/", "password=planted-password")),
            Node(hostname="ip-10-1-2-3.corp.example", boot_id="b", kernel="k", arch="x", python="3", uid=1000,
                 user="alice-at-work", pid=1, sample_interval_ms=1000),
            Process(**place, ppid=1, uid=1000, user="alice-at-work", comm="python", role="rank", job="j", rank=0,
                    cmdline="/home/alice-at-work/v/python train.py --token=planted-token --api-key planted-key"),
            Rank(**place, job="j", rank=0, world_size=1, source="environ"),
            RankStat(**place, job="j", rank=0, state="moving", watched={"hf_token": "planted-token", "loss": 2.5}),
            Job(job="j", command=("python", "train.py", "--api-key", "planted-key", "--token=planted-token"),
                launcher="env", nodes=(node,), procs_per_node=1, gpus_per_node=0, world_size=1, master_addr=node,
                master_port=1, created=1),
            JobNode(job="j", index=0, state="failed", reason="PASSWORD=planted-password was refused"),
            Gap(source="buffer", reason="https://u:planted-url@h/ was slow"),
            GpuEvent(event="xid", severity="error", text="a", try_="--token planted-token"),
            Stack(**place, capture="c", sample=0, job="j", rank=0, status="ok", thread_id=1, os_thread_id=7,
                  frames=(StackFrame("login", "/home/alice-at-work/a.py", 1, source='login(secret="planted-secret")'),),
                  locals=(Local(0, "hf_token", "planted-local"),)),
            Log(source="job", text=f"{node}: export MY_SECRET=planted-secret password: planted-password"),
            Finding(id="x", severity="error", confidence="certain", culprits=(f"{node}:gpu0",), first_seen=START,
                    text=f"{node} gave MY_TOKEN=planted-token to alice-at-work"),
        )  # fmt: skip
    unknown = {"kind": "of_tomorrow", "node": NAMES[0], "agent": "agent0", "seq": 999, "t": START, "mono": 0,
               "rx": START, "api_token": "planted-token", "x": ["password=planted-password"]}  # fmt: skip
    made.append(decode(json.dumps(unknown).encode()))
    say(
        "",
        ConsoleRecord(cluster="gpu-host-[1-2]", version="1"),
        Log(source="console", text="gpu-host-[1-2] cannot take part; gpu-host-1-ib0 neither; carol-later is root"),
        Log(source="job", text="connect to 10.20.30.40:29500 and [fe80::1ff:fe23:4567:890a]:22 refused"),
        Finding(id="topology_differs", severity="warning", confidence="certain", culprits=("gpu-host-1", "gpu-host-2"),
                first_seen=START, text="gpu-host-[1-2]: GPU4 PHB, see /home/bob-at-home/notes.txt"),
    )  # fmt: skip
    say(
        NAMES[0],
        Stack(**place, capture="c", sample=1, job="j@10.20.30.40:29500", rank=0, status="ok", thread_id=1,
              os_thread_id=7, frames=(StackFrame("main", "/home/bob-at-home/train.py", 1),)),
        Process(pid=8, start_ticks=1, ppid=1, uid=1001, user="carol-later", comm="python", role="python"),
    )  # fmt: skip
    say("", Mark(text="the password=planted-password of gpu-host-2"))
    return made


def recorded(folder: Path, *, anonymous: bool) -> Session:
    async def record() -> None:
        hub = Hub()
        recorder = Recorder(hub, folder, Limits(), lambda: (), hosts=NAMES[:2], cluster="gpu-host-[1-2]")
        await recorder.start("night", select(anonymous=anonymous))
        hub.publish(planted())
        await recorder.close()

    asyncio.run(record())
    return named("night", folder)


def contents(session: Session, folder: Path) -> dict[str, str]:
    """Every file and every export of the session, as text."""
    compact(session)
    lines = b"\n".join(encode(record) for record in reader.records(session.path)).decode()
    found = {"segments": lines, "session.json": session.meta_path.read_text()}
    for path in session.parquet_folder.rglob("*.parquet"):
        found[str(path)] = json.dumps(pq.ParquetFile(path).read().to_pylist(), default=repr)
    for form in SESSION_FORMATS.values():
        place = folder / f"out{form.suffix}"
        if form.is_folder:
            place.mkdir()
            files = form.write_folder(slice_session(session.path), place)
        else:
            with place.open("wb") as out:
                form.write(slice_session(session.path), out)
            files = [place]
        for path in files:
            is_table = path.suffix == ".parquet"
            table = json.dumps(pq.ParquetFile(path).read().to_pylist(), default=repr) if is_table else ""
            found[f"{form.name} {path.name}"] = table or path.read_bytes().decode(errors="replace")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("anonymous", [False, True])
def test_no_planted_secret_is_in_anything_that_is_written(tmp_path, anonymous):
    session = recorded(tmp_path / "sessions", anonymous=anonymous)
    for name, text in contents(session, tmp_path).items():
        for word in WORDS:
            assert word not in text, f"{word} in {name}"


@pytest.mark.slow
def test_anonymous_session_has_consistent_pseudonyms_and_no_original_names(tmp_path):
    session = recorded(tmp_path / "sessions", anonymous=True)
    for name, text in contents(session, tmp_path).items():
        for word in (*NAMES, *NAMES_IN_TEXTS):
            assert word not in text, f"{word} in {name}"
    records = list(reader.records(session.path))
    heads = {record.node for record in records if isinstance(record, Node)}
    (text,) = [record.text for record in records if isinstance(record, Mark)]
    found = [record for record in records if isinstance(record, Finding)]
    culprits = {culprit.partition(":")[0] for finding in found for culprit in finding.culprits}
    assert len(heads) == 2
    assert culprits == heads, "a finding names the host like its records"
    assert any(head in text for head in heads)
    users = {record.user for record in records if isinstance(record, Node | Process) and record.uid == 1000}
    assert len(users) == 1, "one user, one name"
