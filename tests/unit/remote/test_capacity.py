"""File systems and memory limits: what is reported, hangs, and growth over time."""

import errno
import os
import threading
from types import SimpleNamespace

import pytest
from fake_proc import check

from gconsole_remote.proc import file_systems
from gconsole_remote.proc.file_systems import FileSystems, mounts, nfs_counters
from gconsole_remote.samplers.base import Context
from gconsole_remote.samplers.capacity import CapacitySampler

MOUNTINFO = r"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
42 27 254:0 /run/netns /run/netns rw,relatime shared:1 - ext4 /dev/vda rw
43 27 8:1 / /scratch rw - ext4 /dev/sdb1 ro,errors=remount-ro
44 27 8:2 / /mnt/read\040only ro - ext4 /dev/sdc1 ro
45 27 7:3 / /snap/core/1 ro - squashfs /dev/loop3 ro
46 27 8:3 / /boot/efi rw - vfat /dev/sda1 rw
47 27 0:50 / /data rw - nfs4 nas:/data rw,vers=4.2
48 27 0:51 / /home rw - autofs /etc/auto.home rw
49 27 0:30 / /dev/shm rw - tmpfs tmpfs rw
50 27 0:31 / /run/user/0 rw - tmpfs tmpfs rw
this is not a line
"""
#: After nfs_show_stats() and xs_tcp_print_stats() of Linux 6.1.
MOUNTSTATS = """device /dev/vda mounted on / with fstype ext4
device nas:/data mounted on /data with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2,rsize=1048576
\tage:\t1000
\txprt:\ttcp 863 1 1 0 0 1200 1190 2 5000 300 64 20 10
\tper-op statistics
\t        NULL: 1 1 0 44 24 0 0 0 0
\t        READ: 1000 1010 3 1 2 3 4 5 0
\t       WRITE: 200 205 1 1 2 3 4 5 0
"""


def test_relevant_file_systems_are_listed_once_with_both_kinds_of_read_only():
    found = {mount.path: mount for mount in mounts(MOUNTINFO)}

    assert list(found) == ["/", "/data", "/dev/shm", "/mnt/read only", "/scratch"]
    assert (found["/scratch"].is_rw, found["/scratch"].is_mounted_rw) == (False, True)
    assert (found["/mnt/read only"].is_rw, found["/mnt/read only"].is_mounted_rw) == (False, False)


def test_nfs_counters_are_those_of_the_mount():
    assert nfs_counters(MOUNTSTATS) == {"/data": {"requests": 1201, "retransmits": 15, "queued": 300}}
    assert nfs_counters("device x mounted on /y with fstype nfs4 statvers=1.1\n\txprt:\ttcp 1\n\tREAD: a b\n") == {
        "/y": {"requests": 0, "retransmits": 0, "queued": 0}
    }


@pytest.fixture
def proc(tmp_path):
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mountinfo").write_text(MOUNTINFO)
    (tmp_path / "self/mountstats").write_text(MOUNTSTATS)
    return tmp_path


@pytest.fixture
def server(monkeypatch):
    """A server of /data that hangs until `answers` is set, and other file systems that answer."""
    answers, asked = threading.Event(), []

    def statvfs(path):
        asked.append(path)
        if path == "/data" and not answers.is_set():
            answers.wait(30)
        return SimpleNamespace(f_blocks=100, f_frsize=4096, f_bavail=server.available, f_files=50, f_favail=40)

    server = SimpleNamespace(answers=answers, asked=asked, available=60)
    monkeypatch.setattr(os, "statvfs", statvfs)
    monkeypatch.setattr(file_systems, "DEADLINE_S", 0.05)
    yield server
    answers.set()


def by_path(records):
    """Records by path, without the counters of which the sampler makes rates."""
    rest = [{name: fields[name] for name in fields if name not in ("requests", "retransmits", "queued")}
            for fields in records]  # fmt: skip
    return {fields["path"]: check("capacity", fields) for fields in rest}


def test_server_that_hangs_delays_no_other_file_system_and_is_asked_once_until_it_answers(proc, server):
    reader = FileSystems(str(proc))

    first, second = by_path(reader.read()), by_path(reader.read())

    assert first["/data"].hung_s > 0 and first["/data"].available_bytes is None
    assert second["/data"].hung_s >= first["/data"].hung_s
    assert {path: record.available_bytes for path, record in second.items() if path != "/data"} == dict.fromkeys(
        ["/", "/dev/shm", "/mnt/read only", "/scratch"], 60 * 4096)  # fmt: skip
    assert server.asked.count("/data") == 1
    server.answers.set()
    (thread,) = [thread for _, thread in reader._hung.values()]
    thread.join(10)
    assert by_path(reader.read())["/data"].available_bytes == 60 * 4096


def test_error_of_a_file_system_is_named_but_not_a_folder_that_is_closed_or_hidden(proc, monkeypatch):
    def statvfs(path):
        number = {"/data": errno.ESTALE, "/": errno.EIO, "/dev/shm": errno.ENOENT}.get(path, errno.EACCES)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "statvfs", statvfs)
    records = by_path(FileSystems(str(proc)).read())

    assert {path: record.error for path, record in records.items() if record.error} == {
        "/data": "Stale file handle", "/": "Input/output error"}  # fmt: skip
    assert records["/scratch"].available_bytes is None


def test_growth_and_rates_are_over_time_and_servers_are_asked_less_often(proc, server):
    server.answers.set()
    sampler = CapacitySampler(Context(proc=str(proc)))
    first = by_path(fields for _, fields in sampler.tick(100.0))
    server.available = 40
    (proc / "self/mountstats").write_text(MOUNTSTATS.replace("1000 1010", "1300 1340").replace(" 300 64", " 900 64"))
    between = by_path(fields for _, fields in sampler.tick(110.0))
    third = by_path(fields for _, fields in sampler.tick(130.0))

    assert first["/"].growth_bytes_s is None and first["/data"].requests_s is None
    assert "/data" not in between
    assert third["/"].growth_bytes_s == pytest.approx(20 * 4096 / 30)
    assert (third["/data"].requests_s, third["/data"].retransmits_s, third["/data"].queued_s) == (10.0, 1.0, 20.0)


def test_file_system_that_was_unmounted_is_gone(proc, server):
    server.answers.set()
    sampler = CapacitySampler(Context(proc=str(proc)))
    list(sampler.tick(0.0))
    (proc / "self/mountinfo").write_text("27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n")

    gone = [fields["path"] for _, fields in sampler.tick(31.0) if fields.get("gone")]

    assert sorted(gone) == ["/data", "/dev/shm", "/mnt/read only", "/scratch"]


def cgroup(tmp_path, files):
    (tmp_path / "9").mkdir()
    (tmp_path / "9/cgroup").write_text("0::/job/step\n")
    (tmp_path / "self/mounts").write_text(f"cgroup2 {tmp_path}/cg cgroup2 rw 0 0\n")
    for path, text in files.items():
        place = tmp_path / "cg" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    sampler = CapacitySampler(Context(proc=str(tmp_path)))
    sampler.context.shared["processes"] = SimpleNamespace(ranks=[SimpleNamespace(pid=9, job="train")] * 2)
    return [check(kind, fields) for kind, fields in sampler.tick(0.0) if fields["type"] == "cgroup_memory"]


def test_memory_limit_is_the_tightest_above_the_rank_and_cached_files_do_not_count(proc, server):
    server.answers.set()
    (record,) = cgroup(proc, {
        "job/step/memory.max": "max\n", "job/step/memory.current": "500\n",
        "job/memory.max": "1000\n", "job/memory.current": "900\n",
        "job/memory.stat": "anon 300\nfile 600\ninactive_file 400\nactive_file 200\nshmem 0\n",
    })  # fmt: skip

    assert (record.path, record.total_bytes, record.available_bytes, record.job) == ("/job", 1000, 700, "train")


@pytest.mark.parametrize("files", [
    {}, {"job/memory.max": "x", "job/memory.current": "1"}, {"job/memory.max": "max", "job/memory.current": "1"},
    {"job/memory.max": "9" * 400, "job/memory.current": "-5"},
])  # fmt: skip
def test_rank_without_a_limit_has_none(proc, server, files):
    server.answers.set()

    assert cgroup(proc, files) == []
