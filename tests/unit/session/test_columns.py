"""Records as columns: whatever a node may say goes into Arrow and Parquet and comes back as it was."""

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from session_made import any_record, records_in

from gconsole.records import KINDS, RawRecord, decode, encode
from gconsole.session.format.parquet import write_part
from gconsole.session.format.to_arrow import TABLES, UNKNOWN, schema_of, table_of, to_batch
from gconsole.session.query.dictionary import words_of


@pytest.mark.parametrize("kind", sorted(KINDS))
@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)  # fmt: skip
@given(data=st.data())
def test_any_record_comes_back_from_parquet_as_it_was(kind, data, tmp_path):
    records = data.draw(st.lists(any_record(kind), max_size=4))
    path = tmp_path / "part.parquet"

    write_part(path, [to_batch(kind, records)])

    back = list(records_in(kind, pq.read_table(path, partitioning=None)))
    assert sorted(map(encode, back)) == sorted(map(encode, records))


def test_a_record_of_a_kind_nobody_knows_is_kept_word_for_word():
    line = b'{"kind":"quark","node":"n1","agent":"a","seq":3,"rx":9,"t":7,"charm":[1,2]}'
    record = decode(line)
    assert isinstance(record, RawRecord)

    batch = to_batch(table_of(record), [record])

    assert [encode(back) for back in records_in(UNKNOWN, pa.Table.from_batches([batch]))] == [encode(record)]
    assert batch.to_pylist()[0]["t"] == 7


def test_no_record_at_all_is_a_table_with_all_its_columns():
    for table in TABLES:
        assert to_batch(table, []).schema == schema_of(table)


def test_columns_are_the_fields_of_the_json():
    for kind, struct in KINDS.items():
        assert schema_of(kind).names == [field.encode_name for field in msgspec.structs.fields(struct)]


def test_every_column_says_its_unit_and_its_meaning_where_the_records_do():
    field = schema_of("gpu").field("pcie_rx_bytes_s")
    assert field.metadata[b"unit"] == b"bytes/s"
    assert schema_of("gpu").field("dram_pct").metadata[b"description"].startswith(b"memory bandwidth")
    assert {word.field: word.unit for word in words_of("gpu")}["temp_c"] == "°C"
    assert {word.field: word.meaning for word in words_of("gpu")}["rx"].startswith("CLOCK_REALTIME of the console")
