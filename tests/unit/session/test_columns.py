"""Round trip of records through Parquet columns, whatever values a node sends."""

from functools import cache

import msgspec
import pyarrow.parquet as pq
import pytest
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from session_builders import any_record, records_in

from gconsole.records import KINDS, RawRecord, decode, encode
from gconsole.session.format.duckdb_connection import connect
from gconsole.session.format.parquet_writer import write_file
from gconsole.session.format.table_schema import TABLES, UNKNOWN, columns_of, line_of, table_of, words_of

#: One for all tests: to open one costs 30 ms.
connection = cache(connect)


def written(path, table, records):
    """The written table, as read by pyarrow."""
    write_file(connection(), path, table, [line_of(table)(record).decode() for record in records])
    return pq.ParquetFile(path).read()


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(KINDS))
@settings(
    max_examples=examples(10),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(data=st.data())
def test_any_record_comes_back_from_parquet_as_it_was(kind, data, tmp_path):
    records = data.draw(st.lists(any_record(kind), max_size=4))

    columns = written(tmp_path / "part.parquet", kind, records)

    assert sorted(map(encode, records_in(kind, columns))) == sorted(map(encode, records))


def test_a_record_of_an_unknown_kind_is_kept_word_for_word(tmp_path):
    line = b'{"kind":"quark","node":"n1","agent":"a","seq":3,"rx":9,"t":7,"charm":[1,2]}'
    record = decode(line)
    assert isinstance(record, RawRecord)

    columns = written(tmp_path / "part.parquet", table_of(record), [record])

    assert [encode(back) for back in records_in(UNKNOWN, columns)] == [encode(record)]
    assert columns.to_pylist()[0]["t"] == 7


@pytest.mark.slow
def test_empty_table_still_has_all_its_columns(tmp_path):
    for table in TABLES:
        columns = written(tmp_path / "part.parquet", table, [])
        assert columns.column_names == [*(column.name for column in columns_of(table)), "t_utc", "rx_utc"]


def test_columns_are_the_fields_of_the_json():
    for kind, struct in KINDS.items():
        names = [column.name for column in columns_of(kind)]
        assert names == [field.encode_name for field in msgspec.structs.fields(struct)]


def test_parquet_keeps_exact_64_bit_integers_and_typed_floats_and_booleans(tmp_path):
    mark = decode(
        b'{"kind":"mark","text":"x","t":4611686018427387903,"rx":-9223372036854775808,"mono":9007199254740993}'
    )
    row = written(tmp_path / "part.parquet", "mark", [mark]).to_pylist()[0]
    assert (row["t"], row["rx"], row["mono"]) == (2**62 - 1, -(2**63), 2**53 + 1)
    types = {column.name: column.type for column in columns_of("gpu")}
    assert (types["util_pct"], types["seq"], types["simulated"]) == ("DOUBLE", "BIGINT", "BOOLEAN")


def test_every_field_of_every_kind_has_a_meaning():
    missing = [(kind, word.field) for kind in KINDS for word in words_of(kind) if not word.meaning]
    assert not missing, "write a comment behind the field in console/records"


def test_parquet_metadata_documents_the_unit_and_meaning_of_columns(tmp_path):
    written(tmp_path / "part.parquet", "gpu", [])
    facts = pq.read_schema(tmp_path / "part.parquet").metadata
    assert (facts[b"gconsole.kind"], facts[b"gconsole.schema"]) == (b"gpu", b"gconsole.session/1")
    assert facts[b"description"]
    fields = msgspec.json.decode(facts[b"gconsole.fields"])
    assert fields["pcie_rx_bytes_s"]["unit"] == "bytes/s"
    assert fields["dram_pct"]["description"] == "memory bandwidth in use, of the maximum (GPM)"
    assert {word.field: word.unit for word in words_of("gpu")}["temp_c"] == "°C"
    assert {word.field: word.meaning for word in words_of("gpu")}["rx"].startswith("CLOCK_REALTIME of the console")
