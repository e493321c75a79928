"""Report of a headless run: `document` is the whole, one module per part, `exit_codes` derives the exit code."""

from ..text.format import iso
from .document import SCHEMA, Report, make_report, to_json
from .exit_codes import coverage_code, exit_code, unknown_words

__all__ = ["SCHEMA", "Report", "coverage_code", "exit_code", "iso", "make_report", "to_json", "unknown_words"]
