"""Interactive logins: one prompt per bastion or key, no timeout while it is open, no delay for other nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from live_fleet import LiveFleet
from rig import Rig

from gconsole.config import load
from gconsole.core.bus import Hub
from gconsole.core.store import Store
from gconsole.fleet.fleet import Fleet
from gconsole.transport.ssh_keys import Prompt


class PromptAnswers:
    """Answers prompts after a delay; keeps the prompts."""

    def __init__(self, answer: Callable[[int], str | None], after_s: float = 0.0) -> None:
        self._answer, self._after_s = answer, after_s
        self.prompts: list[tuple[str, str]] = []

    async def __call__(self, subject: str, prompt: str) -> str | None:
        self.prompts.append((subject, prompt))
        number = len(self.prompts)
        await asyncio.sleep(self._after_s)
        return self._answer(number)


@asynccontextmanager
async def prompting_fleet(hosts: Path, prompt_user: Prompt, **flags: str) -> AsyncIterator[LiveFleet]:
    """The fleet of a hosts file, with a user to answer prompts."""
    config = load(str(hosts), flags={key.replace("_", ".", 1): value for key, value in flags.items()})
    hub, store = Hub(), Store()
    hub.subscribe(store.apply)
    fleet = Fleet(config, hub, prompt_user)
    watching = LiveFleet(fleet, hub, store)
    await fleet.start()
    try:
        yield watching
    finally:
        await fleet.stop()


async def test_passphrase_is_prompted_once_for_all_nodes_and_again_if_wrong(rig: Rig, tmp_path: Path):
    key = rig.encrypted_key("correct horse", "id_asked")
    answers = PromptAnswers(lambda number: "wrong" if number == 1 else "correct horse", after_s=0.3)
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", ssh={"identity_file": key})
    async with prompting_fleet(hosts, answers) as watching:
        await watching.sampled()
    assert [subject for subject, _ in answers.prompts] == [str(key)] * 2
    assert "Wrong passphrase" in answers.prompts[1][1]


async def test_encrypted_key_behind_a_bastion_is_prompted_for_once(tmp_path: Path):
    with Rig(nodes=0, name="asking") as rig:
        bastion = rig.add_bastion()
        for number in range(4):
            rig.add_node(f"far{number}", behind=bastion)
        key = rig.encrypted_key("correct horse", "id_way")
        answers = PromptAnswers(lambda number: "correct horse", after_s=0.3)
        hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", ssh={"identity_file": key, "jump": jump_of(rig, bastion)})
        async with prompting_fleet(hosts, answers) as watching:
            await watching.sampled()
        assert len(answers.prompts) == 1
        assert bastion.logins() == 1


def jump_of(rig: Rig, bastion) -> str:
    return f"{bastion.user}@{bastion.address}:{bastion.port}"


async def test_slow_password_entry_does_not_time_out_or_delay_other_nodes(tmp_path: Path):
    with Rig(nodes=2, name="slow") as rig:
        asking = rig.add_node("asking", "password_only")
        answers = PromptAnswers(lambda number: asking.password, after_s=4.0)
        hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
        async with prompting_fleet(hosts, answers, ssh_connect_timeout_s="2", ssh_max_connecting="1") as watching:
            await watching.until(lambda: answers.prompts)
            await watching.until(lambda: all(watching.state(node.name) == "ok" for node in rig.nodes[:2]), 3.5)
            assert watching.state("asking") == "connecting"
            if asking.password is not None:
                await watching.until(lambda: watching.state("asking") == "ok")
    assert len(answers.prompts) == 1
    assert "assword" in answers.prompts[0][1]


async def test_dismissed_prompt_fails_the_node_and_reappears_only_on_reconnect(tmp_path: Path):
    with Rig(nodes=0, name="none") as rig:
        asking = rig.add_node("asking", "password_only")
        answers = PromptAnswers(lambda number: None)
        async with prompting_fleet(rig.write_hosts_toml(tmp_path / "hosts.toml"), answers) as watching:
            await watching.until(lambda: watching.state("asking") == "failed")
            error = watching.store.nodes["asking"].state.error
            assert (error.name, len(answers.prompts)) == ("auth_interactive", 1)
            assert "dismissed" in error.text
            await watching.fleet.reconnect(asking.name)
            await watching.until(lambda: len(answers.prompts) == 2)


async def test_changed_hosts_file_adds_and_removes_nodes(rig: Rig, tmp_path: Path):
    text = rig.write_hosts_toml(tmp_path / "hosts.toml").read_text()
    head, *entries = text.split("[[nodes]]")
    few, many = tmp_path / "few.toml", tmp_path / "many.toml"
    few.write_text("[[nodes]]".join([head, *entries[:2]]))
    many.write_text("[[nodes]]".join([head, *entries[1:]]))
    first, second, *rest = [node.name for node in rig.nodes]
    async with prompting_fleet(few, PromptAnswers(lambda number: None)) as watching:
        await watching.sampled()
        changes = await watching.fleet.apply(load(str(many)))
        assert changes.removed == (first,)
        await watching.until(lambda: all(watching.state(name) == "ok" for name in rest))
        assert "removed" in watching.history(first)
        assert watching.history(second)[-1] == "ok"
        [answer] = await watching.fleet.examine([second])
        assert answer.failure is None and any(check["name"] == "python" for check in answer.value)
        assert await watching.fleet.add_nodes(second) == []
