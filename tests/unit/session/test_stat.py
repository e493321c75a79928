"""A session in figures and pictures."""

import json

import pytest
from click.testing import CliRunner
from session_made import a_job, a_session, gpu

from gconsole.cli.stat import stat as command
from gconsole.records import Mark


def run(*args):
    return CliRunner().invoke(command, list(map(str, args)), standalone_mode=False)


def rows_of(*args):
    return json.loads(run(*args, "--format", "json").stdout)


def test_each_gpu_has_its_mean_median_tail_most_and_time_at_zero(tmp_path):
    samples = [gpu(n + 1, at=n, util_pct=float(0 if n < 25 else 100), energy_j=500.0 * n) for n in range(101)]
    path = a_session(tmp_path, [*samples, gpu(999, uuid="GPU-b", node="n2", util_pct=7.0)]).path

    first, second = rows_of(path)

    assert (first["node"], first["samples"], first["p50_util_pct"], first["max_util_pct"]) == ("n1", 101, 100.0, 100.0)
    assert first["mean_util_pct"] == pytest.approx(7600 / 101)
    assert first["zero_s"] == pytest.approx(25.0)
    assert first["energy_j"] == 50_000.0
    assert (second["zero_s"], second["energy_j"], second["p95_power_w"]) == (None, None, None), "unknown, not 0"


def test_by_rank_and_by_node_gather_the_gpus_of_each(tmp_path):
    path = a_session(tmp_path, a_job()).path

    assert [(row["rank"], row["mean_util_pct"]) for row in rows_of(path, "--by", "rank")] == [
        (0, 100.0), (1, 50.0), (2, 100.0), (3, 100.0),
    ]  # fmt: skip
    assert [(row["node"], row["samples"], row["mean_util_pct"]) for row in rows_of(path, "--by", "node")] == [
        ("n0", 6, 75.0), ("n1", 6, 100.0),
    ]  # fmt: skip


@pytest.mark.parametrize(("suffix", "magic"), [(".pdf", b"%PDF"), (".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_pictures_are_drawn_in_three_forms(tmp_path, suffix, magic):
    path, picture = a_session(tmp_path, a_job()).path, tmp_path / f"night{suffix}"

    assert run(path, "--plot", picture).return_value == 0

    assert picture.read_bytes().startswith(magic)


def test_nothing_to_draw_is_said(tmp_path):
    result = run(a_session(tmp_path, [Mark(text="x")]).path, "--plot", tmp_path / "night.pdf")

    assert result.return_value == 2 and "no figures of GPUs and no steps" in result.stderr


def test_a_form_that_is_no_picture_is_refused(tmp_path):
    result = CliRunner().invoke(command, [str(a_session(tmp_path, a_job()).path), "--plot", str(tmp_path / "x.doc")])

    assert result.exit_code == 2 and "a picture is a .pdf, .png or .svg" in result.output
