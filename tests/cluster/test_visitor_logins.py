"""`gconsole serve`: passwords of logins are asked of visitors who may act, and of nobody else."""

from __future__ import annotations

from pathlib import Path
from subprocess import Popen

from rig import Rig
from serving import WebSocketClient, serving


def acting_address(server: Popen[str]) -> str:
    """The second address that the command prints."""
    assert server.stdout is not None
    return next(line.strip() for line in server.stdout if line.strip().startswith("http://"))


async def test_password_is_asked_of_the_visitor_who_may_act_only(tmp_path: Path) -> None:
    with Rig(nodes=1, name="visited") as rig:
        asking = rig.add_node("asking", "password_only")
        hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
        with serving(hosts.name, "--allow-actions", cwd=tmp_path) as (server, address):
            acting = acting_address(server)
            async with WebSocketClient(address) as looker:
                await looker.until("1/2 nodes")
                async with WebSocketClient(acting) as actor:
                    await actor.until("Login: ", "assword")
                    looker.clear_output()
                    await looker.type("?")
                    await looker.until("Everywhere")  # a frame later than its keys
                    assert "Login: " not in looker.output
                    assert asking.password not in looker.output
                    actor.clear_output()
                    await actor.type(f"{asking.password}\r")
                    await actor.until("2/2 nodes")
                    assert asking.password not in actor.output
                    looker.clear_output()
                    await looker.type("\x1b")
                    await looker.until("2/2 nodes")
                    assert "Login: " not in looker.output


async def test_login_waits_for_a_visitor_who_may_act_and_survives_one_who_leaves(tmp_path: Path) -> None:
    with Rig(nodes=0, name="left") as rig:
        asking = rig.add_node("asking", "password_only")
        hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
        with serving(hosts.name, "--allow-actions", cwd=tmp_path) as (server, address):
            acting = acting_address(server)
            async with WebSocketClient(address) as looker:
                await looker.until("0/1 nodes")
                async with WebSocketClient(acting) as first:
                    await first.until("Login: ")
                async with WebSocketClient(acting) as second:  # the first closed the window
                    await second.until("Login: ")
                    await second.type(f"{asking.password}\r")
                    await second.until("1/1 nodes")
                await looker.until("1/1 nodes")
                assert "Login: " not in looker.output
