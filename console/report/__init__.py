"""Report of a headless run: `document` is the whole with its exit code, one module per part."""

from ..analysis.hang.verdict import Verdict
from .document import Report, coverage_code, exit_code, make_report, summary, to_json, unknown_words

__all__ = ["Report", "Verdict", "coverage_code", "exit_code", "make_report", "summary", "to_json", "unknown_words"]
