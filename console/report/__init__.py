"""Report of a headless run: `document` is the whole with its exit code, one module per part."""

from ..analysis.hang.verdict import Verdict
from ..text.format import iso
from .document import SCHEMA, Report, coverage_code, exit_code, make_report, to_json, unknown_words

__all__ = [
    "SCHEMA", "Report", "Verdict", "coverage_code", "exit_code", "iso", "make_report", "to_json", "unknown_words",
]  # fmt: skip
