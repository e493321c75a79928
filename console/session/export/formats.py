"""Every form in which a session can leave, once: its name, what a file of it is called, what writes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import BinaryIO, Final

from .slice import Chosen


@dataclass(frozen=True)
class Form:
    """One form. `module` has `write(chosen, out)`; of one that `is_folder`, `write(chosen, folder)` and the files."""

    name: str
    suffix: str
    module: str
    tells: str
    is_folder: bool = False

    def write(self, what: Chosen, out: BinaryIO) -> None:
        """Write it into one file. Raises OSError, and what reading the session raises."""
        self._function(what, out)

    def write_folder(self, what: Chosen, folder: Path) -> list[Path]:
        """Write it into a folder; the files. Raises OSError, and what reading the session raises."""
        files: list[Path] = self._function(what, folder)
        return files

    @property
    def _function(self) -> Callable[..., list[Path]]:
        function: Callable[..., list[Path]] = import_module(f".{self.module}", __package__).write
        return function


FORMS: Final[dict[str, Form]] = {
    form.name: form
    for form in (
        Form("json", ".json", "document", "the whole session in one documented file, which can be imported again"),
        Form(
            "parquet", "-parquet", "parquet_files", "a folder a kind, for DuckDB, pandas, Spark, Dask", is_folder=True
        ),
        Form("csv", "-csv", "csv_files", "a file a kind, for a spreadsheet", is_folder=True),
        Form("perfetto", ".perfetto-trace", "perfetto", "a trace for ui.perfetto.dev"),
        Form(
            "speedscope",
            ".speedscope.json",
            "speedscope_session",
            "the stacks of the newest capture, for speedscope.app",
        ),
        Form("gswarm", ".gswarm.json", "gswarm", "frames and summary as gswarm-profiler documents them"),
        Form("html", ".html", "html_page", "one page for a ticket: verdict, findings, stacks, plots"),
    )
}
