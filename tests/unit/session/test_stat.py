"""`gconsole stat`: statistics and plots of a session."""

import json

import pandas as pd
import pytest
from click.testing import CliRunner
from session_builders import START, a_job, a_session, gpu

from gconsole.cli.query import stat as command
from gconsole.records import Collective, Host, Mark, Nic, RankStat
from gconsole.session.export.formats import SESSION_FORMATS
from gconsole.session.export.plots import skews_of
from gconsole.session.export.slice import slice_session
from gconsole.session.query.engine import Database
from gconsole.session.query.sources import RecordedSource
from gconsole.session.query.stat import STEP_TIMES

SECOND = 1_000_000_000


def run(*args):
    return CliRunner().invoke(command, list(map(str, args)), standalone_mode=False)


def rows_of(*args):
    return json.loads(run(*args, "--format", "json").stdout)


def test_stat_lists_mean_percentiles_max_and_idle_time_per_gpu(tmp_path):
    samples = [gpu(n + 1, at=n, util_pct=float(0 if n < 25 else 100), energy_j=500.0 * n) for n in range(101)]
    path = a_session(tmp_path, [*samples, gpu(999, uuid="GPU-b", node="n2", util_pct=7.0)]).path

    first, second = rows_of(path)

    assert (first["node"], first["samples"], first["p50_util_pct"], first["max_util_pct"]) == ("n1", 101, 100.0, 100.0)
    assert first["mean_util_pct"] == pytest.approx(7600 / 101)
    assert first["zero_s"] == pytest.approx(25.0)
    assert first["energy_j"] == 50_000.0
    assert (second["zero_s"], second["energy_j"], second["p95_power_w"]) == (None, None, None), "unknown, not 0"


@pytest.mark.slow
def test_stat_by_rank_and_by_node_aggregates_their_gpus(tmp_path):
    path = a_session(tmp_path, a_job()).path

    assert [(row["rank"], row["mean_util_pct"]) for row in rows_of(path, "--by", "rank")] == [
        (0, 100.0), (1, 50.0), (2, 100.0), (3, 100.0),
    ]  # fmt: skip
    assert [(row["node"], row["samples"], row["mean_util_pct"]) for row in rows_of(path, "--by", "node")] == [
        ("n0", 6, 75.0), ("n1", 6, 100.0),
    ]  # fmt: skip


def test_step_time_is_the_time_between_samples_of_a_rank_over_their_steps(tmp_path):
    """Steps of 0.237 s, sampled every second; rank 1 begins later and its node's clock is 100 s ahead."""
    records = []
    for rank, begin in ((0, 0), (1, 7)):
        for at in range(begin, 60):
            mono = at * 1_000_000_000
            records.append(
                RankStat(node=f"n{rank}", agent=f"a{rank}", seq=at + 1, t=START + mono + rank * 100_000_000_000,
                         mono=mono, rx=START + mono, job="llama", rank=rank, pid=1, start_ticks=1, state="moving",
                         step=int((at + rank * 0.3) / 0.237))
            )  # fmt: skip
    with RecordedSource(a_session(tmp_path, records).path) as source:
        database = Database(source, source.scratch)
        times = [row["step_s"] for row in database.query(STEP_TIMES).to_dicts()]
        database.close()

    assert min(times) > 0.19 and max(times) < 0.26
    assert sum(times) / len(times) == pytest.approx(0.237, abs=0.005)


@pytest.mark.slow
@pytest.mark.parametrize(("suffix", "magic"), [(".pdf", b"%PDF"), (".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_plot_is_written_as_pdf_png_or_svg(tmp_path, suffix, magic):
    path, picture = a_session(tmp_path, a_job()).path, tmp_path / f"night{suffix}"

    assert run(path, "--plot", picture).return_value == 0

    assert picture.read_bytes().startswith(magic)


def late_collectives(count=30):
    """Two ranks of one node; rank 1 enters each collective 20 ms after rank 0."""
    return [
        Collective(node="n1", agent="agent-n1", seq=2 * n + rank + 1, rx=START + n, capture="c1", source="fr_dump",
                   job="j", rank=rank, pid=10 + rank, start_ticks=1, process_group=("0", "default_pg"), group_size=2,
                   collective_seq_id=n + 1, profiling_name="nccl:all_reduce", retired=True,
                   time_created_ns=START + n * 100_000_000 + rank * 20_000_000)
        for n in range(count) for rank in range(2)
    ]  # fmt: skip


@pytest.mark.slow
def test_plot_includes_collective_skew(tmp_path):
    session, picture = a_session(tmp_path, late_collectives()), tmp_path / "night.svg"

    assert run(session.path, "--plot", picture).return_value == 0

    (skew,) = skews_of(slice_session(session.path))
    assert {one.behind_ns for one in skew.analysed} == {20_000_000}
    assert b"skew" in picture.read_bytes(), "the plot has a title"


@pytest.mark.slow
def test_stat_computed_in_batches_equals_stat_computed_at_once(tmp_path, monkeypatch):
    samples = [gpu(n + 1, uuid=f"GPU-{n % 5}", node=f"n{n % 5}", at=n // 5, util_pct=float(n)) for n in range(500)]
    path = a_session(tmp_path, samples).path
    at_once = rows_of(path)
    monkeypatch.setattr("gconsole.session.query.stat.SAMPLES_AT_ONCE", 150)

    assert rows_of(path) == at_once
    assert [row["samples"] for row in at_once] == [100] * 5


@pytest.mark.slow
def test_plot_of_a_session_without_metrics_is_an_error(tmp_path):
    result = run(a_session(tmp_path, [Mark(text="x")]).path, "--plot", tmp_path / "night.pdf")

    assert result.return_value == 2 and "neither GPU metrics nor steps nor collectives" in result.stderr


def test_unsupported_plot_suffix_is_rejected(tmp_path):
    result = CliRunner().invoke(command, [str(a_session(tmp_path, a_job()).path), "--plot", str(tmp_path / "x.doc")])

    assert result.exit_code == 2 and "use .pdf, .png or .svg" in result.output


def test_plot_without_matplotlib_is_an_error_that_names_the_extra(tmp_path, monkeypatch):
    from gconsole.session.export import plots
    from gconsole.session.query.engine import Database

    monkeypatch.setattr(plots, "find_spec", lambda name: None)
    monkeypatch.delattr(Database, "query")  # long sessions take minutes to query

    result = run(a_session(tmp_path, a_job()).path, "--plot", tmp_path / "night.png")

    assert result.return_value == 2
    assert "plots need matplotlib; install gconsole[plots]" in result.stderr
    assert not (tmp_path / "night.png").exists()


def a_training_hour():
    """Two ranks on a node with traffic: 1 step a second, NIC and disk at constant rates."""
    records = a_job(2, ticks=1)
    for tick in range(20):
        stamps = {"t": START + tick * SECOND, "mono": tick * SECOND, "rx": START + tick * SECOND}
        records += [
            RankStat(node="n0", agent="a", seq=1000 + 2 * tick + rank, job="train", rank=rank, pid=rank, start_ticks=1,
                     state="moving", step=tick, **stamps)
            for rank in range(2)
        ]  # fmt: skip
        records += [Nic(node="n0", device=f"mlx5_{port}", port=1, rx_bytes_s=1e9, tx_bytes_s=2e9, **stamps)
                    for port in range(2)]  # fmt: skip
        records.append(Host(node="n0", disk_read_bytes_s=5e6, disk_write_bytes_s=None, **stamps))
    return records


def test_stat_has_steps_of_ranks_and_traffic_of_ports_and_disks_of_nodes(tmp_path):
    path = a_session(tmp_path, a_training_hour()).path

    ranks = {(row["job"], row["rank"]): row for row in rows_of(path, "--by", "rank")}
    node = next(row for row in rows_of(path, "--by", "node") if row["node"] == "n0")

    rank = ranks["train", 1]
    assert (rank["samples"], rank["steps"], rank["p50_step_s"], rank["mean_util_pct"]) == (0, 19, 1.0, None)
    assert (node["mean_nic_rx_bytes_s"], node["max_nic_tx_bytes_s"]) == (2e9, 4e9), "of both ports"
    assert (node["mean_disk_read_bytes_s"], node["mean_disk_write_bytes_s"]) == (5e6, None)


def test_stat_table_has_units_and_csv_and_parquet_have_numbers(tmp_path):
    sample = gpu(1, util_pct=97.0, power_w=412.5, mem_used_bytes=64 << 30, pcie_rx_bytes_s=2e9)
    path = a_session(tmp_path, [sample]).path

    table = run(path).stdout.splitlines()[2]
    (tmp_path / "rows.parquet").write_bytes(run(path, "--format", "parquet").stdout_bytes)

    assert all(text in table for text in ("97 %", "412 W", "64.0 GiB", "1.9 GiB/s")) and "e+" not in table
    assert "412.5" in run(path, "--format", "csv").stdout
    assert pd.read_parquet(tmp_path / "rows.parquet")["max_mem_used_bytes"][0] == 64 << 30


def test_stat_table_leaves_out_columns_without_any_value(tmp_path):
    path = a_session(tmp_path, a_training_hour()).path

    title, *_, note = run(path, "--by", "node").stdout.splitlines()
    columns = run(path, "--by", "node", "--format", "csv").stdout.splitlines()[0].split(",")

    assert "mean_nic_rx_bytes_s" in title and "mean_temp_c" not in title and "mean_temp_c" in columns
    assert f"{len(columns) - len(title.split())} columns without any value" in note


def test_stat_reads_exported_json_and_that_of_gswarm(tmp_path):
    session = a_session(tmp_path, [gpu(n + 1, at=n, util_pct=float(n), pcie_rx_bytes_s=1e9, pcie_tx_bytes_s=1e9)
                                   for n in range(5)])  # fmt: skip
    for how in ("json", "gswarm"):
        with (tmp_path / f"{how}.json").open("wb") as file:
            SESSION_FORMATS[how].write(slice_session(session.path), file)

    (exported,), (gswarm,) = (rows_of(tmp_path / f"{how}.json") for how in ("json", "gswarm"))

    assert exported["mean_util_pct"] == gswarm["mean_util_pct"] == 2.0
    assert (gswarm["node"], gswarm["index"], gswarm["mean_pcie_rx_bytes_s"]) == ("n1", 0, 1e9)
    assert gswarm["max_mem_used_bytes"] is None


@pytest.mark.parametrize("text", ['{"frames": 3}', '{"frames": [{"time": "soon"}]}', '{"frames": [', '{"frames": [1]}'])
def test_bad_json_of_gswarm_is_an_error_that_names_the_file(tmp_path, text):
    path = tmp_path / "bad.json"
    path.write_text(text)

    result = run(path)

    assert result.return_value == 2 and f"{path}: not gswarm's JSON" in result.stderr


def test_ranks_without_gpus_and_steps_are_an_empty_table(tmp_path):
    path = a_session(tmp_path, [Host(node="n0", cpu_pct=1.0, t=START, mono=0, rx=START, agent="a", seq=1)]).path

    assert [rows_of(path, "--by", by) for by in ("gpu", "rank")] == [[], []]


@pytest.mark.parametrize("by", ["gpu", "node"])
def test_statistics_of_gpus_and_nodes_need_no_cluster_time(by):
    from gconsole.session.query.stat import entities_query, figures_query
    from gconsole.session.query.views import needs_cluster_time

    entity = {"node": "n0", "index": 0, "uuid": "GPU-a", "nodes": ["n0"], "samples": 1}

    queries = [entities_query(by), figures_query(by, [entity]), figures_query(by, [])]

    assert not any(map(needs_cluster_time, queries)), "the clock records of a long session do not fit into its memory"
