"""The table of XIDs against a second source, and the messages that state more than their number."""

import pytest

from gconsole_remote.kernel.faults import fault_of
from gconsole_remote.nvml import xids

#: Code to immediate action, as leptonai/gpud mirrors NVIDIA's catalogue: components/accelerator/nvidia/xid/
#: catalog_generated.go, generated at 2025-10-29T00:35:32Z, at commit 73e270e3e0fd490ec5c33e144ad894de7d6c4d21.
MIRROR: dict[str | None, str] = {
    "CONTACT_SUPPORT": "1-7 9 10 12 15-24 26-30 33-36 42 47 49-53 55-59 61 65 73 81 87 90 91 111-118 122-125 138 142",
    "RESTART_APP": "8 11 13 25 31 32 39-41 60 68-72 75-77 80 82-86 88 89 94 96-105 126-135 139",
    "IGNORE": "14 37 38 43 44 63 66 67 92 93 106-108 121 137 141 152 153 157 160 161",
    "RESET_GPU": "46 62 64 95 109 110 119 120 136 140 143 155 156 158",
    "WORKFLOW_NVLINK5_ERR": "144-150",
    "WORKFLOW_NVLINK_ERR": "74",
    "WORKFLOW_XID_45": "45",
    "WORKFLOW_XID_48": "48",
    "CHECK_MECHANICALS": "54",
    "UPDATE_SWFW": "78",
    "RESTART_BM": "79",
    "RESTART_VM": "151",
    "XID_154": "154",
    "CHECK_UVM": "159",
    None: "162-172",
}


def changed(before: str, after: str) -> str:
    return f"GPU recovery action changed from {before} to {after}"


NONE, RESET, REBOOT = "0x0 (None)", "0x1 (GPU Reset Required)", "0x2 (Node Reboot Required)"


def test_every_code_has_the_action_of_the_second_source():
    mirror = {}
    for action, codes in MIRROR.items():
        for part in codes.split():
            first, _, last = part.partition("-")
            mirror |= dict.fromkeys(range(int(first), int(last or first) + 1), action)
    assert sorted(mirror) == list(range(1, 173))
    assert {number: meaning.action for number, meaning in xids.CATALOGUE.items()} == mirror


def test_no_code_is_listed_twice():
    numbers = [number for *_, texts in xids._GROUPS for codes in texts for number in xids._numbers(codes)]
    assert len(numbers) == len(set(numbers))


def test_severity_and_owner_agree_with_the_action():
    for number, (severity, text, try_, action, owner) in xids.CATALOGUE.items():
        assert severity in ("error", "warning", "info") and text
        assert owner in ((None,) if action is None else ("user", "operator", "vendor")), number
        assert severity == "info" or try_, number
        if action in ("RESET_GPU", "RESTART_BM", "RESTART_VM"):
            assert (severity, owner) == ("error", "operator"), number
        if action == "IGNORE":
            assert severity != "error" and "drain" not in try_ and "reset" not in try_, number
        if action == "RESTART_APP":
            assert (severity, owner) == ("warning", "user"), number


@pytest.mark.parametrize("number", [0, 173, 177, 999999, -1])
def test_unknown_code_has_no_action_and_no_owner(number):
    meaning = xids.meaning(number)
    assert (meaning.severity, meaning.action, meaning.owner) == ("warning", None, None)
    assert "not in the XID catalogue" in meaning.text


@pytest.mark.parametrize(
    ("words", "severity"),
    [
        ("NETIR_LINK_EVT Nonfatal XC0 i0 Link 08 (0x004505c6)", "warning"),
        ("NETIR_LINK_EVT Non-fatal XC0", "warning"),
        ("NETIR_LINK_EVT Fatal XC0", "error"),
        ("RLW_REMAP Link Fatal XC1", "error"),
        ("", "warning"),
    ],
)
def test_nvlink_xid_is_an_error_only_if_the_message_calls_it_fatal(words, severity):
    meaning = xids.meaning(149, words)
    assert (meaning.severity, meaning.action) == (severity, "WORKFLOW_NVLINK5_ERR")


@pytest.mark.parametrize(
    ("words", "severity", "action"),
    [
        (changed(NONE, RESET), "error", "RESET_GPU"),
        (changed(NONE, "0x1 (PF FLR)"), "error", "RESET_GPU"),
        (changed(NONE, "0x4 (Drain and Reset)"), "error", "RESET_GPU"),
        (changed(RESET, REBOOT), "error", "RESTART_BM"),
        (changed(NONE, "0x2 (OS Reboot)"), "error", "RESTART_BM"),
        (changed(REBOOT, RESET), "error", "RESET_GPU"),
        (changed(NONE, "0x3 (Drain P2P)"), "error", "XID_154"),
        (changed(RESET, NONE), "info", "IGNORE"),
        (changed(REBOOT, NONE), "info", "IGNORE"),
        (changed(NONE, "0x9 (Something New)"), "warning", "XID_154"),
        ("GPU recovery action changed", "warning", "XID_154"),
        ("", "warning", "XID_154"),
        ("reset and reboot (None) to 0x", "warning", "XID_154"),
    ],
)
def test_recovery_action_is_the_state_that_the_message_ends_with(words, severity, action):
    meaning = xids.meaning(154, words)
    assert (meaning.severity, meaning.action) == (severity, action)
    assert xids.is_recovered(154, words) == (action == "IGNORE")


def test_kernel_message_of_a_recovered_gpu_ends_its_fault():
    head = "NVRM: Xid (PCI:0000:3b:00): 154, "
    required, done = fault_of(head + changed(NONE, RESET)), fault_of(head + changed(RESET, NONE))
    assert (required.severity, required.is_over) == ("error", False)
    assert (done.subject, done.severity, done.is_over, done.try_) == ("0000:3b:00", "info", True, "")
    ignored = fault_of("NVRM: Xid (PCI:0000:3b:00): 63, Row Remapper: new row marked for remapping")
    assert (ignored.severity, ignored.is_over) == ("info", False)
