"""The report of a headless run: `document.py` is the whole, one file a part of it, `codes.py` the exit code it means.

What a person reads of captures and collectives is beside their part. Everything here is told by the store alone.
"""

from ..text.format import iso
from .document import SCHEMA, Report, make_report, to_json
from .exit_codes import coverage_code, exit_code, unknown_words

__all__ = ["SCHEMA", "Report", "coverage_code", "exit_code", "iso", "make_report", "to_json", "unknown_words"]
