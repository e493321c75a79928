"""GPU events (XIDs, losses), and failures to initialise NVML."""

import pytest
from nvml import scenarios

from gconsole_remote.nvml.events import ThrottleWatch, XidEvents, XidLine, parse_pci_address, parse_xid
from gconsole_remote.samplers.base import Unavailable


@pytest.mark.parametrize(
    ("code", "name", "words"),
    [
        (4, "gpu_no_permission", "no permission to use it"),
        (9, "gpu_driver_not_loaded", "not loaded"),
        (18, "gpu_driver_mismatch", "version mismatch"),
        (999, "gpu_nvml_failed", "failed to start"),
    ],
)
def test_unusable_driver_has_an_error_name_and_a_remedy(watch, code, name, words):
    with pytest.raises(Unavailable, match=words) as error:
        watch(scenarios.hgx_h100() | {"fail.nvmlInitWithFlags": code})

    assert (error.value.name, bool(error.value.try_)) == (name, True)


def test_driver_without_gpus_is_unavailable(watch):
    with pytest.raises(Unavailable, match="finds no GPU"):
        watch({"count": 0})


def test_failing_gpu_count_is_unavailable(watch):
    with pytest.raises(Unavailable, match="cannot count"):
        watch(scenarios.hgx_h100() | {"fail.nvmlDeviceGetCount_v2": 999})


@pytest.mark.parametrize("function", ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID"])
def test_gpu_that_cannot_be_opened_is_lost_and_the_others_are_sampled(watch, function):
    records = watch(scenarios.hgx_h100() | {f"gpu3.fail.{function}": 15}).tick()

    assert len(records.gpu) == 7
    assert [(event.index, event.event, event.severity) for event in records.gpu_event] == [(3, "lost", "error")]


def test_gpu_that_could_not_be_opened_is_sampled_after_its_reset(watch):
    sampler = watch(scenarios.hgx_h100() | {"gpu3.lost": 16, "gpu3.compute.0": "77 1024"})
    before = [sampler.tick(), sampler.tick(10.0)]
    sampler.scenario.change(drop=("gpu3.lost",))
    after = [sampler.tick(10.0), sampler.tick()]
    sampler.scenario.change({"event.0": "3 8 48"})
    [xid] = sampler.until(lambda records: records.gpu_event).gpu_event

    assert [event.event for tick in before for event in tick.gpu_event] == ["lost"], "reported once"
    assert [(entry.count, entry.missing) for tick in before for entry in tick.inventory] == [(7, ("index 3",))]
    assert [(event.index, event.event) for event in after[0].gpu_event] == [(3, "back")]
    assert [(entry.count, entry.missing) for entry in after[0].inventory] == [(8, ())]
    assert [info.index for info in after[0].gpu_info] == [3]
    assert [gpu.index for gpu in after[1].gpu] == list(range(8))
    assert [process.pid for process in after[0].gpu_process] == [77]
    assert (xid.index, xid.xid) == (3, 48)


def test_gpu_off_the_bus_is_lost_and_reported_again_when_back(watch):
    sampler = watch(scenarios.hgx_h100() | {"gpu3.compute.0": "77 1024"})
    sampler.tick()
    sampler.scenario.change({"gpu3.lost": 15})

    records = sampler.tick(2.0)
    quiet = sampler.tick()
    sampler.scenario.change(drop=("gpu3.lost",))
    back = [sampler.tick(10.0), sampler.tick()]

    assert [gpu.index for gpu in records.gpu] == [0, 1, 2, 4, 5, 6, 7]
    assert [(info.index, info.lost) for info in records.gpu_info] == [(3, "GPU is lost")]
    assert [(event.index, event.event, event.severity) for event in records.gpu_event] == [(3, "lost", "error")]
    assert [process.gone for process in records.gpu_process] == [True]
    assert (quiet.gpu_event, quiet.gpu_info) == ([], [])
    assert 3 in [gpu.index for gpu in back[0].gpu]
    assert [info.lost for info in back[0].gpu_info if info.index == 3] == [None]
    assert [event.event for records_back in back for event in records_back.gpu_event] == ["back"]


def test_xid_from_nvml_is_reported_with_its_meaning(watch):
    sampler = watch(scenarios.hgx_h100())
    sampler.tick()
    sampler.scenario.change({"event.0": "5 8 79", "event.1": "2 8 31"})

    events = []
    sampler.until(lambda records: len(events.__iadd__(records.gpu_event)) == 2)

    assert [(event.index, event.xid, event.severity, event.source) for event in events] == [
        (5, 79, "error", "nvml"), (2, 31, "warning", "nvml")]  # fmt: skip
    assert "fallen off the bus" in events[0].text
    assert [(event.action, event.owner) for event in events] == [("RESTART_BM", "operator"), ("RESTART_APP", "user")]


def test_unknown_xid_has_neither_action_nor_owner(watch):
    sampler = watch(scenarios.hgx_h100())
    sampler.tick()
    sampler.scenario.change({"event.0": "5 8 4321"})

    (event,) = sampler.until(lambda records: records.gpu_event).gpu_event

    assert (event.severity, event.action, event.owner) == ("warning", None, None)


def test_gpu_without_event_support_lists_xid_as_unsupported(watch):
    records = watch(scenarios.hgx_h100() | {"gpu1.fail.nvmlDeviceRegisterEvents": 3}).tick()

    assert [info.index for info in records.gpu_info if "gpu_event.xid" in info.unsupported] == [1]


def test_xid_in_both_kernel_log_and_nvml_is_reported_once(watch, tmp_path):
    kmsg = tmp_path / "kmsg"
    kmsg.write_text("6,1,1,-;NVRM: Xid (PCI:0000:10:00): 13, an old message\n")
    sampler = watch(scenarios.hgx_h100(), kmsg=kmsg)
    sampler.tick()
    with kmsg.open("a") as f:
        f.write("4,2,2,-;NVRM: Xid (PCI:0000:12:00): 149, NETIR_LINK_EVT Fatal   XC0 i0 Link 08 (0x004505c6)\n")
        f.write("4,3,3,-;NVRM: Xid (PCI:0000:77:00): 94, pid=1\n")
    reported = sampler.tick().gpu_event
    sampler.scenario.change({"event.0": "2 8 149", "event.1": "0 8 31"})

    later = sampler.until(lambda records: records.gpu_event).gpu_event

    assert [(event.index, event.xid, event.severity, event.sub_code) for event in reported] == [
        (2, 149, "error", "NETIR_LINK_EVT"), (None, 94, "warning", None)]  # fmt: skip
    assert reported[1].pci_bus_id == "00000000:77:00.0"
    assert [event.xid for event in later] == [31]


@pytest.mark.parametrize(
    ("number", "words", "events"),
    [
        (149, "NETIR_LINK_EVT Fatal XC0 i0 Link 08", [("nvml", "warning"), ("kernel", "error")]),
        (154, "GPU recovery action changed from 0x1 (x) to 0x0 (None)", [("nvml", "warning"), ("kernel", "info")]),
        (79, "GPU has fallen off the bus.", [("nvml", "error")]),
    ],
)
def test_kernel_line_after_the_event_of_nvml_is_kept_if_it_changes_the_severity(number, words, events):
    xids = XidEvents([(0, "GPU-1", "00000000:3B:00.0")])
    line = XidLine((0, 0x3B, 0), number, words)

    reported = [*xids.fold(1.0, [], [("GPU-1", number)]), *xids.fold(2.0, [line], [])]

    assert [(event["source"], event["severity"]) for event in reported] == events


def test_nvlink_down_and_up_are_events(watch):
    sampler = watch(scenarios.hgx_h100())
    for _ in range(9):
        sampler.tick()
    sampler.scenario.change({"gpu4.field.165@11": "u32:0"})
    down = [event for _ in range(10) for event in sampler.tick().gpu_event]
    sampler.scenario.change({"gpu4.field.165@11": "u32:1"})
    up = [event for _ in range(10) for event in sampler.tick().gpu_event]

    assert [(event.event, event.index, event.link, event.severity) for event in down] == [("link_down", 4, 11, "error")]
    assert [event.event for event in up] == ["link_up"]


def test_recovery_action_of_the_driver_is_reported_once(watch):
    sampler = watch(scenarios.hgx_h100())
    sampler.tick()
    sampler.scenario.change({"gpu6.field.230": "u32:2"})

    records, quiet = sampler.tick(), sampler.tick()

    (event,) = records.gpu_event
    assert (event.index, event.event, event.try_) == (6, "recovery_action", "drain the node, then reboot it")
    assert event.text == "the driver requires a recovery action for GPU 6: node reboot"
    assert (records.gpu[6].recovery_action, quiet.gpu_event) == ("node_reboot", [])


def test_remedy_of_a_recovery_action_names_the_gpu(watch):
    sampler = watch(scenarios.hgx_h100())
    sampler.tick()
    sampler.scenario.change({"gpu6.field.230": "u32:1"})

    (event,) = sampler.tick().gpu_event

    assert event.text.endswith("GPU 6: gpu reset") and event.try_.endswith("nvidia-smi --gpu-reset -i 6")


def test_sustained_throttling_is_an_event_and_a_flicker_is_not():
    watch = ThrottleWatch()
    changes = []
    for second in range(40):
        is_throttled = second == 2 or 10 <= second < 20
        changes += [
            (second, *change) for change in watch.update(second, ("hw_thermal_slowdown",) if is_throttled else ())
        ]

    assert changes == [(13, "hw_thermal_slowdown", True, None), (30, "hw_thermal_slowdown", False, 10)]


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("6,1,2,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus.", 79),
        ("[ 12.3] NVRM: Xid (0000:3b:00.0): 31", 31),
        ("NVRM: GPU at PCI:0000:3b:00: GPU-1", None),
        ("NVRM: Xid (PCI:zz): 31, x", None),
    ],
)
def test_kernel_log_lines_are_parsed_for_xids(line, number):
    xid = parse_xid(line)

    assert (xid and xid.number) == number


def test_both_pci_address_notations_parse_to_the_same_address():
    assert parse_pci_address("0000:3b:00") == parse_pci_address("00000000:3B:00.0") == (0, 0x3B, 0)


def test_unreadable_kernel_log_is_listed_as_unsupported(watch, tmp_path):
    records = watch(scenarios.hgx_h100(), kmsg=tmp_path / "absent").tick()

    assert len(records.gpu) == 8
    assert {info.unsupported["gpu_event.kernel"] for info in records.gpu_info} == {
        f"{tmp_path / 'absent'}: No such file or directory"}  # fmt: skip
