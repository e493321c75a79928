"""Changes of a running fleet by the user, and login prompts."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from clusters import demo, pod
from running import running
from textual import events
from textual.widgets import Input
from waiting import screen, shows, until

from gconsole.config import load
from gconsole.config.diff import HostsFile
from gconsole.tui.app import ConsoleApp
from gconsole.tui.dialogs.dialog import KeysDialog
from gconsole.tui.dialogs.prompts import SecretPrompt


def ask_secret(app: ConsoleApp, login: str, prompt: str) -> asyncio.Task[str | None]:
    return asyncio.ensure_future(app.login_prompts.read_secret(login, prompt))


class TestALoginThatAsks:
    async def test_typed_secret_is_returned_and_not_displayed(self):
        app = demo().app()
        async with running(app, toasts=True) as pilot:
            answer = ask_secret(app, "ops@bastion", "Verification code:")
            await shows(pilot, "Verification code:")
            await shows(pilot, "Login: ops@bastion")
            await pilot.press(*"horse")
            assert "horse" not in screen(app)
            await pilot.press("enter")
            await until(pilot, answer.done)
            assert answer.result() == "horse"
            await until(pilot, lambda: len(app.screen_stack) == 1)

    async def test_escape_dismisses_the_login_prompt_without_an_answer(self):
        app = demo().app()
        async with running(app, toasts=True) as pilot:
            answer = ask_secret(app, "node1", "Password for node1")
            await shows(pilot, "Password for node1")
            await pilot.press("escape")
            await until(pilot, answer.done)
            assert answer.result() is None

    async def test_prompt_opened_while_the_terminal_has_no_focus_reads_keys_once_it_has(self):
        app = demo().app()
        async with running(app, toasts=True) as pilot:
            app.post_message(events.AppBlur())
            await until(pilot, lambda: not app.app_focus)
            answer = ask_secret(app, "node1", "Password for node1")
            await shows(pilot, "Password for node1")
            app.post_message(events.AppFocus())
            await until(pilot, lambda: isinstance(app.focused, Input))
            await pilot.press(*"horse", "enter")
            await until(pilot, answer.done)
            assert answer.result() == "horse"

    async def test_several_login_prompts_are_shown_one_after_the_other(self):
        app = demo().app()
        async with running(app, toasts=True) as pilot:
            answers = [ask_secret(app, f"node{i}", f"Password for node{i}") for i in (1, 2)]
            for i in (1, 2):
                await shows(pilot, f"Password for node{i}")
                await pilot.press(*f"word{i}", "enter")
            await until(pilot, lambda: all(answer.done() for answer in answers))
            assert [answer.result() for answer in answers] == ["word1", "word2"]

    async def test_login_prompt_waits_until_an_open_dialog_is_closed(self):
        app = demo().app()
        async with running(app, "question_mark", toasts=True) as pilot:
            await until(pilot, lambda: isinstance(app.screen, KeysDialog))
            answer = ask_secret(app, "node1", "Password for node1")
            for _ in range(3):
                app.login_prompts.open_next()  # as its clock does
                await pilot.pause()
            assert isinstance(app.screen, KeysDialog)
            await pilot.press("escape")
            await until(pilot, lambda: isinstance(app.screen, SecretPrompt))
            answer.cancel()

    async def test_login_prompt_closes_when_its_login_ends(self):
        app = demo().app()
        async with running(app, toasts=True) as pilot:
            answer = ask_secret(app, "node1", "Password for node1")
            await shows(pilot, "Password for node1")
            answer.cancel()
            await until(pilot, lambda: len(app.screen_stack) == 1)


class TestTheFleetInThePalette:
    async def test_nodes_are_added_by_name(self):
        cluster = demo()
        app = cluster.app()
        async with running(app, toasts=True) as pilot:
            await app.run_action("nodes.add")
            await until(pilot, lambda: isinstance(app.focused, Input))
            app.screen.query_one(Input).value = "new[1-2]"
            await pilot.press("enter")
            await until(pilot, lambda: ("add", "new1,new2") in cluster.calls)
            await shows(pilot, "connecting to new[1-2]")

    async def test_invalid_node_set_is_reported_and_adds_nothing(self):
        cluster = demo()
        app = cluster.app()
        async with running(app, toasts=True) as pilot:
            await app.run_action("nodes.add")
            await until(pilot, lambda: isinstance(app.focused, Input))
            app.screen.query_one(Input).value = "node[1-"
            await pilot.press("enter")
            await shows(pilot, "node[1-")
            assert cluster.calls == []

    async def test_node_is_removed_only_after_confirmation(self):
        cluster = demo()
        app = cluster.app()
        async with running(app, toasts=True) as pilot:
            for key, calls in (("escape", []), ("y", [("remove", "node1")])):
                await app.run_action("nodes.remove")
                await shows(pilot, "Remove node1?")
                await pilot.press(key)
                await until(pilot, lambda: len(app.screen_stack) == 1)
                await until(pilot, lambda calls=calls: cluster.calls == calls)

    async def test_all_failed_nodes_are_reconnected_at_once(self):
        cluster = pod()
        app = cluster.app()
        async with running(app, toasts=True) as pilot:
            cluster.finding("gpu_xid", "error", "XID 79", ["node001:gpu5"])
            await until(pilot, lambda: app.frame.fleet.by_name["node001"].status == "failed")
            failed = [node.name for node in app.nodes.failed]
            assert "node001" not in failed  # it is connected
            await app.run_action("nodes.reconnect_failed")
            assert failed and cluster.calls == [("reconnect", name) for name in failed]

    async def test_doctor_examines_every_node(self):
        app = demo().app()
        async with running(app, toasts=True) as pilot:
            await app.run_action("nodes.examine_all")
            await shows(pilot, "Health check")
            await shows(pilot, "3.10.12")
            await pilot.press("escape")
            await until(pilot, lambda: len(app.screen_stack) == 1)

    async def test_doctor_examines_the_selected_node(self):
        cluster = demo()
        app = cluster.app()
        async with running(app, toasts=True) as pilot:
            await app.run_action("nodes.examine")
            await until(pilot, lambda: ("examine", "node1") in cluster.calls)


def write(path: Path, hosts: str) -> None:
    path.write_text(f'[[nodes]]\nhosts = "{hosts}"\n')


def hosts_file(path: Path) -> HostsFile:
    return HostsFile(path, lambda: load(str(path), environ={}))


class TestHostsTomlIsSaved:
    async def test_saved_hosts_toml_is_reloaded_and_applied_to_the_fleet(self, tmp_path: Path):
        path = tmp_path / "hosts.toml"
        write(path, "node[1-4]")
        cluster = demo()
        async with running(cluster.app(hosts=hosts_file(path)), toasts=True) as pilot:
            write(path, "node[1-3]")
            await until(pilot, lambda: ("apply", "hosts") in cluster.calls)
            await shows(pilot, "removed")

    async def test_changed_watch_is_confirmed_with_its_keys(self, tmp_path: Path):
        path = tmp_path / "hosts.toml"
        write(path, "node[1-4]")
        cluster = demo()
        async with running(cluster.app(hosts=hosts_file(path)), size=(160, 30), toasts=True) as pilot:
            path.write_text('[watch]\nlocals = ["self.step"]\n' + path.read_text())
            await shows(pilot, "watch.locals applied")

    async def test_invalid_hosts_toml_is_reported_and_the_fleet_is_unchanged(self, tmp_path: Path):
        path = tmp_path / "hosts.toml"
        write(path, "node[1-4]")
        cluster = demo()
        async with running(cluster.app(hosts=hosts_file(path)), size=(160, 30), toasts=True) as pilot:
            path.write_text("[[nodes]]\nhosts = 3\n")
            await shows(pilot, "fleet unchanged")
            assert cluster.calls == []

    def test_half_written_hosts_file_is_not_read_until_it_is_stable(self, tmp_path: Path):
        path = tmp_path / "hosts.toml"
        write(path, "node1")
        hosts = HostsFile(path, lambda: load(str(path)))
        assert not hosts.is_saved()
        path.unlink()
        assert [hosts.is_saved(), hosts.is_saved()] == [False, False]
        write(path, "node[1-2]")
        assert [hosts.is_saved(), hosts.is_saved(), hosts.is_saved()] == [False, True, False]


async def test_ctrl_s_saves_the_screen_as_svg_and_confirms_it(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with running(demo().app(), "ctrl+s", "ctrl+s", size=(120, 40), toasts=True) as pilot:
        await shows(pilot, "saved")
        saved = svgs(tmp_path)
        assert len(saved) == 2
        assert "<svg" in saved[0].read_text()


async def test_failed_screenshot_reports_the_reason(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gconsole.tui.controllers.clipboard.save_new", _refuse)
    async with running(demo().app(), "ctrl+s", size=(120, 40), toasts=True) as pilot:
        await shows(pilot, "screenshot failed: Permission denied")


async def test_screenshot_in_a_deleted_folder_is_reported_without_a_crash(tmp_path: Path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    async with running(demo().app(), "ctrl+s", size=(120, 40), toasts=True) as pilot:
        await shows(pilot, "screenshot failed: No such file")


def _refuse(*_: object) -> Path:
    raise PermissionError(13, os.strerror(13))


def svgs(folder: Path) -> list[Path]:
    return sorted(folder.glob("gconsole-*.svg"))


async def test_a_footer_update_queued_before_quit_is_dropped_once_the_screens_are_gone():
    app = demo().app()
    async with running(app):
        pass
    assert not app.screen_stack
    app._draw_footer()
