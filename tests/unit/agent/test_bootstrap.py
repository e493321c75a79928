"""Agent bootstrap: the bundle is verified and runs from memory; compiled code is cached and may be corrupt."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import shlex
import stat
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gconsole.fleet.deploy import agent_payload as bundle
from gconsole.fleet.wire import read_hello, read_lacking
from gconsole_remote.agent.bootstrap import BundleImporter

PYTHON_2 = next(iter(sorted(Path("~/.pyenv/versions").expanduser().glob("2.7*/bin/python"))), None)


def packed(**sources: str) -> dict:
    """Modules as in the bundle; `pkg__mod` is pkg.mod, and `pkg` is a package if it has such a module."""
    modules = {}
    for name, source in sources.items():
        data = source.encode()
        package = any(other.startswith(name + "__") for other in sources)
        modules[name.replace("__", ".")] = [hashlib.sha256(data).hexdigest(), zlib.compress(data), package]
    return modules


@contextmanager
def importing(modules: dict, code_dir: Path | None = None) -> Iterator[BundleImporter]:
    """An installed BundleImporter; its modules are removed from sys.modules afterwards."""
    importer = BundleImporter(modules)
    importer.code_dir = str(code_dir) if code_dir else None
    sys.meta_path.insert(0, importer)
    try:
        yield importer
    finally:
        sys.meta_path.remove(importer)
        for name in modules:
            sys.modules.pop(name, None)


def imported(modules: dict, code_dir: Path | None = None, name: str = "uh_one") -> object:
    with importing(modules, code_dir):
        return importlib.import_module(name)


ONE = packed(uh_one="answer = 42\n")


def test_modules_and_packages_are_imported_from_memory():
    modules = packed(uh_pkg="from . import part\n", uh_pkg__part="answer = 42\n")

    module = imported(modules, name="uh_pkg")

    assert module.part.answer == 42
    assert module.__spec__.origin == "gconsole bundle"


def test_module_missing_from_the_bundle_raises_module_not_found():
    with importing(ONE), pytest.raises(ModuleNotFoundError):
        importlib.import_module("uh_absent")


def test_compiled_code_is_cached_in_a_file_private_to_the_user(tmp_path):
    imported(ONE, tmp_path)

    [file] = tmp_path.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert sys.implementation.cache_tag in file.name


def test_cached_code_runs_instead_of_the_bundled_source(tmp_path):
    imported(ONE, tmp_path)
    unreadable = {"uh_one": [ONE["uh_one"][0], b"not even zlib", False]}

    assert imported(unreadable, tmp_path).answer == 42


@pytest.mark.parametrize("keep", [0, 3, 4, 20, -1])
def test_truncated_cached_code_is_recompiled(tmp_path, keep):
    imported(ONE, tmp_path)
    [file] = tmp_path.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:keep])

    assert imported(ONE, tmp_path).answer == 42
    assert file.read_bytes() == whole


@pytest.mark.parametrize("garbage", ["00", "4e", "e3", "ff"])
def test_corrupt_cached_code_is_recompiled(tmp_path, garbage):
    imported(ONE, tmp_path)
    [file] = tmp_path.iterdir()
    file.write_bytes(bytes.fromhex(garbage) * 100)

    assert imported(ONE, tmp_path).answer == 42


def test_import_works_without_a_writable_code_folder(tmp_path):
    with importing(ONE, tmp_path / "absent") as importer:
        assert importlib.import_module("uh_one").answer == 42
        assert importer.code_dir is None


def test_full_disk_leaves_no_temporary_file(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gconsole_remote.agent.bootstrap.os.rename", full)

    assert imported(ONE, tmp_path).answer == 42
    assert list(tmp_path.iterdir()) == []


def test_all_modules_are_precompiled_in_a_child_process(tmp_path):
    with importing(packed(uh_one="a = 1\n", uh_two="b = 2\n")) as importer:
        importer.use_code_dir(str(tmp_path))

        assert len(list(tmp_path.iterdir())) == 2
        assert "uh_two" not in sys.modules


def test_modules_are_compiled_on_import_when_fork_fails(tmp_path, monkeypatch):
    def refuse():
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("gconsole_remote.agent.bootstrap.os.fork", refuse)
    with importing(ONE) as importer:
        importer.use_code_dir(str(tmp_path))

        assert importlib.import_module("uh_one").answer == 42
    assert len(list(tmp_path.iterdir())) == 1


def run(data: bytes, python: str = sys.executable, before: str = "") -> subprocess.CompletedProcess:
    """Run the command as sshd does: through a shell, with the bundle on standard input."""
    argv = ["/bin/sh", "-c", before + bundle.command(python)]
    return subprocess.run(argv, input=data, capture_output=True, timeout=90, check=False)


def a_start(**config: object) -> bytes:
    start = {"console": "c0ffee", "bundle": "b", "label": "", "blobs": {}, "config": {"ephemeral": True, **config}}
    return json.dumps({"start": start}).encode() + b"\n"


def lines_of(data: bytes) -> list[bytes]:
    """The lines that the command writes until it has read all of `data`, and its end."""
    done = run(data)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_bundle_runs_and_sends_hello():
    made = bundle.build()
    lacks, hello, *_ = lines_of(made.preamble + a_start() + made.archive)

    assert read_lacking(lacks) == made.archive_digest
    assert read_hello(hello).protocol == (1, 1)


def test_second_start_needs_the_preamble_alone(tmp_path):
    made, start = bundle.build(), a_start(ephemeral=False, cache_dir=str(tmp_path / "cache"))
    lines_of(made.preamble + start + made.archive)

    assert read_hello(lines_of(made.preamble + start)[0]).protocol == (1, 1)
    assert len(made.preamble + start) < 10_000


@pytest.mark.parametrize("damage", ["truncated", "changed", "another", "a link", "a pipe", "readable", "a folder"])
def test_damaged_or_planted_archive_is_requested_again_and_replaced(tmp_path, damage):
    made, start = bundle.build(), a_start(ephemeral=False, cache_dir=str(tmp_path / "cache"))
    lines_of(made.preamble + start + made.archive)
    [cached] = (tmp_path / "cache" / "blob").glob("payload-*")
    plant(cached, damage)

    lacks, hello, *_ = lines_of(made.preamble + start + made.archive)

    assert read_lacking(lacks) == made.archive_digest
    assert read_hello(hello).agent
    if damage != "a folder":
        assert cached.read_bytes() == made.archive and stat.S_IMODE(cached.lstat().st_mode) == 0o600
        assert stat.S_ISREG(cached.lstat().st_mode)


def plant(cached: Path, damage: str) -> None:
    """Damage a cached archive, or put something else at its place."""
    archive = cached.read_bytes()
    if damage == "readable":
        cached.chmod(0o644)
        return
    cached.unlink()
    if damage == "truncated":
        cached.write_bytes(archive[:-1])
    elif damage == "changed":
        cached.write_bytes(archive[:-1] + bytes([archive[-1] ^ 1]))
    elif damage == "another":
        cached.write_bytes(b"raise SystemExit('executed')".ljust(len(archive)))
    elif damage == "a link":
        elsewhere = cached.with_name("elsewhere")
        elsewhere.write_bytes(archive)
        cached.symlink_to(elsewhere)
    elif damage == "a pipe":
        os.mkfifo(cached, 0o600)
    else:
        cached.mkdir(0o700)
    if damage != "a link":
        cached.chmod(0o700 if damage == "a folder" else 0o600)


@pytest.mark.parametrize("part", ["preamble", "archive"])
def test_bundle_that_does_not_match_its_digest_is_rejected(part):
    made = bundle.build()
    preamble, archive = bytearray(made.preamble), bytearray(made.archive)
    (preamble if part == "preamble" else archive)[-1] ^= 1

    done = run(bytes(preamble) + a_start() + bytes(archive))

    assert done.returncode == 1 and b"hello" not in done.stdout
    assert done.stderr.strip() == b"gconsole: bundle_rejected"


@pytest.mark.parametrize("sent", [lambda made: made.preamble[:-1],
                                  lambda made: made.preamble + a_start() + made.archive[:-1]])  # fmt: skip
def test_truncated_bundle_is_rejected(sent):
    done = run(sent(bundle.build()))

    assert (done.returncode, done.stderr.strip()) == (1, b"gconsole: bundle_rejected")


def test_full_disk_costs_a_transfer_at_every_start(tmp_path):
    made, start = bundle.build(), a_start(ephemeral=False, cache_dir=str(tmp_path / "cache"))

    for _ in range(2):
        done = run(made.preamble + start + made.archive, before="ulimit -f 100; ")  # blocks: less than the archive
        lacks, hello, *_ = done.stdout.splitlines()
        assert read_lacking(lacks) and read_hello(hello).agent, done.stderr
    assert list((tmp_path / "cache" / "blob").iterdir()) == []


def test_archive_is_requested_at_every_start_where_nothing_can_be_stored(tmp_path):
    made = bundle.build()
    (tmp_path / "file").write_text("")
    start = a_start(ephemeral=False, cache_dir=str(tmp_path / "file" / "cache"))

    for _ in range(2):
        lacks, hello, *_ = lines_of(made.preamble + start + made.archive)
        assert read_lacking(lacks) and read_hello(hello).agent


def test_wrong_hash_in_the_header_is_rejected():
    _, digest, rest = bundle.build().preamble.split(b" ", 2)

    done = run(b" ".join([b"gconsole", digest[::-1], rest]) + a_start())

    assert done.stderr.strip() == b"gconsole: bundle_rejected"


def test_text_before_the_bundle_makes_the_command_fail():
    done = run(b"Welcome to node17!\n" + bundle.build().preamble)

    assert done.returncode != 0 and done.stdout == b""


def test_empty_input_makes_the_command_fail():
    assert run(b"").returncode != 0


def test_input_without_a_start_frame_makes_the_command_fail():
    done = run(bundle.build().preamble)

    assert done.returncode != 0 and done.stdout == b""


@pytest.mark.skipif(PYTHON_2 is None, reason="Python 2.7 is not installed")
def test_python_2_is_rejected_as_too_old():
    code = shlex.split(bundle.command())[-2]
    done = subprocess.run([str(PYTHON_2), "-c", code], input=b"", capture_output=True, timeout=90, check=False)

    assert done.returncode == 1
    assert done.stderr.strip() == b"gconsole: python_too_old 2.7"


def test_bundle_build_is_deterministic_and_matches_its_digests():
    first = bundle.build()
    bundle._built.cache_clear()
    again = bundle.build()

    header, _, payload = again.preamble.partition(b"\n")
    assert (first.digest, first.preamble, first.archive) == (again.digest, again.preamble, again.archive)
    assert header.split()[1].decode() == hashlib.sha256(payload).hexdigest() == again.digest
    assert int(header.split()[2]) == len(payload)
    assert hashlib.sha256(again.archive).hexdigest() == again.archive_digest
    assert again.archive_digest.encode() in payload


def test_first_start_on_a_node_takes_at_most_400_kb_and_later_ones_10_kb():
    made = bundle.build()

    assert len(made.preamble) + len(made.archive) < 400_000
    assert len(made.preamble) < 10_000


def test_bundle_contains_every_agent_module():
    made, importer = bundle.build(), BundleImporter()
    payload = made.preamble.partition(b"\n")[2][int(made.preamble.split()[3]) :]
    importer.add(payload.partition(b"\n")[2])
    importer.add(made.archive)
    root = Path(__file__).parents[3] / "remote"

    for path in root.rglob("*.py"):
        name = ".".join(["gconsole_remote", *path.relative_to(root).with_suffix("").parts]).removesuffix(".__init__")
        assert importer.get_source(name).encode() == bundle.stripped_source(path.read_bytes())


@pytest.mark.parametrize("sizes", [[], [0], [5], [40_000, 3], [100, 60_000, 0]])
def test_archives_of_any_modules_are_unpacked_unchanged(sizes):
    sources = {f"uh_{number}": (f"# {number} é\n" * size).encode() for number, size in enumerate(sizes)}
    importer = BundleImporter()
    importer.add(bundle.pack({name: bundle.Module(source, False) for name, source in sources.items()}))

    assert {name: importer.get_source(name).encode() for name in importer.modules} == sources


@pytest.mark.parametrize("python", ["python3", "/opt/my py/bin/python3", "/opt/it's/python3", "$(reboot)"])
def test_python_path_is_quoted_as_one_shell_word(python):
    words = shlex.split(bundle.command(python))

    assert words[:6] == ["exec", python, "-I", "-S", "-B", "-c"]
    assert words[-1] == "gconsole-agent"


def test_sudo_is_run_non_interactively():
    assert bundle.command(run_as="sudo").startswith("exec sudo -n -- python3 ")
