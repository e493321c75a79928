"""The views Skew and Clocks: late ranks, clocks, and when clock probes are requested."""

from __future__ import annotations

import asyncio

from clusters import clock_cluster, demo
from fake_cluster import FakeCluster
from pictures import picture
from screen_states import Stage
from waiting import settle, until

from gconsole.analysis.skew.findings import NO_SKEW
from gconsole.records import GpuClock
from gconsole.tui.app import ConsoleApp


def text(stage: Stage) -> str:
    return "\n".join(picture(stage.app).lines)


async def screen_after(cluster: FakeCluster, *keys: str) -> str:
    """Text of the screen after these keys."""
    async with cluster.app().run_test(size=(120, 40)) as pilot:
        stage = Stage(pilot, cluster)
        await settle(pilot)
        await stage.press(*keys)
        await stage.settle()
        return text(stage)


async def test_late_ranks_are_listed_first_with_their_error_and_node() -> None:
    lines = (await screen_after(clock_cluster(), "4")).splitlines()
    lanes = [line for line in lines if "±" in line and "node0" in line]
    assert lanes[0].split()[:2] == ["17", "node018"]
    assert "✖" in lanes[0]
    assert lanes[1].split()[0] == "5"
    assert lanes[2].split()[0] == "40"
    assert any("40/40 100 %" in line and "node018" in line for line in lines)


async def test_ranks_within_the_clock_error_are_marked_unresolved() -> None:
    lines = (await screen_after(clock_cluster(), "4")).splitlines()
    within_error = [line for line in lines if line.split()[:1] and line.split()[0] in ("62", "63", "54")]
    assert within_error
    assert all("◌" in line for line in within_error)


async def test_m_cycles_through_collectives_steps_and_captures() -> None:
    cluster = clock_cluster()
    async with cluster.app().run_test(size=(120, 40)) as pilot:
        stage = Stage(pilot, cluster)
        await settle(pilot)
        for key, title in (
            ("4", "SKEW  collectives"), ("m", "SKEW  steps (by the pattern of collectives)"), ("m", "SKEW  captures"),
            ("m", "SKEW  collectives"),
        ):  # fmt: skip
            await stage.press(key)
            await stage.settle()
            assert title in text(stage)


async def test_collectives_that_end_before_they_start_are_counted_as_clock_error() -> None:
    cluster = clock_cluster()
    cluster.collectives("other", 64, {9: 70.0}, per_node=1, capture="wrong")  # the others left it after 50 ms
    output = await screen_after(cluster, "4")
    assert "✖ 40 end before they start: clock error" in output


async def test_collectives_without_a_common_clock_are_not_analysed() -> None:
    cluster = demo()
    cluster.collectives("demo-ring", 8, {3: 20.0}, per_node=2)
    output = await screen_after(cluster, "4")
    assert "No collectives captured yet." in output


async def test_unsynced_node_shows_its_offset_and_the_status_of_its_time_service() -> None:
    lines = (await screen_after(clock_cluster(), "7")).splitlines()
    [line] = [line for line in lines if "node003" in line]
    assert "▲ unsynced" in line
    assert "+812" in line
    assert "chrony: no source" in line


async def test_clock_page_lists_its_edges_and_windows() -> None:
    output = await screen_after(clock_cluster(), "7", "g", "j", "j", "enter")
    assert "valid under any path asymmetry" in output
    assert "EDGES 6" in output
    assert "WINDOWS 6" in output


async def test_clock_page_shows_gpu_timers_only_when_reported() -> None:
    cluster = clock_cluster()
    assert "GPU TIMERS" not in await screen_after(cluster, "7", "enter")
    cluster.publish(
        GpuClock(node="node001", index=0, uuid="GPU-0", ahead_ns=7_012_400, bound_ns=2_700, step_ns=32, drift_ppm=0.82),
        GpuClock(node="node001", index=1, uuid="GPU-1", error="cuCtxCreate_v2: out of memory (2)"),
    )
    output = await screen_after(cluster, "7", "enter")
    assert "GPU TIMERS 2  timer minus CLOCK_REALTIME" in output
    assert "+7,012 ±2.70 µs" in " ".join(output.split())
    assert "cuCtxCreate_v2: out of memory (2)" in output


async def test_clock_matrix_marks_an_inconsistent_edge() -> None:
    output = await screen_after(clock_cluster(), "7", "m")
    assert "▲9.30" in output


async def test_clocks_are_filtered_by_bound() -> None:
    output = await screen_after(clock_cluster(), "7", "slash", *"bound:>40", "enter")
    assert "node064" in output
    assert "node030" not in output


async def test_clock_probes_are_requested_only_while_clocks_or_skew_is_open() -> None:
    cluster = clock_cluster()
    requests: list[bool] = []
    cluster.request_clock_probes = lambda requester, wants: requests.append(wants)  # type: ignore[method-assign]
    async with cluster.app().run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert True not in requests
        for key, wants in (("7", True), ("4", True), ("2", False), ("7", True), ("1", False)):
            await pilot.press(key)
            await until(pilot, lambda wants=wants: requests[-1] is wants, f"{key}: {wants}")


async def test_header_shows_the_clock_error_bound_when_a_common_clock_exists() -> None:
    assert "clock ±40.5 µs" in (await screen_after(clock_cluster())).splitlines()[0]
    assert "clock" not in (await screen_after(demo())).splitlines()[0]


async def test_lateness_is_computed_only_while_the_skew_view_is_open() -> None:
    async with clock_cluster().app().run_test(size=(80, 24)) as pilot:
        assert isinstance(pilot.app, ConsoleApp)
        await settle(pilot)
        assert pilot.app.frame.skew is NO_SKEW
        await pilot.press("4")
        await settle(pilot)
        assert pilot.app.frame.skew.collectives


async def test_x_samples_all_ranks_and_shows_what_the_slow_one_does() -> None:
    cluster = clock_cluster()
    async with cluster.app().run_test(size=(120, 40)) as pilot:
        stage = Stage(pilot, cluster)
        await settle(pilot)
        await stage.press("4", "x")
        await until(pilot, lambda: "rank 1 against its peers" in text(stage), "the comparison")
        assert "of the time in decode (job/data.py:7)" in text(stage)
        assert ("profile", "5") in cluster.calls


async def test_a_capture_started_in_skew_is_shown_there_and_escape_cancels_it() -> None:
    cluster = clock_cluster()
    cluster.capture_gate = asyncio.Event()
    async with cluster.app().run_test(size=(120, 40)) as pilot:
        stage = Stage(pilot, cluster)
        await settle(pilot)
        await stage.press("4", "s")
        await until(pilot, lambda: "captured 0/" in text(stage), "how far it is")
        assert " SKEW " in text(stage)
        await stage.press("escape")
        await until(pilot, lambda: "captured 0/" not in text(stage), "given up")
        assert " SKEW " in text(stage)
