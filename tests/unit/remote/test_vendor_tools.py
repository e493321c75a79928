"""amd-smi and hl-smi: which programs are run and how, and what is made of their output.

The output is written after the vendors' documents (accelerator_trees.py); none was recorded on a node with such a GPU.
"""

import json
import os

import pytest
from accelerator_trees import AMD_SMI_METRIC, AMD_SMI_STATIC, GIB, HL_SMI, amd_smi
from fake_proc import check

from gconsole_remote.accelerators import tools
from gconsole_remote.samplers.base import Context, Unavailable
from gconsole_remote.samplers.vendor_tools import VendorToolSampler, tool_samplers

ADDRESS = "0000:85:00.0"


@pytest.mark.parametrize("since_rocm_7", [False, True])
def test_output_of_amd_smi_becomes_fields_of_the_records(since_rocm_7):
    address, info = tools.parse_amd_static(amd_smi(AMD_SMI_STATIC, since_rocm_7))[0]
    gpu = tools.parse_amd_metric(amd_smi(AMD_SMI_METRIC, since_rocm_7))[0]

    assert address == ADDRESS
    assert info == {
        "name": "AMD Instinct MI300X", "serial": "0x8C9D0E1F2A3B4C5D", "driver": "6.8.5",
        "vbios": "022.040.003.041.000001", "mem_total_bytes": 196592 << 20, "power_limit_w": 700.0,
        "power_limit_max_w": 750.0, "temp_slowdown_c": 100.0, "mem_temp_max_c": 105.0,
    }  # fmt: skip
    assert gpu == {  # N/A is unknown
        "util_pct": 96.0, "power_w": 511.0, "temp_c": 70.0, "mem_temp_c": 54.0, "mem_used_bytes": 3 * GIB,
        "ecc_corrected_volatile": 9, "ecc_uncorrected_volatile": 3,
    }  # fmt: skip


def test_output_of_hl_smi_becomes_fields_of_the_records():
    warning = b"WARNING: a library said, something\n"
    (address, (info, gpu)), *others = tools.parse_gaudi(warning + HL_SMI).items()

    assert (address, others) == ("0000:19:00.0", [])
    assert info == {
        "name": "HL-225", "serial": "AN22050123", "driver": "1.17.1-78932ae", "mem_total_bytes": 96 * GIB,
        "ecc_mode": True,
    }  # fmt: skip
    assert gpu == {
        "util_pct": 63.0, "mem_used_bytes": 24 * GIB, "power_w": 131.0, "temp_c": 42.0, "ecc_corrected_volatile": 0,
        "ecc_uncorrected_volatile": 1, "ecc_corrected_aggregate": 4, "ecc_uncorrected_aggregate": 2,
    }  # fmt: skip


@pytest.mark.parametrize("value", [-1, 1e300, True, "1e9 W", {"value": 10, "unit": 5}, {"value": {}}, [], "10 kiloW"])
def test_impossible_figures_are_unknown(value):
    row = AMD_SMI_METRIC[0] | {"power": {"socket_power": value}, "ecc": {"total_correctable_count": value}}
    gpu = tools.parse_amd_metric(amd_smi([row]))[0]
    check("gpu", {"index": 0, "uuid": "x", **gpu})

    assert "power_w" not in gpu
    assert "ecc_corrected_volatile" not in gpu


@pytest.mark.parametrize("data", [b"", b"no JSON", b"[" * 100_000, b'{"gpu_data": 3}', b'"x"', b"\xff\0"])
def test_other_output_is_a_failure_of_the_tool(data):
    for parse in (tools.parse_amd_static, tools.parse_amd_metric, tools.parse_gaudi):
        with pytest.raises(tools.ToolFailed):
            parse(data)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A function that installs a script as a tool of root in a system folder, and returns a sampler that runs it."""
    tmp_path.chmod(0o755)
    monkeypatch.setattr(tools, "FOLDERS", (str(tmp_path / "bin"),))
    monkeypatch.setattr(tools, "trusted_path", lambda path, is_of_root: path if os.access(path, os.X_OK) else None)
    (tmp_path / "bin").mkdir()
    (tmp_path / "run").mkdir()

    def install(tool, script):
        path = tmp_path / "bin" / tool.program
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return VendorToolSampler(Context(), tool, str(tmp_path / "run"))

    return install


def test_hl_smi_is_run_with_a_log_folder_of_the_agent_that_is_removed(installed, tmp_path):
    sampler = installed(tools.HlSmi, f"echo x > $HABANA_LOGS/log; echo \"$@\" $HABANA_LOGS > {tmp_path}/args; "
                        f"printf '%s' '{HL_SMI.decode()}'")  # fmt: skip
    sampler.start()
    sampler.tick(1.0)
    words = (tmp_path / "args").read_text()

    assert sampler.context.shared["gpu_tool"].reports["0000:19:00.0"][1]["util_pct"] == 63.0
    assert "--query-aip=bus_id,index,name" in words
    assert f"{tmp_path}/run/.tool-" in words
    assert list((tmp_path / "run").iterdir()) == []


def test_amd_smi_is_asked_once_for_what_does_not_change_and_without_ecc_on_a_guest(installed, tmp_path):
    for name, rows in (("static", AMD_SMI_STATIC), ("metric", AMD_SMI_METRIC)):
        (tmp_path / name).write_text(json.dumps(rows, indent=4))
    script = f'echo "$@" >> {tmp_path}/calls; case "$*" in *-e*) echo "unknown argument: -e" >&2; exit 2;; esac; '
    sampler = installed(tools.AmdSmi, script + f"cat {tmp_path}/$1")
    sampler.start()
    for now in (1.0, 2.0, 1000.0):
        sampler.tick(now)
    calls = [line.split()[0] + (" ecc" if " -e " in line else "") for line in
             (tmp_path / "calls").read_text().splitlines()]  # fmt: skip

    assert calls == ["static", "metric ecc", "metric", "metric"]  # nothing is due at 2 s
    assert sampler.context.shared["gpu_tool"].reports[ADDRESS][1]["power_w"] == 511.0


def test_ecc_counters_are_asked_for_again_after_a_failure(installed, tmp_path, monkeypatch):
    monkeypatch.setattr(tools, "_ECC_AGAIN", 2)
    for name, rows in (("static", AMD_SMI_STATIC), ("metric", AMD_SMI_METRIC)):
        (tmp_path / name).write_text(json.dumps(rows))
    fails_once = f'case "$*" in *-e*) [ -e {tmp_path}/failed ] || {{ touch {tmp_path}/failed; exit 1; }};; esac; '
    without_ecc = f'[ "$1" = static ] || case "$*" in *-e*) ;; *) echo >> {tmp_path}/guest;; esac; '
    sampler = installed(tools.AmdSmi, fails_once + without_ecc + f"cat {tmp_path}/$1")
    sampler.start()
    for now in (1.0, 1000.0, 2000.0, 3000.0):
        sampler.tick(now)

    assert (tmp_path / "guest").read_text() == "\n\n", "in the first two runs"


def test_tool_gets_none_of_the_agents_variables(installed, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/home/user/modules")
    monkeypatch.setenv("LD_PRELOAD_OF_USER", "x")
    sampler = installed(tools.HlSmi, f"env > {tmp_path}/env; printf '%s' '{HL_SMI.decode()}'")
    sampler.start()
    sampler.tick(1.0)

    names = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    assert names <= {"PATH", "LC_ALL", "PYTHONNOUSERSITE", "HABANA_LOGS", "PWD", "SHLVL", "_", "OLDPWD"}


@pytest.mark.parametrize(("script", "reason"), [
    ("echo driver not loaded >&2; exit 3", "hl-smi: driver not loaded"), ("kill -SEGV $$", "hl-smi: exit status -11"),
    ("sleep 60", "hl-smi: timed out"), ("yes x", "hl-smi: more than 1 MiB"), ("true", "hl-smi: no device"),
])  # fmt: skip
def test_tool_that_fails_hangs_or_floods_is_a_missing_capability(installed, monkeypatch, script, reason, tmp_path):
    monkeypatch.setattr(tools, "TIMEOUT_S", 0.5)
    sampler = installed(tools.HlSmi, script)
    sampler.start()
    with pytest.raises(Unavailable, match=reason):
        sampler.tick(1.0)

    assert "gpu_tool" not in sampler.context.shared
    assert list((tmp_path / "run").iterdir()) == []


def test_tool_that_another_user_can_replace_is_not_run(tmp_path, monkeypatch):
    monkeypatch.setattr(tools, "FOLDERS", (str(tmp_path),))
    program = tmp_path / "hl-smi"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o777)

    assert tools.find_tool("hl-smi") is None
    with pytest.raises(Unavailable, match="no hl-smi of root in"):
        VendorToolSampler(Context(), tools.HlSmi, str(tmp_path)).start()


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
def test_tool_of_a_user_is_not_run_even_by_that_users_agent(tmp_path, monkeypatch):
    monkeypatch.setattr(tools, "FOLDERS", (str(tmp_path),))
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    program = tmp_path / "amd-smi"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    os.chown(program, 4711, 4711)

    assert tools.find_tool("amd-smi") is None


def test_tools_are_run_only_for_devices_of_their_vendor_and_where_their_log_can_be_removed():
    class Device:
        def __init__(self, vendor):
            self.vendor = vendor

    def programs(*vendors):
        return [sampler._kind.program for sampler in tool_samplers(Context(), [Device(name) for name in vendors], "x")]

    assert programs("AMD", "AMD") == ["amd-smi"]
    assert programs("Habana") == ["hl-smi"]
    assert programs("Intel", "Google TPU") == []
    with pytest.raises(Unavailable, match="ephemeral"):
        VendorToolSampler(Context(), tools.HlSmi, None).start()
