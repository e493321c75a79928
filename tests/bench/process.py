"""Runs a function in a new process, for figures that must not include earlier allocations."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def in_new_process(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of `work` (a module-level function) in a new interpreter; its exception is raised here."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *args, **kwargs).result()
