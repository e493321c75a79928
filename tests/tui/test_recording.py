"""`r` starts and stops recordings by name, the header shows them, and quitting asks for confirmation."""

from clusters import pod
from fake_cluster import SECOND, FakeCluster
from textual.pilot import Pilot
from waiting import until

from gconsole.core.control import BlackBoxStatus
from gconsole.tui.dialogs.prompts import Prompt
from gconsole.tui.models.header import header_spans


def active_names(cluster: FakeCluster) -> list[str]:
    return [now.name for now in cluster.recordings.active()]


def header_of(pilot: Pilot[None], width: int = 120) -> str:
    return "".join(span.text for span in header_spans(pilot.app.frame.header, width))  # type: ignore[attr-defined]


async def record(pilot: Pilot[None], cluster: FakeCluster, name: str) -> None:
    await pilot.press("r")
    await until(pilot, lambda: isinstance(pilot.app.screen, Prompt))
    await pilot.press(*name, "enter")
    await until(pilot, lambda: not isinstance(pilot.app.screen, Prompt))


def toasts(pilot: Pilot[None]) -> str:
    return " ".join(note.message for note in pilot.app._notifications)


async def test_r_starts_a_named_recording_and_stops_it():
    cluster = pod()
    async with cluster.app().run_test(size=(120, 30)) as pilot:
        await record(pilot, cluster, "night")
        await until(pilot, lambda: active_names(cluster) == ["night"])
        cluster.now_ns += 761 * SECOND
        await until(pilot, lambda: "● REC night  00:12:41" in header_of(pilot))
        await record(pilot, cluster, "")
        await until(pilot, lambda: active_names(cluster) == [])
        await until(pilot, lambda: "REC" not in header_of(pilot))
        assert "recorded night: 12,345 records" in toasts(pilot)


async def test_recording_without_a_name_is_named_after_the_cluster_and_time():
    cluster = pod()
    async with cluster.app().run_test() as pilot:
        await record(pilot, cluster, "")
        await until(pilot, lambda: active_names(cluster) != [])
        assert active_names(cluster)[0].startswith("h100-pod-2023111")


async def test_several_recordings_run_at_once_and_each_is_stopped_by_name():
    cluster = pod()
    async with cluster.app().run_test(size=(120, 30)) as pilot:
        await record(pilot, cluster, "one")
        await record(pilot, cluster, "two")
        await until(pilot, lambda: "REC one +1" in header_of(pilot))
        await record(pilot, cluster, "")
        await until(pilot, lambda: "type the name of one" in toasts(pilot))
        await record(pilot, cluster, "one")
        await until(pilot, lambda: active_names(cluster) == ["two"])


async def test_recording_prompt_accepts_the_options_of_the_record_command():
    cluster = pod()
    async with cluster.app().run_test(size=(120, 30)) as pilot:
        await record(pilot, cluster, "gpus --metrics gpu --every 10s --nodes node[1-2] --redact")
        await until(pilot, lambda: active_names(cluster) == ["gpus"])
        selection = cluster.recordings.selections["gpus"]
        assert (selection.nodes, selection.every_s, selection.anonymous) == (("node1", "node2"), 10.0, True)
        assert "gpu" in selection.kinds
        assert "nic" not in selection.kinds
        await record(pilot, cluster, "more --every soon")
        await until(pilot, lambda: "is not a duration" in toasts(pilot))
        await record(pilot, cluster, "gpus")
        await until(pilot, lambda: active_names(cluster) == [])


async def test_existing_session_name_is_rejected_and_nothing_is_recorded():
    cluster = pod()
    async with cluster.app().run_test() as pilot:
        await record(pilot, cluster, "taken")
        await until(pilot, lambda: "already" in toasts(pilot))
        assert active_names(cluster) == []


async def test_recording_resumed_after_a_crash_is_reported():
    cluster = pod()
    async with cluster.app().run_test() as pilot:
        await record(pilot, cluster, "crashed")
        await until(pilot, lambda: "resumed after a crash" in toasts(pilot))


async def test_full_disk_is_shown_in_the_header_at_narrow_width():
    cluster = pod()
    async with cluster.app().run_test(size=(80, 24)) as pilot:
        await record(pilot, cluster, "night")
        cluster.recordings.trouble = "the disk is full"
        await until(pilot, lambda: "▲ REC night the disk is full" in header_of(pilot, 60))


async def test_q_quits_during_a_recording_only_when_pressed_twice():
    cluster = pod()
    async with cluster.app().run_test() as pilot:
        await record(pilot, cluster, "night")
        await pilot.press("q")
        await until(pilot, lambda: "press q again" in toasts(pilot))
        assert pilot.app.is_running
        await pilot.press("q")
        await until(pilot, lambda: not pilot.app.is_running)


async def test_q_quits_at_once_without_a_recording():
    cluster = pod()
    async with cluster.app().run_test() as pilot:
        await pilot.press("q")
        await until(pilot, lambda: not pilot.app.is_running)


async def test_record_prompt_offers_the_black_box_and_keeps_its_last_minutes():
    cluster = pod()
    cluster.recordings.box = BlackBoxStatus(cluster.now_ns - 252 * SECOND, 1 << 20)
    async with cluster.app().run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: "black box 4 min" in header_of(pilot))
        await pilot.press("r")
        await until(pilot, lambda: isinstance(pilot.app.screen, Prompt))
        assert "incident --last 15m (the black box has 4 min 12 s)" in pilot.app.screen._text
        await pilot.press(*"incident --last 15m", "enter")
        await until(pilot, lambda: "kept 4 min 12 s as incident: 12,345 records, 663.0 KiB" in toasts(pilot))
        assert ("keep 900 s", "incident") in cluster.calls
        assert active_names(cluster) == []
        await record(pilot, cluster, "evening --since 5m")
        await until(pilot, lambda: active_names(cluster) == ["evening"])
        assert ("record since 300 s", "evening") in cluster.calls
        await until(pilot, lambda: "recording evening, from 5 min ago on" in toasts(pilot))
        await record(pilot, cluster, "taken --last 15m")
        await until(pilot, lambda: "exists already" in toasts(pilot))


async def test_black_box_in_trouble_is_shown_and_dropped_from_the_header_before_nodes():
    cluster = pod()
    cluster.recordings.box = BlackBoxStatus(cluster.now_ns - 90 * 60 * SECOND, 1 << 20)
    async with cluster.app().run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: "black box 90 min" in header_of(pilot))
        assert "black box" not in header_of(pilot, 60)
        assert "nodes" in header_of(pilot, 60)
        cluster.recordings.box = BlackBoxStatus(cluster.now_ns - SECOND, 1 << 20)
        await until(pilot, lambda: "black box <1 min" in header_of(pilot))
        cluster.recordings.box = BlackBoxStatus(cluster.now_ns, 0, "the disk is full")
        await until(pilot, lambda: "▲ black box: the disk is full" in header_of(pilot))
