"""What the tools of AMD and Habana report of each device: `amd-smi` and `hl-smi`, where root has installed them.

A tool is a process of its own, with limits of time, CPU and output: its vendor's library may hang or crash, and the
structures of libamd_smi.so change between releases of ROCm, the names in its JSON do not. Formats: AMD SMI command line
tool usage, and the code of that tool (ROCm 5.7 to 7); System Management Interface Tool of the Gaudi documentation.
"""

import json
import os
import re
import shutil
import tempfile

from ..agent.commands import LineStream
from ..proc.procfs import printable
from ..proc.trusted_programs import trusted_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..samplers.base import Fields

    #: PCI address: (fields of `gpu_info`, fields of `gpu`).
    Reports = dict[str, tuple[Fields, Fields]]

#: Where packages of the vendors put their tools; links of a release are followed.
FOLDERS = ("/usr/bin", "/opt/rocm/bin", "/usr/local/bin", "/opt/habanalabs/bin")
#: Limits of one run. amd-smi holds a lock of its library that is shared by the node, which a killed run may leave.
TIMEOUT_S, MAX_BYTES = 20.0, 1 << 20
#: Without the variables of the agent's user: Python would load modules of that home.
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "PYTHONNOUSERSITE": "1"}
_MOST, _BIG = 64, 1 << 62
#: Runs of amd-smi after which ECC counters are asked for again: a time limit may have been the reason of the failure.
_ECC_AGAIN = 10
_ADDRESS = re.compile(r"(?:[0-9a-f]{4})?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\Z")
_QUANTITY = re.compile(r"(-?[0-9]{1,15}(?:\.[0-9]{1,9})?) ?([A-Za-z%]{0,4})\Z")
#: Bytes of a unit of memory.
_UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
#: What hl-smi is asked for, in this order: known to all releases whose documentation was read.
GAUDI_QUERY = (
    "bus_id", "index", "name", "uuid", "serial", "driver_version", "module_id", "utilization.aip", "memory.total",
    "memory.used", "temperature.aip", "power.draw", "ecc.errors.corrected.volatile.total",
    "ecc.errors.uncorrected.volatile.total", "ecc.errors.corrected.aggregate.total",
    "ecc.errors.uncorrected.aggregate.total", "ecc.mode.current",
)  # fmt: skip
_ECC = ("ecc_corrected_volatile", "ecc_uncorrected_volatile", "ecc_corrected_aggregate", "ecc_uncorrected_aggregate")


class ToolFailed(Exception):
    """The tool did not start, exceeded a limit, ended with an error, or printed something else."""


def find_tool(name: str) -> "str | None":
    """The path of a tool that only root can have put there; None if there is none."""
    paths = (trusted_path(os.path.join(folder, name), is_of_root=True) for folder in FOLDERS)
    return next((path for path in paths if path is not None), None)


class AmdSmi(object):
    """Calls of amd-smi."""

    program, vendor = "amd-smi", "AMD"
    #: Seconds between two runs: it starts Python and its library each time; sysfs has what changes faster.
    period_s = 60.0

    def __init__(self, path: str, folder: str) -> None:
        self._path = path
        self._static: "dict[int, tuple[str, Fields]] | None" = None
        self._has_ecc, self._runs = True, 0

    def read(self) -> "Reports":
        """What it reports. Raises ToolFailed."""
        if self._static is None:
            self._static = parse_amd_static(self._run("amd_smi_static"))
        metrics: "dict[int, Fields]" = {}
        if self._has_ecc or self._runs % _ECC_AGAIN == 0:
            try:
                metrics = parse_amd_metric(self._run("amd_smi_metric"))
                self._has_ecc = True
            except ToolFailed:
                self._has_ecc = False  # virtual machines have no such option
        self._runs += 1
        if not self._has_ecc:
            metrics = parse_amd_metric(self._run("amd_smi_metric_guest"))
        return {address: (fields, metrics.get(number, {})) for number, (address, fields) in self._static.items()}

    def _run(self, name: str) -> bytes:
        return _output(name, {"{program}": [self._path]}, _ENVIRONMENT)


class HlSmi(object):
    """Calls of hl-smi."""

    program, vendor = "hl-smi", "Habana"
    #: Seconds between two runs: the only source of utilisation and memory.
    period_s = 10.0

    def __init__(self, path: str, folder: str) -> None:
        """`folder`: of the agent, for the log that the library of hl-smi writes."""
        self._path, self._folder = path, folder

    def read(self) -> "Reports":
        """What it reports. Raises ToolFailed."""
        try:
            logs = tempfile.mkdtemp(prefix=".tool-", dir=self._folder)
        except OSError as error:
            raise ToolFailed("no folder for its log: %s" % error)
        try:
            words = {"{program}": [self._path], "{query}": ["--query-aip=" + ",".join(GAUDI_QUERY)]}
            return parse_gaudi(_output("hl_smi_query", words, dict(_ENVIRONMENT, HABANA_LOGS=logs)))
        finally:
            shutil.rmtree(logs, ignore_errors=True)


TOOLS = (AmdSmi, HlSmi)


def _output(name: str, words: "dict[str, list[str]]", env: "dict[str, str]") -> bytes:
    stream = LineStream(name, words, TIMEOUT_S, MAX_BYTES, env)
    try:
        data = b"\n".join(stream)
    except OSError as error:
        raise ToolFailed(str(error))
    if stream.reason:
        raise ToolFailed(printable(stream.reason, 200))
    return data


def parse_amd_static(data: bytes) -> "dict[int, tuple[str, Fields]]":
    """Number of the GPU: (PCI address, fields of `gpu_info`), of `amd-smi static --json`. Raises ToolFailed."""
    reports: "dict[int, tuple[str, Fields]]" = {}
    for number, row in _amd_rows(data):
        address = kernel_address(_at(row, "bus", "bdf"))
        if address is None:
            continue
        fields = {
            "name": _word(_at(row, "asic", "market_name")) or _word(_at(row, "board", "product_name")),
            "serial": _word(_at(row, "asic", "asic_serial")), "driver": _driver(_word(_at(row, "driver", "version"))),
            "vbios": _word(_at(row, "vbios", "version")) or _word(_at(row, "ifwi", "version")),
            "mem_total_bytes": _bytes(_at(row, "vram", "size")),
            "power_limit_w": _figure(_at(row, "limit", "socket_power"), 20000.0),
            "power_limit_max_w": _figure(_at(row, "limit", "max_power"), 20000.0),
            "temp_slowdown_c": _figure(_at(row, "limit", "slowdown_hotspot_temperature"), 300.0),
            "mem_temp_max_c": _figure(_at(row, "limit", "slowdown_vram_temperature"), 300.0),
        }  # fmt: skip
        reports[number] = address, _without_unknown(fields)
    return reports


def parse_amd_metric(data: bytes) -> "dict[int, Fields]":
    """Number of the GPU: fields of `gpu`, of `amd-smi metric --json`. Raises ToolFailed."""
    reports = {}
    for number, row in _amd_rows(data):
        reports[number] = _without_unknown({
            "util_pct": _figure(_at(row, "usage", "gfx_activity"), 100.0),
            "mem_util_pct": _figure(_at(row, "usage", "umc_activity"), 100.0),
            "mem_used_bytes": _bytes(_at(row, "mem_usage", "used_vram")),
            "power_w": _figure(_at(row, "power", "socket_power"), 20000.0),
            "temp_c": _figure(_at(row, "temperature", "hotspot"), 300.0),
            "mem_temp_c": _figure(_at(row, "temperature", "mem"), 300.0),
            "ecc_corrected_volatile": _count(_at(row, "ecc", "total_correctable_count")),
            "ecc_uncorrected_volatile": _count(_at(row, "ecc", "total_uncorrectable_count")),
        })  # fmt: skip
    return reports


def parse_gaudi(data: bytes) -> "Reports":
    """What `hl-smi --query-aip=… --format=csv,noheader` printed. Raises ToolFailed."""
    reports: "Reports" = {}
    for line in data.decode("utf-8", "replace").splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        row = dict(zip(GAUDI_QUERY, cells))  # noqa: B905 - Python 3.6
        address = kernel_address(row["bus_id"])
        if len(cells) != len(GAUDI_QUERY) or address is None or len(reports) >= _MOST:
            continue  # a warning of its library
        power, errors = _figure(row["power.draw"], 20000.0), [_count(cell) for cell in cells[-5:-1]]
        info = {
            "name": _word(row["name"]), "serial": _word(row["serial"]), "driver": _driver(_word(row["driver_version"])),
            "mem_total_bytes": _bytes(row["memory.total"]),
            "ecc_mode": {"Enabled": True, "Disabled": False}.get(row["ecc.mode.current"]),
        }  # fmt: skip
        figures: "Fields" = {
            "util_pct": _figure(row["utilization.aip"], 100.0), "mem_used_bytes": _bytes(row["memory.used"]),
            "power_w": power, "temp_c": _figure(row["temperature.aip"], 300.0),
        }  # fmt: skip
        figures.update(zip(_ECC, errors))  # noqa: B905 - Python 3.6
        reports[address] = _without_unknown(info), _without_unknown(figures)
    if not reports:
        raise ToolFailed("no device in its output")
    return reports


def kernel_address(value: "Any") -> "str | None":
    """A PCI address as sysfs writes it; None for anything else."""
    match = _ADDRESS.match(value.lower()) if isinstance(value, str) else None
    return match.group(1) if match else None


def _amd_rows(data: bytes) -> "list[tuple[int, dict[str, Any]]]":
    """(number, fields) of each GPU: a list until ROCm 6, an object with it since ROCm 7."""
    try:
        rows = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise ToolFailed("its output is not JSON")
    rows = rows.get("gpu_data") if isinstance(rows, dict) else rows
    if not isinstance(rows, list):
        raise ToolFailed("its output has no list of GPUs")
    numbers = [(row.get("gpu"), row) for row in rows[:_MOST] if isinstance(row, dict)]
    return [(number, row) for number, row in numbers if type(number) is int and 0 <= number < _MOST]


def _at(row: "dict[str, Any]", section: str, name: str) -> "Any":
    fields = row.get(section)
    return fields.get(name) if isinstance(fields, dict) else None


def _word(value: "Any") -> "str | None":
    text = printable(value, 120).strip() if isinstance(value, str) else ""
    return text if text and text.upper() not in ("N/A", "NA", "UNKNOWN") else None


def _driver(version: "str | None") -> "str | None":
    return version[:60] if version else None


def _quantity(value: "Any") -> "tuple[float, str] | None":
    """(number, unit) of {"value": 10, "unit": "W"}, of a number, and of a text like `10 W`."""
    unit: "Any" = ""
    if isinstance(value, dict):
        unit, value = value.get("unit"), value.get("value")
    if type(value) in (int, float) and isinstance(unit, str):
        return (float(value), unit) if -1e18 < value < 1e18 else None
    match = _QUANTITY.match(value) if isinstance(value, str) and isinstance(unit, str) else None
    return (float(match.group(1)), match.group(2) or unit) if match else None


def _figure(value: "Any", most: float) -> "float | None":
    quantity = _quantity(value)
    return quantity[0] if quantity is not None and 0 <= quantity[0] <= most else None


def _bytes(value: "Any") -> "int | None":
    quantity = _quantity(value)
    if quantity is None or quantity[1] not in _UNITS or not 0 <= quantity[0] < 1e15:
        return None
    size = int(quantity[0] * _UNITS[quantity[1]])
    return size if size < _BIG else None


def _count(value: "Any") -> "int | None":
    quantity = _quantity(value)
    is_count = quantity is not None and not quantity[1] and 0 <= quantity[0] < 1e15
    return int(quantity[0]) if quantity is not None and is_count else None


def _without_unknown(fields: "Fields") -> "Fields":
    return {name: value for name, value in fields.items() if value is not None}
