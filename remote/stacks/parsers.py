"""The children that parse what is read of processes of other users for captures and samples of stacks."""

from ..proc import limited
from . import call_memory, py_spy, source_lines

PARSERS = limited.Parsers((py_spy.parse_output, call_memory.parse, source_lines.parse))
