"""Whether NVIDIA's library is installed, without loading it."""

import pytest

from gconsole_remote.nvml import call
from gconsole_remote.samplers.base import Unavailable

NAME = "libnvidia-ml.so.1"


def test_library_is_found_by_the_cache_of_the_linker_its_folders_and_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    cache, folder = tmp_path / "ld.so.cache", tmp_path / "lib"
    folder.mkdir()
    cache.write_bytes(b"glibc-ld.so.cache1.1\0libc.so.6\0/lib/libc.so.6\0")

    def is_installed():
        return call.is_installed(str(cache), [str(folder)])

    assert not is_installed()
    (folder / NAME).touch()
    assert is_installed()
    (folder / NAME).unlink()
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere:{tmp_path}")
    (tmp_path / NAME).touch()
    assert is_installed()
    monkeypatch.delenv("LD_LIBRARY_PATH")
    cache.write_bytes(cache.read_bytes() + NAME.encode() + b"\0/opt/nvidia/" + NAME.encode() + b"\0")
    assert is_installed()


def test_without_a_cache_of_the_linker_the_library_may_be_installed(tmp_path):
    assert call.is_installed(str(tmp_path / "absent"), [])


def test_node_without_the_library_starts_no_process_for_it(monkeypatch):
    monkeypatch.setattr(call, "is_installed", lambda: False)
    with pytest.raises(Unavailable) as error:
        call.check_installed()

    assert error.value.name == "gpu_no_driver"
