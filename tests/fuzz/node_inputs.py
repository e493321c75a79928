"""Targets for what an agent reads of processes of other users and of tools, and a console of schedulers."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from typing import Any
from unittest import mock

import msgspec

from gconsole.fleet import pod_events, scheduler_jobs
from gconsole.records import KINDS, encode
from gconsole.transport import openssh, site_exec
from gconsole_remote.accelerators import tools, users
from gconsole_remote.clocks import services
from gconsole_remote.comms import collect, nccl_log, nccl_ras, nccl_version, sockets
from gconsole_remote.history import boots, core_dumps, journal, service_faults, slurm
from gconsole_remote.kernel import faults, fold, log
from gconsole_remote.nvml import events
from gconsole_remote.proc import job_id, programs, rank_variables
from gconsole_remote.proc.environ import EnvironReader
from gconsole_remote.proc.procfs import Stat, Status, command_line
from gconsole_remote.stacks import connections

from .places import MemoryProcFs, folder_with

PID = 7
_STAT = b"7 (%s) S 1 7 7 0 -1 4194304 100 0 0 0 5 3 0 0 20 0 3 0 4242 1000 50 " + b"0 " * 30
_STATUS = b"Name:\tpython\nUmask:\t0022\nTracerPid:\t0\nUid:\t1000\t1000\t1000\t1000\nNSpid:\t7\n"
_OWN_STATUS = b"Uid:\t%d\t%d\t%d\t%d\n" % ((os.geteuid(),) * 4)  # read here, not in a child
_MAPPED = b"7f00-7f01 r-xp 00000000 00:01 5 /"
_UNIX = b"Num       RefCount Protocol Flags    Type St Inode Path\n"


def read_environment(data: bytes) -> None:
    """Environment and arguments of a process, separated by an empty variable: rank, job, launcher, GPU, libraries."""
    environ, _, cmdline = data.partition(b"\0\0")
    procfs = MemoryProcFs(environ=environ, cmdline=cmdline)
    env, _ = EnvironReader(procfs, (*rank_variables.VARIABLES, *collect.VARIABLES)).static(PID)
    argv = procfs.argv(PID)
    command_line(argv)
    programs.launcher_of(argv, "python")
    programs.child_role(argv, "python")
    programs.LauncherPlan(argv)
    programs.slurm_step_of(argv)
    for claim in (rank_variables.claim_of(env, "environ"), rank_variables.claim_of_argv(argv, env)):
        if claim is not None:
            assert claim.rank is None or 0 <= claim.rank < 2**31
            rank_variables.gpu_of(env, claim.local_rank)
            name = job_id.job_key(env, claim, 1000, lambda: "machine")
            assert name.isprintable() and len(name) < 512
    job_id.restart_family(env, 1000)
    nccl_ras.port_of(env)
    nccl_log.nccl_log_of(env, PID, "node1")
    nccl_log.inspector_folder_of(env)


def environment_seeds() -> list[bytes]:
    torch = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "node1",
             "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "x", "TORCHELASTIC_RESTART_COUNT": "1",
             "CUDA_VISIBLE_DEVICES": "0,1,GPU-1", "NCCL_RAS_ADDR": "localhost:28028"}  # fmt: skip
    slurm_ = {"SLURM_PROCID": "1", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0",
              "SLURM_LOCALID": "1", "NCCL_DEBUG_FILE": "/tmp/%h.%p", "NCCL_INSPECTOR_DUMP_DIR": "/tmp/x",
              "NCCL_INSPECTOR_ENABLE": "1"}  # fmt: skip
    mpi = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "PMIX_NAMESPACE": "prterun-1"}
    lightning = {"NODE_RANK": "1", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "PL_GLOBAL_SEED": "1"}
    argv = b"python3\0-m\0torch.distributed.run\0--nproc_per_node=4\0--nnodes\x002:4\0--node_rank\x001\0train.py\0"
    blocks = [b"\0".join(f"{name}={value}".encode() for name, value in env.items())
              for env in (torch, slurm_, mpi, lightning)]  # fmt: skip
    ranks = b"python\0train.py\0--rank\x003\0--world-size=8\0"
    return [block + b"\0\0" + words for block in blocks for words in (argv, ranks)]


def read_proc(data: bytes) -> None:
    """Names that a process may choose, in tables of the kernel: its own, those of sockets and of mapped files."""
    line = b"0000000000000000: 00000002 00000000 00010000 0001 01 4711 @"
    procfs = MemoryProcFs(
        net__unix=_UNIX + line + data + b"\n" + line + b"rank\n", cmdline=data, status=_OWN_STATUS,
        maps=_MAPPED + data.replace(b"\0", b"") + b"\n" + _MAPPED + b"x/libnccl.so.2.27.3\n",
    )  # fmt: skip
    assert sockets.find_listeners(procfs, PID, 4711), "a forged line hides the socket"
    nccl_version.loaded_version(procfs, PID)
    procfs.argv(PID)
    comm = data[:15]
    stat = Stat(_STAT % comm)
    assert (stat.ppid, stat.start_ticks, stat.threads) == (1, 4242, 3)
    status = Status(_STATUS.replace(b"python", comm.replace(b"\\", b"\\\\").replace(b"\n", b"\\n")))  # as the kernel
    assert (status.uid, status.ns_pid) == (1000, PID)
    with contextlib.suppress(connections.BadEnds):
        connections.parse_ends(_json(data))


def proc_seeds() -> list[bytes]:
    return [
        b"a\n0000000000000000: 00000002 00000000 00010000 0001 01 4711 @evil", b") S 2 (x",
        b'[["1.2.3.4:5", "[::1]:6"]]', b"/a/site-packages/nvidia/nccl/lib/libnccl.so.2",
        b"x/libnccl.so.2.27.3 (deleted)", b"python\0train.py\0--x=1\0",
    ]  # fmt: skip


def read_tools(data: bytes) -> None:
    """Output of the tools that an agent runs, and lines of the logs that it reads."""
    text = data.decode("utf-8", "backslashreplace")
    with mock.patch("gconsole_remote.agent.commands.run_apart", lambda *_: (0, data, b"")):
        for daemon in services._QUERIES:
            claim = services._query(daemon)
            assert all(abs(value) < 2**63 for value in claim.values() if isinstance(value, int | float)), claim
    entries = [entry for entry in map(journal._entry, data.split(b"\n")) if entry is not None]
    for entry in entries:
        entry.is_kernel, entry.is_of_system, entry.since_boot_s()
        service_faults.service_fault(entry.word("_SYSTEMD_UNIT"), entry.text)
        service_faults.unit_fault(entry.word("UNIT"), entry.text)
    boots.boot_of_journal(entries)
    with folder_with("wtmp", data) as folder, contextlib.suppress(ValueError):
        boots.last_boot(boots.read_wtmp(f"{folder}/wtmp"), 1e9)
    messages = [message for message in map(log.parse_message, data.split(b"\n")) if message is not None]
    messages += [(float(number), line, True) for number, line in enumerate(text.split("\n"))]
    folded = fold.FaultFold()
    for message in fold.newest(list(folded.fold(messages)) + list(folded.links(None))):
        assert message.text
    events.xids_in((at_s, line) for at_s, line, _ in messages)
    events.parse_pci_address(text)
    core_dumps.folders(text)
    with mock.patch("gconsole_remote.history.slurm._ask", lambda *_: text), contextlib.suppress(ValueError):
        slurm.node_state("node1")
    with mock.patch("gconsole_remote.history.slurm._ask", lambda *_: text), contextlib.suppress(ValueError):
        slurm.job_state("77")
    faults.fault_of(text)


def tools_seeds() -> list[bytes]:
    entry = {"__REALTIME_TIMESTAMP": "1795523961502379", "__MONOTONIC_TIMESTAMP": "15212390", "_BOOT_ID": "a" * 32,
             "__CURSOR": "s=1", "MESSAGE": "error: Node node1 failed", "_SYSTEMD_UNIT": "slurmd.service",
             "PRIORITY": "3", "_TRANSPORT": "journal", "_UID": "0", "UNIT": "x.service"}  # fmt: skip
    return [
        json.dumps(entry).encode() + b"\n" + json.dumps({**entry, "MESSAGE": [72, 5], "_TRANSPORT": "kernel"}).encode(),
        b"7F7F0101,127.127.1.1,10,1795523961.5,0.000000012,0.000000001,0.00000002,-1.5,0.1,0.01,0.0,0.0,0.5,Normal\n",
        b"system=\"Linux\", stratum=2, offset=0.123, rootdisp=10.2, rootdelay=1.3, sys_jitter=0.1, leap=0\n",
        b"NTPMessage={ Leap=0, Stratum=2, RootDelay=1ms }\nRootDistanceMaxUSec=5s\nServerName=x\n",
        b"\toffsetFromMaster     -12.0\n\tmeanPathDelay 500.0\n\tport_state SLAVE\n\tgmPresent true\n",
        b"4,100,5000000,-;NVRM: Xid (PCI:0000:17:00): 79, pid=123, name=python, GPU has fallen off the bus.\n",
        b"6,101,6000000,-;oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/a/b,task=python,pid=7,uid=0\n",
        b"3,1,2,-;EXT4-fs error (device sda1): x\n6,2,3,-;mlx5_core 0000:3b:00.0 ib0: Link down\n",
        b"NodeName=node1 State=DOWN*+DRAIN Reason=bad gpu [root@2026-11-24T12:00:00]\n",
        b"JobId=77 JobState=FAILED Reason=NonZeroExitCode Restarts=1 ExitCode=1:9\n",
        b"|/usr/lib/systemd/systemd-coredump %P %u %g %s %t 9223372036854775808 %h", b"/var/crash/core.%e.%p.%t",
    ]  # fmt: skip


def read_accelerators(data: bytes) -> None:
    """Output of amd-smi and hl-smi, and what the kernel lists of an open file of a GPU."""
    reports: list[tuple[str, dict[str, Any]]] = []
    with contextlib.suppress(tools.ToolFailed):
        reports += [("gpu_info", fields) for _, fields in tools.parse_amd_static(data).values()]
    with contextlib.suppress(tools.ToolFailed):
        reports += [("gpu", fields) for fields in tools.parse_amd_metric(data).values()]
    with contextlib.suppress(tools.ToolFailed):
        for info, figures in tools.parse_gaudi(data).values():
            reports += [("gpu_info", info), ("gpu", figures)]
    assert len(reports) <= 128
    for kind, fields in reports:
        msgspec.convert({"kind": kind, "index": 0, "uuid": "x", **fields}, KINDS[kind])
    client, size = users.parse_fdinfo(data.decode("utf-8", "replace"))
    assert len(client) < 20
    assert size is None or 0 <= size < 2**63


def accelerator_seeds() -> list[bytes]:
    watts, memory = {"value": 511, "unit": "W"}, {"value": 3072, "unit": "MB"}
    row = {"gpu": 0, "bus": {"bdf": "0000:85:00.0"}, "asic": {"market_name": "MI300X", "asic_serial": "0x1"},
           "driver": {"version": "6.8"}, "vram": {"size": memory}, "limit": {"socket_power": watts},
           "power": {"socket_power": watts}, "mem_usage": {"used_vram": memory}, "usage": {"gfx_activity": "96 %"},
           "ecc": {"total_correctable_count": 9}, "temperature": {"hotspot": {"value": 70, "unit": "C"}}}  # fmt: skip
    gaudi = b"0000:19:00.0, 0, HL-225, 01P0, AN1, 1.17.1, 5, 63 %, 98304 MiB, 24576 MiB, 42 C, 131 W, 0, 1, 4, 2, "
    return [
        json.dumps([row]).encode(), json.dumps({"gpu_data": [row, row]}).encode(), gaudi + b"Enabled\n",
        b"drm-client-id:\t3\ndrm-total-vram0:\t4 MiB\ndrm-memory-vram:\t4096 KiB\n",
    ]  # fmt: skip


def read_schedulers(data: bytes) -> None:
    """Output of kubectl, squeue and scontrol, and the errors of ssh, as the console reads them."""
    with (
        mock.patch("gconsole.fleet.scheduler_jobs.run_query", lambda *_: data),
        contextlib.suppress(scheduler_jobs.SchedulerError),
    ):
        scheduler_jobs.pods_of("training/app=x")
    with (
        mock.patch(
            "gconsole.fleet.scheduler_jobs.run_query", lambda argv, _: data if argv[0] == "squeue" else b"node1"
        ),
        contextlib.suppress(scheduler_jobs.SchedulerError),
    ):
        scheduler_jobs.steps_of("77")
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
        for event in msgspec.json.decode(data, type=pod_events._Events).items:
            encode(pod_events._event_log(event))
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
        for pod in msgspec.json.decode(data, type=pod_events._Pods).items:
            for _, record in pod_events._state_logs(pod):
                encode(record)
    text = data.decode("utf-8", "replace")
    for failure in (openssh.failure_of(255, text), site_exec.failure_of(1, text)):
        assert failure is None or str(failure)


def scheduler_seeds() -> list[bytes]:
    ended = {"exitCode": 137, "signal": 9, "reason": "OOMKilled", "finishedAt": "2026-11-24T12:00:00Z"}
    status = {"name": "main", "restartCount": 3, "state": {"terminated": ended}, "lastState": {"terminated": ended}}
    pod = {"metadata": {"name": "worker-0", "annotations": {}}, "spec": {"containers": [{"name": "main"}]},
           "status": {"phase": "Running", "containerStatuses": [status]}}  # fmt: skip
    event = {"metadata": {"name": "e", "resourceVersion": "1"}, "reason": "Evicted", "message": "x", "count": 2,
             "type": "Warning", "involvedObject": {"kind": "Pod", "name": "worker-0"},
             "lastTimestamp": "2026-11-24T12:00:00Z", "series": {"count": 3, "lastObservedTime": None}}  # fmt: skip
    return [
        json.dumps({"items": [pod, {**pod, "status": {"phase": "Failed", "reason": "Evicted"}}]}).encode(),
        json.dumps({"items": [event]}).encode(), b"RUNNING node[1-4]\n", b"PENDING\n",
        b"Permission denied (publickey).\n", b"@@@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @@@\n",
        b"srun: error: Unable to create step\n", b"Error from server (NotFound): pods not found\n",
    ]  # fmt: skip


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return data.decode("utf-8", "replace").split("\n")


#: name → (what, reader, seeds), for `targets.TARGETS`.
NODE_INPUTS: dict[str, tuple[str, Callable[[bytes], None], Callable[[], list[bytes]]]] = {
    "environ": ("environment and arguments of a process", read_environment, environment_seeds),
    "proc": ("names of processes, sockets and files in /proc", read_proc, proc_seeds),
    "tools": ("output of tools on a node, and its logs", read_tools, tools_seeds),
    "accelerators": ("output of amd-smi and hl-smi, open files of GPUs", read_accelerators, accelerator_seeds),
    "scheduler": ("output of schedulers and of ssh", read_schedulers, scheduler_seeds),
}
