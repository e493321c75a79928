"""Demo cluster on this machine: start-up, isolation of its nodes, and complete cleanup."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import asyncssh
import pytest

from gconsole.config import Config, NodeConfig, load
from gconsole.core.bus import Hub
from gconsole.core.store import Store
from gconsole.demo import DemoError, demo_cluster
from gconsole.fleet.fleet import Fleet

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the demo requires Linux")


# -- helpers ---------------------------------------------------------------------------------------------------------


def marks(config: Config) -> list[str]:
    """KEY=VALUE of the variable that marks all processes of a demo node, one per node."""
    return ["=".join(node.process_filter or ()) for node in config.nodes]


def marked(wanted: list[str]) -> dict[int, str]:
    """pid → command line of every live process with one of these variables."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            variables = (process / "environ").read_bytes().split(b"\0")
            if any(mark.encode() in variables for mark in wanted):
                found[int(process.name)] = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue  # the process ended, or belongs to another user
    return found


def ranks(wanted: list[str]) -> list[int]:
    return [pid for pid, command in marked(wanted).items() if "ring.py" in command]


def cluster_of(rank: int) -> int:
    """Pid of the process that launched a rank and serves SSH for its node."""
    return int(Path(f"/proc/{rank}/stat").read_text().rpartition(")")[2].split()[1])


def is_there(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def switches(pid: int) -> int:
    """Number of voluntary context switches; it grows with every step of a rank."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("voluntary_ctxt_switches:")[2].split()[0])


def at_rest(pids: list[int]) -> bool:
    """Whether none of these ranks runs for 0.5 s, which is twice the length of a step."""
    before = [switches(pid) for pid in pids]
    time.sleep(0.5)
    return [switches(pid) for pid in pids] == before


def folder(config: Config) -> Path:
    assert config.path is not None
    return config.path.parent


def wait_until(condition: Callable[[], object], deadline_s: float = 60.0) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"timed out after {deadline_s} s"
        time.sleep(0.02)


async def until(condition: Callable[[], object], deadline_s: float = 60.0) -> None:
    async with asyncio.timeout(deadline_s):
        while not condition():  # noqa: ASYNC110 - no event to wait for
            await asyncio.sleep(0.02)


@asynccontextmanager
async def watched(config: Config) -> AsyncIterator[Store]:
    """A store fed by a live fleet."""
    hub, store = Hub(), Store()
    hub.subscribe(store.apply)
    fleet = Fleet(config, hub)
    await fleet.start()
    try:
        yield store
    finally:
        await fleet.stop()


def login(node: NodeConfig, **changes: object) -> asyncssh.connect:
    """Connect to a demo node with the options of its hosts.toml."""
    options = {
        "username": node.ssh.user, "client_keys": [node.ssh.identity_file], "known_hosts": node.ssh.known_hosts,
        "agent_path": None, "config": None,
    }  # fmt: skip
    return asyncssh.connect(node.address, node.ssh.port, **{**options, **changes})


# -- start-up --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_fleet_discovers_every_demo_rank_with_node_pid_and_moving_state() -> None:
    with demo_cluster(nodes=2, ranks=4, gpus=2) as demo:
        config = load(str(demo.hosts), environ={})
        assert [node.name for node in config.nodes] == ["demo1", "demo2"]
        by_node = {node.name: sorted(ranks([mark])) for node, mark in zip(config.nodes, marks(config), strict=True)}
        async with watched(config) as store:
            await until(lambda: len(store.ranks) == 4)
            seen = {now.rank.rank: now.rank for now in store.ranks.values()}
            assert {number: seen[number].node for number in sorted(seen, key=str)} == {
                0: "demo1", 1: "demo1", 2: "demo2", 3: "demo2",
            }  # fmt: skip
            assert {seen[number].pid for number in (0, 1)} == set(by_node["demo1"])
            assert {seen[number].pid for number in (2, 3)} == set(by_node["demo2"])
            assert len({rank.job for rank in seen.values()}) == 1
            assert {rank.world_size for rank in seen.values()} == {4}
            await until(lambda: [now.stat and now.stat.state for now in store.ranks.values()] == ["moving"] * 4)
            await until(lambda: len(store.gpus) == 4)
            assert [seen[number].gpu for number in range(4)] == ["0", "1", "0", "1"], "gpu_by_rank joins them"


@pytest.mark.slow
def test_two_concurrent_demos_share_no_ranks_ports_or_folders() -> None:
    with demo_cluster(nodes=1, ranks=2, gpus=0) as first, demo_cluster(nodes=1, ranks=2, gpus=0) as second:
        one, other = load(str(first.hosts), environ={}), load(str(second.hosts), environ={})
        assert len(ranks(marks(one))) == len(ranks(marks(other))) == 2
        assert not set(ranks(marks(one))) & set(ranks(marks(other)))
        assert one.nodes[0].ssh.port != other.nodes[0].ssh.port
        assert folder(one) != folder(other)


@pytest.mark.slow
def test_demo_job_pauses_while_a_rank_is_stopped_and_then_continues() -> None:
    with demo_cluster(nodes=1, ranks=3, gpus=0) as demo:
        config = load(str(demo.hosts), environ={})
        first, second, third = sorted(ranks(marks(config)))
        before = switches(first)
        wait_until(lambda: switches(first) > before + 3)
        os.kill(second, signal.SIGSTOP)
        wait_until(lambda: at_rest([first, third]))
        os.kill(second, signal.SIGCONT)
        stopped_at = switches(first)
        wait_until(lambda: switches(first) > stopped_at + 3)


# -- nodes -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_command_on_a_node_has_its_pipes_its_environment_and_its_exit_status() -> None:
    with demo_cluster(nodes=2, ranks=1, gpus=0) as demo:
        config = load(str(demo.hosts), environ={})
        async with login(config.nodes[1]) as connection:
            done = await connection.run("cat; echo $GCONSOLE_DEMO_NODE >&2; exit 7", input=b"\0\xff\n", encoding=None)
    assert (done.stdout, done.exit_status) == (b"\0\xff\n", 7)
    assert done.stderr.decode().startswith("demo2-")


async def test_login_with_another_key_than_the_demo_key_is_rejected() -> None:
    with demo_cluster(nodes=1, ranks=1, gpus=0) as demo:
        config = load(str(demo.hosts), environ={})
        with pytest.raises(asyncssh.PermissionDenied):
            await login(config.nodes[0], client_keys=[asyncssh.generate_private_key("ssh-ed25519")])
        assert folder(config).stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
async def test_closed_connection_ends_its_remote_processes_and_their_children() -> None:
    with demo_cluster(nodes=1, ranks=1, gpus=0) as demo:
        config = load(str(demo.hosts), environ={})
        mine = marks(config)
        async with login(config.nodes[0]) as connection:
            await connection.create_process("sleep 1000 & trap '' HUP TERM; sleep 1000 & wait")
            await until(lambda: sum("sleep" in command for command in marked(mine).values()) >= 2)
            connection.abort()
            await until(lambda: len(marked(mine)) == 1)  # the rank


# -- cleanup ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_demo_exit_with_a_connected_fleet_leaves_no_processes_or_files() -> None:
    with demo_cluster(nodes=2, ranks=4, gpus=1) as demo:
        config = load(str(demo.hosts), environ={})
        mine = marks(config)
        serving = cluster_of(ranks(mine)[0])
        hub, store = Hub(), Store()
        hub.subscribe(store.apply)
        fleet = Fleet(config, hub)
        await fleet.start()
        await until(lambda: len(store.ranks) == 4)
        assert len(marked(mine)) >= 4 + 2
    assert marked(mine) == {}
    assert not is_there(serving)
    assert not folder(config).exists()
    await fleet.stop()


@pytest.mark.slow
def test_demo_exit_also_ends_a_stopped_rank() -> None:
    with demo_cluster(nodes=1, ranks=2, gpus=0) as demo:
        config = load(str(demo.hosts), environ={})
        mine = marks(config)
        os.kill(ranks(mine)[0], signal.SIGSTOP)
    assert marked(mine) == {}


CONSOLE = """
import asyncio, sys
from gconsole.config import load
from gconsole.demo import demo_cluster
from gconsole.fleet.fleet import Fleet
from gconsole.core.bus import Hub
from gconsole.core.store import Store

async def watch(config):
    hub, store = Hub(), Store()
    hub.subscribe(store.apply)
    fleet = Fleet(config, hub)
    await fleet.start()
    while len(store.ranks) < 2:
        await asyncio.sleep(0.02)
    print(config.path, *("=".join(node.process_filter) for node in config.nodes), flush=True)
    await asyncio.sleep(1000)

with demo_cluster(nodes=2, ranks=2, gpus=1) as demo:
    config = load(str(demo.hosts), environ={})
    asyncio.run(watch(config))
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_killed_console_leaves_no_demo_processes_or_files(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", CONSOLE], stdout=subprocess.PIPE, text=True) as console:
        assert console.stdout is not None
        path, *mine = console.stdout.readline().split()
        serving = cluster_of(ranks(mine)[0])
        assert len(marked(mine)) >= 2 + 2
        console.send_signal(number)
        console.wait(10)
        wait_until(lambda: not marked(mine) and not is_there(serving))
        wait_until(lambda: not Path(path).parent.exists())


@pytest.mark.slow
async def test_killed_cluster_process_leaves_no_demo_processes_or_files() -> None:
    with demo_cluster(nodes=2, ranks=2, gpus=1) as demo:
        config = load(str(demo.hosts), environ={})
        mine = marks(config)
        async with watched(config) as store:
            await until(lambda: len(store.ranks) == 2)
            os.kill(cluster_of(ranks(mine)[0]), signal.SIGKILL)
            await until(lambda: not marked(mine))
    assert not folder(config).exists()


@pytest.mark.slow
def test_demo_start_timeout_is_reported_and_leaves_no_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "full"))
    (tmp_path / "full").mkdir()
    monkeypatch.setattr("gconsole.demo.START_S", 0.0)
    with pytest.raises(DemoError, match="did not start"), demo_cluster(nodes=1, ranks=1):
        pass
    assert list((tmp_path / "full").iterdir()) == []
