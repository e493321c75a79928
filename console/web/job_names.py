"""Names of jobs: ranks of one that gconsole started tell `train-3f9a1c@10.0.0.1:29500`, its order `train-3f9a1c`."""

from __future__ import annotations

from collections.abc import Collection


def is_of(found: str, name: str) -> bool:
    """Whether ranks that tell this name are of the job of that name."""
    return found == name or found.startswith(f"{name}@")


def own_name(found: str, started: Collection[str]) -> str:
    """The name under which gconsole started the job whose ranks tell this one; else what they tell."""
    name = found.rpartition("@")[0]
    return name if name in started else found
