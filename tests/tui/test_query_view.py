"""The Query view: a query of the live store, its result as a table or chart, and editing."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import busy_cluster, demo
from fake_cluster import FakeCluster
from running import running
from session_builders import a_job, a_session
from waiting import screen, settle, shows, until

from gconsole.core.store import Store
from gconsole.records import Gpu
from gconsole.session import store_snapshot
from gconsole.session.format.table_schema import TABLES
from gconsole.session.query.engine import Database
from gconsole.tui.views.query.model import QueryResult, chart_lines, complete, rows_of
from gconsole.tui.views.query.view import QueryView

NAMES = {"gpu": ("node", "util_pct", "power_w"), "rank": ("node", "rank"), "ranks_now": ("rank", "state")}
ENDLESS = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range * b.range % 7 = 3"


def query_store(store: Store, sql: str) -> list[dict[str, object]]:
    database = Database(store_snapshot.snapshot_tables(store, TABLES))
    try:
        return database.query(sql).to_dicts()
    finally:
        database.close()


@pytest.fixture(scope="module")
def busy() -> Iterator[Database]:
    database = Database(store_snapshot.snapshot_tables(busy_cluster().store, TABLES))
    # a query of every table: one of a table that is new builds the database again
    database.query(" UNION ALL ".join(f"SELECT count(*) FROM {table}" for table in TABLES))
    yield database
    database.close()


async def run_query(pilot, sql: str) -> QueryView:
    """Type a query in the Query view and wait for its result."""
    await pilot.press("9")
    view = pilot.app.view
    assert isinstance(view, QueryView)
    await pilot.press("slash")
    view._editor.line.text = sql
    await pilot.press("enter")
    await until(pilot, lambda: view._started_at is None, "an answer")
    await settle(pilot)
    return view


class TestTheLiveStore:
    def test_latest_gpu_records_are_rows_of_the_gpu_table(self):
        rows = query_store(demo().store, "SELECT node, count(*) AS gpus FROM gpu GROUP BY node ORDER BY node")
        assert rows and all(row["gpus"] for row in rows)

    def test_history_has_one_row_per_second_with_only_the_retained_metrics(self):
        cluster = FakeCluster("node1")
        cluster.store = Store(history_bytes=1 << 26)
        cluster.up()
        cluster.gpus(count=2)
        for second in range(20):
            cluster.advance(1)
            cluster.publish(Gpu(node="node1", index=0, uuid="GPU-node1-0", util_pct=float(second), encoder_pct=7.0))

        rows = query_store(cluster.store, """SELECT util_pct, encoder_pct, "index", uuid FROM gpu
                                     WHERE uuid = 'GPU-node1-0' AND util_pct < 20 ORDER BY t""")  # fmt: skip

        assert [row["util_pct"] for row in rows] == [float(second) for second in range(20)]
        assert rows[-1]["encoder_pct"] == 7.0, "the newest stands there in full"
        assert rows[0]["encoder_pct"] is None and rows[0]["index"] == 0

    def test_no_log_record_appears_twice(self):
        rows = query_store(busy_cluster().store, "SELECT agent, seq, count(*) AS n FROM log GROUP BY ALL HAVING n > 1")
        assert not rows

    @pytest.mark.parametrize("table", TABLES)
    def test_every_table_can_be_queried(self, busy: Database, table: str):
        busy.query(f"SELECT * FROM {table}")

    def test_ranks_now_view_covers_all_ranks_of_the_store(self):
        rows = query_store(busy_cluster().store, "SELECT job, count(*) AS n FROM ranks_now GROUP BY job")
        assert sum(row["n"] for row in rows) == len(busy_cluster().store.ranks)


class TestCompletion:
    def test_completion_after_from_offers_tables(self):
        assert complete("SELECT * FROM ra", 16, NAMES).options == ("rank", "ranks_now")

    def test_completion_offers_columns_of_the_named_tables_first(self):
        text = "SELECT po FROM gpu"
        assert complete(text, 9, NAMES).options[0] == "power_w"

    def test_completion_offers_nothing_for_a_complete_word(self):
        assert complete("FROM gpu", 8, NAMES).options == ()


class TestDrawings:
    answer = QueryResult(
        "", ("node", "gpu", "util_pct"), ("", "", "%"),
        rows_of([["n1", 0, 10.0], ["n1", 1, 100.0], ["n2", 0, None], ["n2", 1, 55.0]]),
    )  # fmt: skip

    def test_bar_length_is_proportional_to_the_value(self):
        lines = [line.text for line in chart_lines(self.answer, "bar", 60, 20)]
        assert lines[2].count("█") > 5 * max(1, lines[1].count("█"))
        assert lines[3].rstrip().endswith("–")

    def test_heat_map_has_one_row_per_node_and_dots_for_unknown_values(self):
        lines = [line.text for line in chart_lines(self.answer, "heat", 60, 20)]
        assert lines[1].startswith("n1 ") and lines[1].rstrip().endswith("██")
        assert lines[2].startswith("n2 ··")

    def test_line_chart_labels_its_maximum_and_both_ends(self):
        lines = [line.text for line in chart_lines(self.answer, "line", 60, 12)]
        assert "max 100" in lines[0]
        assert lines[-1].split() == ["n1", "n2"]

    def test_results_without_numeric_columns_offer_only_the_table(self):
        assert QueryResult("", ("a",), ("",), rows_of([["x"]])).drawings() == ("table",)
        assert QueryResult("", ("a", "b"), ("", ""), rows_of([["x", 1]])).drawings() == ("table", "line", "bar")


async def test_a_query_runs_and_its_result_is_shown_below():
    app = busy_cluster().app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await run_query(pilot, "SELECT node, count(*) AS ranks FROM ranks_now GROUP BY node ORDER BY node LIMIT 3")
        await shows(pilot, "3 rows in")
        await shows(pilot, "ranks")


async def test_p_cycles_from_charts_back_to_the_table():
    app = busy_cluster().app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        view = await run_query(
            pilot, "SELECT node, max(util_pct) AS util_pct FROM gpu GROUP BY node ORDER BY node LIMIT 5"
        )
        formats = []
        for _ in view._result.drawings():
            await pilot.press("p")
            await settle(pilot)
            formats.append((view._format, screen(app)))
        assert [format_name for format_name, _ in formats] == ["line", "bar", "table"]
        assert "█" in formats[1][1]


async def test_query_error_is_shown_and_the_query_text_is_kept():
    app = demo().app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await run_query(pilot, "SELECT powr_w FROM gpu")
        await shows(pilot, "Candidate bindings")
        await shows(pilot, "SELECT powr_w FROM gpu")


@pytest.mark.usefixtures("own_sql_worker")
async def test_escape_cancels_a_running_query():
    app = demo().app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press("9", "slash")
        view = app.view
        view._editor.line.text = ENDLESS
        await pilot.press("enter")
        await shows(pilot, "running")
        while view._started_at is not None:  # whatever instant it comes at
            await pilot.press("escape")
            await pilot.pause(0.02)
        assert not app.queries.client.is_busy


@pytest.mark.usefixtures("own_sql_worker")
@pytest.mark.parametrize(
    ("sql", "words"),
    [("SELECT repeat('x', 4200000000), repeat('y', 4200000000)", "needs more than 1GB of memory"),
     ("SELECT repeat('x', 90000000)", "the result needs more than 64.0 MiB")],
)  # fmt: skip
async def test_query_over_a_memory_limit_is_rejected_and_the_console_keeps_working(sql, words):
    app = demo().app()
    async with app.run_test(size=(140, 30)) as pilot:
        await settle(pilot)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        await run_query(pilot, sql)
        await shows(pilot, words)
        await run_query(pilot, "SELECT 6 * 7 AS answer")
        await shows(pilot, "42")
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000, "kB: it took place elsewhere"


@pytest.mark.usefixtures("own_sql_worker")
async def test_killed_sql_worker_is_replaced_on_the_next_query():
    app = demo().app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await run_query(pilot, "SELECT 1")
        app.queries.client._worker._process.kill()
        app.queries.client._worker._process.wait()
        await run_query(pilot, "SELECT 6 * 7 AS answer")
        await shows(pilot, "42")


async def test_host_rows_carry_cluster_time_without_querying_the_clock_tables():
    cluster = FakeCluster("node1", "node2", "node3")
    cluster.up()
    cluster.clocks()
    cluster.up()
    app = cluster.app()
    async with app.run_test(size=(120, 30)) as pilot:
        await settle(pilot)
        view = await run_query(
            pilot, "SELECT node, t, t_cluster, bound_ns FROM host WHERE mono IS NOT NULL ORDER BY node"
        )
    rows = [row.values for row in view._result.rows]
    assert [row[0] for row in rows] == ["node1", "node2", "node3"]
    assert all(row[2] is not None and abs(row[2] - row[1]) < 10_000 and row[3] > 0 for row in rows), rows


async def test_out_of_range_timestamp_is_shown_without_an_error():
    app = busy_cluster().app()
    async with app.run_test(size=(120, 30)) as pilot:
        await settle(pilot)
        await run_query(pilot, "SELECT make_timestamp(t) AS wrong FROM rank LIMIT 1")
        await shows(pilot, "55842-06-06 00:00:00")


@pytest.mark.usefixtures("own_sql_worker")
async def test_screen_keeps_updating_while_a_query_runs():
    cluster = demo()
    app = cluster.app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press("9", "slash")
        app.view._editor.line.text = ENDLESS
        await pilot.press("enter")
        await until(pilot, lambda: app.queries.client.is_busy, "that it works")
        before = app.frame.now
        cluster.advance(1)
        await until(pilot, lambda: app.frame.now > before, "a newer picture")
        while app.queries.client.is_busy:
            await pilot.press("escape")
            await pilot.pause(0.02)


async def test_tab_completes_and_ctrl_r_recalls_earlier_queries():
    app = demo().app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        view = await run_query(pilot, "FROM mark")
        await pilot.press("i")
        await until(pilot, lambda: view._editor.names, "names")
        view._editor.line.text = ""
        await pilot.press(*"FROM gpu_by", "tab")
        assert view._editor.line.text == "FROM gpu_by_rank"
        await pilot.press("ctrl+j", *"x")
        assert view._editor.line.text == "FROM gpu_by_rank\nx"
        await pilot.press("ctrl+r")
        assert view._editor.line.text == "FROM mark"
        await pilot.press("escape")
        assert view._editor.line.has_focus is False


@pytest.mark.usefixtures("painted_at_every_change")
async def test_query_is_wrapped_anew_when_the_terminal_grows_and_its_lines_stay_as_many():
    app = demo().app()
    async with app.run_test(size=(60, 20)) as pilot:
        await settle(pilot)
        await pilot.press("9")
        app.view._editor.put(
            'SELECT node, "index", util_pct FROM gpu WHERE util_pct IS NOT NULL ORDER BY ALL LIMIT 300'
        )
        await shows(pilot, "WHERE util_pct\n")
        await pilot.resize_terminal(80, 20)
        await until(pilot, lambda: app.view.size.width == 80, "the new width")
        await settle(pilot)
        lines = [line.strip() for line in screen(app).splitlines()]
        first = lines.index('SELECT node, "index", util_pct FROM gpu WHERE util_pct IS NOT NULL ORDER BY')
        assert lines[first + 1] == "ALL LIMIT 300"


async def test_cursor_of_a_long_query_stays_visible_when_the_terminal_shrinks():
    app = demo().app()
    async with app.run_test(size=(80, 20)) as pilot:
        await settle(pilot)
        await pilot.press("9")
        app.view._editor.put(" UNION ALL ".join(f"SELECT count(*) FROM rank WHERE rank = {rank}" for rank in range(11)))
        await pilot.press("slash")
        await shows(pilot, "rank = 10")
        await pilot.resize_terminal(60, 20)
        await until(pilot, lambda: app.view.size.width == 60, "the new width")
        await settle(pilot)
        await shows(pilot, "rank = 10")


@pytest.mark.parametrize("height", [24, 12])
async def test_lines_that_are_undone_or_deleted_may_end_the_scrollbar(height: int):
    app = demo().app()
    async with running(app, "9", "slash", size=(80, height)) as pilot:
        line = app.view._editor.line
        for remove in (line.undo, lambda: line.delete((0, 0), line.document.end)):
            line.insert("SELECT 1\n" * 9)
            await until(pilot, lambda: line.show_vertical_scrollbar)
            remove()
            await until(pilot, lambda: not line.show_vertical_scrollbar)
            assert line.text == "" and line.cursor_location == (0, 0)


async def test_digits_switch_views_when_the_editor_is_not_focused():
    app = demo().app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press("9", "2")
        assert app.view.id == "ranks"


async def test_l_and_h_scroll_to_columns_that_do_not_fit():
    app = demo().app()
    async with app.run_test(size=(60, 20)) as pilot:
        await settle(pilot)
        view = await run_query(pilot, "FROM host LIMIT 1")
        first = view._grid.shown_columns[0]
        await pilot.press("l", "right")
        await settle(pilot)
        assert view._grid.shown_columns[0] == "2:seq"
        await pilot.press("h", "left")
        await settle(pilot)
        assert view._grid.shown_columns[0] == first


async def test_result_row_can_be_copied_opened_and_saved_as_csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    app = demo().app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await run_query(pilot, "SELECT '=1+2' AS formula, [1, 2] AS list, 3.5 AS share")
        await pilot.press("y")
        assert app.clipboard == "formula  list   share\n=1+2     [1,2]  3.5"
        await pilot.press("Y")
        assert json.loads(app.clipboard) == [{"formula": "=1+2", "list": [1, 2], "share": 3.5}]
        await pilot.press("enter")
        await shows(pilot, "row 1")
        await pilot.press("escape", "e")
        await settle(pilot)
        app.screen._path_input.value = str(tmp_path / "answer.csv")
        await pilot.press("enter")
        await until(pilot, lambda: (tmp_path / "answer.csv").exists(), "the file")
    assert (tmp_path / "answer.csv").read_text() == 'formula,list,share\n\'=1+2,"[1,2]",3.5\n'


async def test_earlier_queries_are_restored_at_the_next_start():
    app = demo().app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        view = await run_query(pilot, "FROM mark")
        arrangement = view.arrangement
    again = QueryView(id="query")
    again.restore(arrangement)
    assert (arrangement.filter, arrangement.earlier) == ("FROM mark", ("FROM mark",))
    assert again.arrangement == arrangement


async def test_replayed_session_is_queried_and_exported_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    recorded = a_session(tmp_path, a_job()).path
    cluster = demo()
    app = cluster.app(recorded=recorded)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await run_query(pilot, "SELECT count(*) AS samples FROM gpu")
        await shows(pilot, "12")
        await pilot.press("e")
        await shows(pilot, "Session: night")
        dialog = app.screen
        index = next(number for number, item in enumerate(dialog._items) if item.name == "session")
        dialog._select(index, 0)
        dialog._path_input.value = str(tmp_path / "night.json")
        await pilot.press("enter")
        await until(pilot, lambda: (tmp_path / "night.json").exists(), "the file")
        await until(pilot, lambda: app.screen is not dialog, "that the dialog closes")
    assert len(json.loads((tmp_path / "night.json").read_text())["records"]) == len(a_job())


async def test_query_of_a_damaged_session_reports_the_skipped_records(tmp_path: Path):
    session = a_session(tmp_path, a_job())
    (path,) = session.segments()
    content = path.read_bytes()
    path.write_bytes(content[:-20] + b"?" * 20)
    app = demo().app(recorded=session.path)
    async with app.run_test(size=(140, 30)) as pilot:
        await settle(pilot)
        await run_query(pilot, "SELECT count(*) AS samples FROM gpu")
        await shows(pilot, "skipped (unreadable)")


async def test_html_report_can_be_exported_from_a_live_session(tmp_path: Path):
    app = demo().app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press("e")
        dialog = app.screen
        dialog._select(next(index for index, item in enumerate(dialog._items) if item.name == "page"), 0)
        dialog._path_input.value = str(tmp_path / "page.html")
        await pilot.press("enter")
        await until(pilot, lambda: (tmp_path / "page.html").exists(), "the file")
        await until(pilot, lambda: app.screen is not dialog, "that the dialog closes")
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
