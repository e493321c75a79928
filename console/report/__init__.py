"""Report of a headless run: `document` is the whole with its exit code, one module per part."""

from ..analysis.crash.verdict import CrashVerdict
from ..analysis.finding_selection import counts, unknown_words
from ..analysis.hang.verdict import Verdict
from .document import Report, coverage_code, exit_code, make_report, summary, to_json

__all__ = [
    "CrashVerdict", "Report", "Verdict", "counts", "coverage_code", "exit_code", "make_report", "summary", "to_json",
    "unknown_words",
]  # fmt: skip
