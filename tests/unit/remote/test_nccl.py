"""NCCL version loaded by a rank."""

import os

import pytest
from fake_proc import torch_rank, watch

ENV = torch_rank(0, 2)
LINE = "7f0000000000-7f0000100000 r-xp 00000000 08:01 1234    {}\n"


def maps(proc, pid, *paths):
    lines = ["5500-5600 r-xp 00000000 08:01 1    /usr/bin/python3.11\n", *(LINE.format(path) for path in paths)]
    (proc.root / str(pid) / "maps").write_text("".join(lines))


def later(seen, seconds):
    """NCCL version of rank 100 after `seconds`."""
    for _ in range(int(seconds / 2)):
        seen.tick()
    return seen.ranks[100].nccl


def test_nccl_version_is_read_from_the_system_library_name(proc):
    proc.python(100, env=ENV)
    maps(proc, 100, "/usr/lib/x86_64-linux-gnu/libnccl.so.2.21.5")
    seen = watch(proc)

    assert seen.ranks[100].nccl is None
    assert later(seen, 14) == "2.21.5"
    assert [one.nccl for one in seen.said if hasattr(one, "nccl")] == [None, "2.21.5"]


def test_nccl_version_of_a_pip_package_is_read_from_its_dist_info(proc, tmp_path):
    site = tmp_path / "site-packages"
    (site / "nvidia/nccl/lib").mkdir(parents=True)
    (site / "nvidia_nccl_cu12-2.26.2.dist-info").mkdir()
    proc.python(100, env=ENV, uid=os.getuid())  # whose rights are used to look
    (proc.root / "100/root").symlink_to("/")
    maps(proc, 100, f"{site}/nvidia/nccl/lib/libnccl.so.2")

    assert later(watch(proc), 14) == "2.26.2"


def test_nccl_loaded_late_is_found_by_one_more_check_and_then_kept(proc):
    proc.python(100, env=ENV)
    seen = watch(proc)
    assert later(seen, 14) is None
    maps(proc, 100, "/usr/lib/libnccl.so.2.18.3")
    assert later(seen, 62) == "2.18.3"
    maps(proc, 100, "/usr/lib/libnccl.so.2.30.0")
    assert later(seen, 200) == "2.18.3"


@pytest.mark.parametrize("path", ["/opt/libnccl.so.2", "/usr/lib/libncclx.so.1.2.3", "/x/nvidia/nccl/lib/libnccl.so.2"])
def test_nccl_version_is_unknown_for_paths_that_do_not_contain_it(proc, path):
    proc.python(100, env=ENV)
    maps(proc, 100, path)

    assert later(watch(proc), 80) is None


def test_nccl_version_of_an_unreadable_rank_is_unknown(proc):
    proc.python(100, env=ENV)
    maps(proc, 100, "/usr/lib/libnccl.so.2.21.5")
    seen = watch(proc)
    proc.denied.add(100)

    assert later(seen, 80) is None


def test_nccl_version_is_kept_when_another_rank_starts(proc):
    proc.python(100, env=ENV)
    maps(proc, 100, "/usr/lib/libnccl.so.2.21.5")
    seen = watch(proc)
    later(seen, 14)
    proc.python(200, env=torch_rank(1, 2))

    assert later(seen, 10) == "2.21.5"
