"""Table of record kinds: complete, and consistent with the structs it describes."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from gconsole.records import KINDS, AnyRecord, End, GpuEvent, Job, Link, Log, Nic, Process, Rank, RawRecord
from gconsole.records import Record as BaseRecord
from gconsole.records.kinds import CHANGES, FIGURES, SPECS, KindSpec, identity, is_event, is_gone, key_getter, kind_of


def _has_field(struct: type, path: str) -> bool:
    for name in path.split("."):
        hints = get_type_hints(struct)
        if name not in hints:
            return False
        struct = hints[name]
    return True


def test_every_record_kind_has_one_row():
    assert set(SPECS) == set(get_args(AnyRecord))
    assert {spec.name for spec in SPECS.values()} == set(KINDS)


@pytest.mark.parametrize("spec", SPECS.values(), ids=lambda spec: spec.name)
def test_the_fields_of_each_row_exist_on_its_struct(spec: KindSpec):
    gone = (spec.gone[0],) if spec.gone else ()
    assert [path for path in (*spec.key, *spec.labels, *gone) if not _has_field(spec.struct, path)] == []
    assert issubclass(spec.struct, BaseRecord)


@pytest.mark.parametrize("spec", SPECS.values(), ids=lambda spec: spec.name)
def test_entities_that_are_dropped_with_their_agent_are_counted_against_its_quota(spec: KindSpec):
    if spec.ends_with_agent and spec.key:
        assert spec.per_node


def test_every_kind_is_either_a_change_or_a_figure():
    assert set(KINDS) == FIGURES | CHANGES and not FIGURES & CHANGES


def test_identity_is_node_and_key_or_key_only_for_fleet_wide_kinds():
    edge = Link(node="n1", type="peer", a=End("gpu", "a"), b=End("gpu", "b"))
    assert identity(edge) == ("n1", "peer", "gpu", "a", "gpu", "b")
    assert key_getter(Link)(edge) == ("peer", "gpu", "a", "gpu", "b")
    job = Job(
        node="n1", job="j", command=(), launcher="env", nodes=("n1",), procs_per_node=1, gpus_per_node=0, world_size=1,
        master_addr="a", master_port=1, created=0,
    )  # fmt: skip
    assert identity(job) == "j"
    assert kind_of(RawRecord("quark")) == "quark"


def test_gone_and_event_are_derived_from_the_record_fields():
    process = Process(pid=1, start_ticks=1, ppid=1, uid=1, comm="x", role="rank")
    assert not is_gone(process) and not is_event(process)
    process.gone = True
    assert is_gone(process) and not is_event(process)
    ended = Rank(job="j", rank=0, pid=1, start_ticks=1, source="environ", status="exited")
    assert is_gone(ended) and is_event(ended)
    hidden = Rank(job="j", rank=0, pid=1, start_ticks=1, source="environ", status="no_permission")
    assert not is_gone(hidden) and is_event(hidden)
    assert is_gone(Nic(device="eth0", port=0, state="gone")) and is_event(Nic(device="eth0", port=0, state="gone"))
    assert not is_event(Log(source="job", text="x")) and is_event(Log(source="kernel", text="x"))
    assert is_event(GpuEvent(event="xid", severity="error", text="x"))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_number_of_a_record_has_bounds_but_for_watched_values(kind: str):
    pending: list[Any] = [
        field.type for field in msgspec.inspect.type_info(KINDS[kind]).fields if field.name != "watched"
    ]
    while pending:
        described = pending.pop()
        if isinstance(described, msgspec.inspect.FloatType | msgspec.inspect.IntType):
            assert (described.ge, described.le) != (None, None)
        for name in ("types", "fields", "item_types"):
            pending += [getattr(item, "type", item) for item in getattr(described, name, ())]
        for name in ("item_type", "key_type", "value_type", "type"):
            inner = getattr(described, name, None)
            if isinstance(inner, msgspec.inspect.Type):
                pending.append(inner)
