"""Traffic between ranks: volume, pattern, balance and bandwidth; no result where data is missing."""

import pytest
from analysis.collectives.builders import a_status, an_op, recorded, said

from gconsole.analysis.collectives.traffic import TrafficCell, TrafficMatrix, pattern_of


def send(source, destination, *, numel=256, took_ms=None, **more):
    name = f"nccl:send {source}->{destination}"
    return an_op(source, 0, name, is_p2p=True, numel=numel, duration_ms=took_ms, **more)


def whole(world_size=4):
    return [a_status(rank, 0, tuple(range(world_size))) for rank in range(world_size)]


def test_sends_are_counted_with_their_bytes_and_their_mean_latency():
    found = said(send(0, 1, took_ms=2.0), send(0, 1, took_ms=4.0), send(1, 2), *whole())
    assert found.matrix.cells == (TrafficCell(0, 1, 2, 2048, 3.0), TrafficCell(1, 2, 1, 1024, None))
    assert found.matrix.ranks == (0, 1, 2, 3)


def test_receive_is_counted_only_without_a_recorded_send():
    receive = an_op(1, 0, "nccl:recv 1<-0", is_p2p=True, numel=256)
    assert said(receive, send(0, 1), *whole()).matrix.cells == (TrafficCell(0, 1, 1, 1024, None),)
    alone = [a_status(1, 0, (0, 1, 2, 3), oldest_record_id=5)]
    assert said(receive, *alone).matrix.cells == (TrafficCell(0, 1, 1, 1024, None),)


def test_all_to_all_divides_its_input_but_all_gather_does_not():
    divided = said(*(an_op(rank, 1, "nccl:all_to_all", numel=400) for rank in range(4))).matrix
    assert {cell.bytes for cell in divided.cells} == {400}
    gathered = said(*(an_op(rank, 1, "nccl:all_gather", input_numel=100, output_numel=400) for rank in range(4))).matrix
    assert {cell.bytes for cell in gathered.cells} == {400}
    assert len(gathered.cells) == 12


def test_all_reduce_is_left_out_of_the_traffic_matrix_with_a_reason():
    found = recorded("missing")
    assert found.matrix.cells == ()
    assert found.matrix.left_out == {"all_reduce": 8}
    assert "names a pair" in found.matrix.refused
    assert (found.pattern.pattern, found.pattern.refused) == (None, found.matrix.refused)
    assert found.slow_links.refused == found.matrix.refused


def test_recorded_job_with_mixed_collectives_has_the_all_to_all_pattern():
    found = recorded("mixed")
    assert found.pattern.pattern == "all_to_all"
    assert found.matrix.left_out == {
        "all_reduce": 9, "barrier": 3, "broadcast": 3, "gather": 3, "reduce": 3, "scatter": 3,
    }  # fmt: skip


def test_analyses_without_records_are_refused_with_a_reason():
    found = said()
    assert (found.matrix.refused, found.pattern.pattern) == ("no operation was recorded", None)
    assert found.imbalance.refused
    assert found.statistics == ()


RING = [(rank, (rank + 1) % 5) for rank in range(5)]


@pytest.mark.parametrize(
    ("edges", "pattern"),
    [
        (RING, "ring"),
        (RING + [(destination, source) for source, destination in RING], "ring"),
        ([(0, 1), (1, 2), (2, 3)], "tree"),
        ([(0, 1), (0, 2), (1, 3), (1, 4), (2, 5)], "tree"),
        ([(a, b) for a in range(4) for b in range(4) if a != b], "all_to_all"),
        ([(0, 1), (2, 3), (3, 2)], "pairwise"),
        ([(0, 1), (1, 0)], "pairwise"),
        ([(rank, rank ^ bit) for rank in range(8) for bit in (1, 2, 4)], "butterfly"),
        ([(0, 1), (1, 2), (2, 0), (2, 3)], "custom"),
        ([(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)], "custom"),
    ],
)
def test_traffic_pattern_is_recognized_from_its_edges(edges, pattern):
    cells = tuple(TrafficCell(source, destination, 1, None, None) for source, destination in edges)
    assert pattern_of(TrafficMatrix((), cells, {}, None)).pattern == pattern


def test_load_is_compared_over_operations_common_to_all_ranks():
    ops = [an_op(rank, 5, numel=100) for rank in range(4)]
    assert [load.deviation for load in said(*ops, an_op(0, 4, numel=9999)).imbalance.loads] == [0.0] * 4
    uneven = [an_op(rank, 5, "nccl:all_to_all", numel=100 + 100 * (rank == 2)) for rank in range(4)]
    first = said(*uneven).imbalance.loads[0]
    assert (first.rank, first.bytes, round(first.deviation, 2)) == (2, 800, 0.6)


def test_load_comparison_is_refused_without_common_operations():
    assert "in common" in said(an_op(0, 5), an_op(1, 9)).imbalance.refused


def test_link_far_slower_than_the_others_is_reported():
    ops = [send(rank, (rank + 1) % 4, took_ms=10.0 if rank == 2 else 1.0) for rank in range(4) for _ in range(3)]
    found = said(*ops, *whole()).slow_links
    [link] = found.links
    assert (link.source, link.destination, link.measured, round(link.utilisation, 2)) == (2, 3, 3, 0.1)


def test_slow_links_are_refused_without_measured_durations():
    ops = [send(rank, (rank + 1) % 4) for rank in range(4)]
    assert "TORCH_NCCL_ENABLE_TIMING" in said(*ops, *whole()).slow_links.refused


def test_latency_statistics_cover_only_measured_operations():
    ops = [an_op(rank, 5, duration_ms=1.0 + rank) for rank in range(3)] + [an_op(3, 5, waits=True)]
    [line] = said(*ops).statistics
    assert (line.group, line.op, line.count, line.pending, line.bytes) == ("default_pg (0)", "all_reduce", 4, 1, 1024)
    assert (line.measured, line.mean_ms, line.least_ms, line.most_ms) == (3, 2.0, 1.0, 3.0)


def test_dtype_of_unknown_width_has_no_byte_count():
    [line] = said(an_op(0, 5, input_dtypes=("Float3",), output_dtypes=("Float3",))).statistics
    assert line.bytes is None


def test_reductions_and_streams_are_listed_where_the_record_has_them():
    ops = [an_op(rank, 5 + rank, red_op="avg" if rank else "sum", stream=f"0x{rank % 2}") for rank in range(4)]
    [line] = said(*ops, an_op(0, 7, red_op="sum", stream="0x1")).statistics
    assert (line.red_ops, line.streams) == (("avg", "sum"), 2)
    [line] = said(an_op(0, 5)).statistics
    assert (line.red_ops, line.streams) == ((), None)
