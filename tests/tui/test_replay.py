"""A recorded session on the screen: the same views, a time line, and nothing that would need a node."""

import threading

import pytest
from fake_cluster import SECOND
from recorded_night import write_night
from session_builders import a_job, a_session
from textual.pilot import Pilot
from waiting import screen, settle, shows, until

from gconsole.core.store import Store
from gconsole.monitor.hang import verdicts
from gconsole.records import RankStat, Stack, StackFrame
from gconsole.session import replay
from gconsole.session.replay import Replay
from gconsole.tui.dialogs.prompts import Prompt
from gconsole.tui.replay_app import ReplayApp


@pytest.fixture
def player(tmp_path):
    return Replay(write_night(tmp_path))


async def wait_until_loaded(player: Replay, pilot: Pilot[None]) -> None:
    await settle(pilot)
    await until(pilot, lambda: bool(player.events), "the events of the session")


def minute_of(player: Replay) -> float:
    return (player.position - player.begin) / 60 / SECOND


async def test_header_shows_replay_mode_and_its_time(player):
    async with ReplayApp(player).run_test(size=(140, 40)) as pilot:
        await wait_until_loaded(player, pilot)
        await shows(pilot, " REPLAY ")
        await shows(pilot, "2/2 nodes")
        await shows(pilot, "00:10:00")


async def test_view_opened_during_a_rebuild_of_all_views_is_rebuilt_too(player, monkeypatch):
    async with ReplayApp(player).run_test(size=(140, 40)) as pilot:
        await wait_until_loaded(player, pilot)
        stage, opened = pilot.app.views.stage, []
        remove = stage.remove_children

        async def remove_while_others_come():
            await remove()
            if not opened:
                opened.append(True)
                await pilot.app.views.action_show("ranks")

        monkeypatch.setattr(stage, "remove_children", remove_while_others_come)
        await pilot.press("right_square_bracket")
        await until(pilot, lambda: opened and pilot.app.views.current == "ranks", "the view")
        await settle(pilot)
        assert minute_of(player) == 3
        assert set(stage.children) == set(pilot.app.views.opened.values())


async def test_view_mounted_after_a_rebuild_of_all_views_is_rebuilt_too(player, monkeypatch):
    async with ReplayApp(player).run_test(size=(140, 40)) as pilot:
        await wait_until_loaded(player, pilot)
        views, jumped = pilot.app.views, []
        mount = views.stage.mount

        async def mount_while_all_are_made_anew(view):
            await mount(view)
            if view.id == "ranks" and not jumped:
                jumped.append(view)
                await pilot.app.show_store(player.store)

        monkeypatch.setattr(views.stage, "mount", mount_while_all_are_made_anew)
        await pilot.press("2")
        await until(pilot, lambda: views.current == "ranks", "the view")
        assert set(views.stage.children) == set(views.opened.values())
        assert views.view is not jumped[0]


async def test_arrangement_of_an_unopened_view_survives_two_jumps(player):
    async with ReplayApp(player).run_test(size=(140, 40)) as pilot:
        await wait_until_loaded(player, pilot)
        await pilot.press("2", "slash", *"rank:0", "enter", "1")
        arranged = pilot.app.views.arrangements["ranks"]
        assert "rank:0" in str(arranged)
        for minute in (3, 5):
            await pilot.press("right_square_bracket")
            await until(pilot, lambda minute=minute: minute_of(player) == minute)
            await settle(pilot)
        assert "ranks" not in pilot.app.views.opened
        await pilot.press("2")
        assert pilot.app.view.arrangement == arranged


async def test_brackets_jump_between_events_and_views_show_the_state_at_that_time(player):
    async with ReplayApp(player).run_test(size=(140, 40)) as pilot:
        await wait_until_loaded(player, pilot)
        await pilot.press("right_square_bracket")
        await until(pilot, lambda: minute_of(player) == 3)
        await shows(pilot, "a GPU of node2 idles")
        await pilot.press("right_square_bracket")
        await until(pilot, lambda: minute_of(player) == 5)
        await pilot.press("right_square_bracket")
        await until(pilot, lambda: minute_of(player) == 8)
        await shows(pilot, "1/2 nodes")
        await pilot.press("left_square_bracket")
        await until(pilot, lambda: minute_of(player) == 5)
        await shows(pilot, "2/2 nodes")
        await pilot.press("left_square_bracket")
        await until(pilot, lambda: minute_of(player) == 3)
        await pilot.press("left_square_bracket")
        await until(pilot, lambda: "no earlier event" in " ".join(note.message for note in pilot.app._notifications))


async def test_data_go_stale_between_records_during_replay(player):
    async with ReplayApp(player).run_test(size=(140, 40)) as pilot:
        await wait_until_loaded(player, pilot)
        await pilot.press("T")
        await until(pilot, lambda: isinstance(pilot.app.screen, Prompt))
        await pilot.press(*"+210s", "enter")
        await shows(pilot, "◐ data 30 s old")
        await shows(pilot, "0/2 nodes")


async def test_header_is_above_and_time_line_below_the_view(player):
    async with ReplayApp(player).run_test(size=(80, 24)) as pilot:
        await wait_until_loaded(player, pilot)
        regions = [pilot.app.query_one(name).region for name in ("#header", "#tabs", "#stage", "#time-line", "#footer")]
        assert [region.y for region in regions] == [0, 1, 3, 22, 23]
        assert all(region.width == 80 for region in regions)
        await shows(pilot, "[ prev  ] next")


async def test_jump_keeps_the_current_view_and_its_filter(player):
    async with ReplayApp(player).run_test(size=(140, 40)) as pilot:
        await wait_until_loaded(player, pilot)
        await pilot.press("2", "slash", *"rank:3", "enter")
        await until(pilot, lambda: pilot.app.view.arrangement.filter == "rank:3")
        await pilot.press("right_square_bracket")
        await until(pilot, lambda: minute_of(player) == 3)
        await until(pilot, lambda: pilot.app.view.id == "ranks" and pilot.app.view.arrangement.filter == "rank:3")


async def test_space_plays_and_pauses_and_angle_brackets_change_the_speed(player):
    async with ReplayApp(player).run_test(size=(140, 40)) as pilot:
        await wait_until_loaded(player, pilot)
        await pilot.press("greater_than_sign", "greater_than_sign")
        await shows(pilot, "×5")
        await pilot.press("space")
        await shows(pilot, "▶ ×5")
        await until(pilot, lambda: player.position > player.begin)
        await pilot.press("space", "less_than_sign")
        await shows(pilot, "‖ ×2")


async def test_a_replay_slower_than_requested_shows_its_real_speed(player, monkeypatch):
    monkeypatch.setattr(replay, "STEP_S", 0.0)
    monkeypatch.setattr(replay, "_BATCH_RECORDS", 1)
    player.speed, player.is_playing = 100.0, True
    async with ReplayApp(player).run_test(size=(140, 40)) as pilot:
        await shows(pilot, "max speed: ×")


async def test_space_at_the_end_restarts_the_replay_from_the_beginning(player):
    async with ReplayApp(player).run_test(size=(140, 40)) as pilot:
        await wait_until_loaded(player, pilot)
        player.jump(player.end)
        await pilot.press("space")
        await until(pilot, lambda: minute_of(player) < 1 and player.is_playing)


async def test_typed_time_jumps_to_that_position(player):
    async with ReplayApp(player).run_test(size=(140, 40)) as pilot:
        await wait_until_loaded(player, pilot)
        await pilot.press("T")
        await until(pilot, lambda: isinstance(pilot.app.screen, Prompt))
        await pilot.press(*"50%", "enter")
        await until(pilot, lambda: minute_of(player) == 5)


async def test_the_time_line_is_dragged(player):
    async with ReplayApp(player).run_test(size=(140, 40)) as pilot:
        await wait_until_loaded(player, pilot)
        line = screen(pilot.app).splitlines()[pilot.app.query_one("#time-line").region.y]
        start, track_width = line.index("●"), len(line.split("●")[1].split()[0]) + 1
        await pilot.mouse_down("#time-line", offset=(start + 2, 0))
        await pilot.hover("#time-line", offset=(start + track_width // 2, 0))
        await pilot.mouse_up("#time-line", offset=(start + track_width // 2, 0))
        await until(pilot, lambda: 4 < minute_of(player) < 6)


async def test_actions_that_need_a_node_are_not_offered_in_replay(player):
    app = ReplayApp(player)
    async with app.run_test(size=(140, 40)) as pilot:
        await wait_until_loaded(player, pilot)
        offered = {action.id for action, _ in app.guide.offered()}
        assert {"replay.play", "app.export", "app.diagnose", "app.quit"} <= offered
        assert not offered & {"app.capture", "app.record", "app.reconnect", "app.add_nodes", "app.mark"}
        await pilot.press("r", "M", "s")
        await settle(pilot)
        assert len(app.screen_stack) == 1


async def test_time_dialog_reports_text_that_is_not_a_time(player):
    app = ReplayApp(player)
    async with app.run_test(size=(140, 40)) as pilot:
        await wait_until_loaded(player, pilot)
        for text in ("50%", "90s", "+1s", "noon"):
            await pilot.press("T")
            await settle(pilot)
            await pilot.press(*text, "enter")
            await settle(pilot)
        assert any("is not a time; use 14:02:30" in str(toast.message) for toast in app._notifications)


async def test_jump_to_the_end_of_a_long_hang_shows_the_live_verdict(tmp_path):
    stuck = (
        StackFrame("<module>", "train.py", 1),
        StackFrame("load_shard", "dataset.py", 88, source="time.sleep(3600)"),
    )
    waits = (
        StackFrame("<module>", "train.py", 2),
        StackFrame("all_reduce", "/torch/distributed/distributed_c10d.py", 3252),
    )
    records = a_job(ranks=2, ticks=120)
    for record in records:
        if isinstance(record, RankStat) and record.step > 10:
            record.state, record.cpu_pct, record.proc_state, record.ctx_switches_s = "idle", 0.0, "S", 0.0
    last = next(record for record in records if isinstance(record, RankStat) and record.mono == 70 * SECOND)
    for number in range(6):
        rank, sample = number % 2, number // 2
        t = last.t + sample * SECOND // 3
        records.append(Stack(
            node="n0", agent="agent-n0", seq=9000 + number, t=t, mono=t - last.t + last.mono, rx=t + number,
            capture="c", sample=sample, job="llama", rank=rank, pid=100 + rank, start_ticks=7, status="ok", began=t,
            ended=t + 900, thread_id=1, os_thread_id=100 + rank, frames=stuck if rank else waits, path=rank,
            proc_state="S",
        ))  # fmt: skip
    records.sort(key=lambda record: record.rx)
    live = Store()
    for record in records:
        live.apply([record])
    (verdict,) = verdicts(live)
    assert verdict.summary.startswith("rank 1 is in"), "and not that it was watched for too short a time"
    app = ReplayApp(Replay(a_session(tmp_path, records)))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("3", "T", *"100%", "enter")
        await shows(pilot, verdict.summary[:60])


async def test_screen_appears_before_a_late_start_is_reached(player, monkeypatch):
    may_go, jump = threading.Event(), player.jump_quickly
    monkeypatch.setattr(player, "jump_quickly", lambda to: may_go.wait(60) and jump(to))
    player.is_playing = True
    async with ReplayApp(player, start=player.begin + 5 * 60 * SECOND).run_test(size=(140, 40)) as pilot:
        try:
            await shows(pilot, " REPLAY ")
            await shows(pilot, "seeking to")
            assert minute_of(player) == 0 and not player.is_playing
        finally:
            may_go.set()
        await wait_until_loaded(player, pilot)
        await until(pilot, lambda: 5 <= minute_of(player) < 6 and player.is_playing, "the start")
