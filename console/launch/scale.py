"""A training configuration adjusted to a number of ranks, as a copy: what changes, and why.

A batch that is meant for the whole job is divided among its ranks; one that is meant for each rank stays, and the job's
own grows with them. The learning rate follows the job's batch (the linear rule: Goyal et al. 2017, arXiv:1706.02677):
where that stays the same, so does the rate.

Files are JSON, TOML or YAML; comments and order are preserved.
"""

from __future__ import annotations

import difflib
import io
import json
import re
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from pathlib import PurePath, PurePosixPath
from typing import Any, Final, Literal

import msgspec

#: Scope of batch sizes in the file; `auto`: by the name of the key.
Batch = Literal["auto", "job", "rank"]
#: Keys of batches, as trainers call them: of the whole job, and of each of its ranks.
JOB_BATCH: Final = frozenset({"batch_size", "train_batch_size", "global_batch_size", "total_batch_size"})
RANK_BATCH: Final = frozenset({
    "per_device_train_batch_size", "per_device_batch_size", "micro_batch_size", "batch_size_per_gpu",
    "batch_size_per_device", "micro_batch_size_per_gpu", "train_micro_batch_size_per_gpu",
})  # fmt: skip
RATES: Final = frozenset({"lr", "learning_rate", "base_lr", "max_lr", "min_lr", "peak_lr"})
OUTPUTS: Final = frozenset({"output_dir", "output_folder", "save_dir", "checkpoint_dir", "logging_dir"})
#: On the nodes without rank 0 what is written goes below the job's own folder there.
ELSEWHERE: Final = "$GCONSOLE_JOB_DIR"


class ScaleConfig(msgspec.Struct, frozen=True):
    """A configuration file: its path as given, and its text."""

    path: str
    text: str
    batch: Batch = "auto"

    @property
    def name(self) -> str:
        """File name of the copy."""
        return self.path.replace("\\", "/").rpartition("/")[2]

    @property
    def place(self) -> str:
        """Path of the copy on a node."""
        return f"{ELSEWHERE}/config/{self.name}"

    def within(self, command: tuple[str, ...]) -> tuple[str, ...]:
        """The command with the path of the copy instead of that of the file."""
        return tuple(self._instead(word) for word in command)

    def _instead(self, word: str) -> str:
        before, equals, value = word.rpartition("=")
        return before + equals + self.place if PurePosixPath(value) == PurePosixPath(self.path) else word


class JobSize(msgspec.Struct, frozen=True):
    """The size and rendezvous of the job that a configuration is adjusted to."""

    job: str
    nodes: int
    procs_per_node: int
    master_addr: str
    master_port: int

    @property
    def world_size(self) -> int:
        """Ranks of the job."""
        return self.nodes * self.procs_per_node


class ScaleChange(msgspec.Struct, frozen=True):
    """One setting that differs in the copy; `key` is its path: `optimizer.lr`."""

    key: str
    before: str
    after: str
    why: str


class Scaled(msgspec.Struct, frozen=True):
    """The copy for the node of rank 0, that for every other node, and what differs from the file."""

    path: str
    name: str  # of the copy, in the job's folder
    first: str
    others: str
    changes: tuple[ScaleChange, ...]
    difference: str  # of the first copy, as `diff -u` writes it


class CannotScale(ValueError):
    """The configuration has a value that cannot be adjusted; the message names it."""


def scale(config: ScaleConfig, size: JobSize) -> Scaled:
    """The adjusted copies. Raises BadConfigFile and CannotScale."""
    name = config.name
    first = load(name, config.text)
    changes, factor = _batches(first, config.batch, size.world_size)
    changes += _rates(first, factor)
    _describe(first, size, changes)
    text = dump(name, first, config.text)
    moved = [*_outputs(first)] if size.nodes > 1 else []
    others = dump(name, first, config.text) if moved else text
    lines = difflib.unified_diff(config.text.splitlines(), text.splitlines(), config.path, config.place, lineterm="")
    return Scaled(config.path, name, text, others, (*changes, *moved), "\n".join(lines))


def _batches(tree: Tree, meant: Batch, world_size: int) -> tuple[list[ScaleChange], float]:
    """The adjusted batch sizes, and the factor by which the global batch grows; 1 without one."""
    changes, factors = [], set()
    for table, key, path in _settings(tree, JOB_BATCH | RANK_BATCH):
        value = _whole(table[key], path)
        if meant == "rank" or (meant == "auto" and key.lower() in RANK_BATCH):
            factors.add(float(world_size))
            continue
        each = max(1, round(value / world_size))
        factors.add(each * world_size / value)
        table[key] = each
        same = each * world_size == value
        whole = f"{each} on each of {world_size} ranks makes {each * world_size}"
        whole += ", unchanged" if same else f", nearest to {value}"
        changes.append(ScaleChange(path, str(value), str(each), whole))
    if len(factors) > 1:
        raise CannotScale("the file has batch sizes per job and per rank; choose one with --scale-batch")
    return [change for change in changes if change.before != change.after], factors.pop() if factors else 1.0


def _rates(tree: Tree, factor: float) -> list[ScaleChange]:
    changes = []
    for table, key, path in _settings(tree, RATES) if factor != 1.0 else ():
        try:
            before = float(table[key])
        except (TypeError, ValueError):
            continue  # the name of a schedule, or a formula
        table[key] = float(f"{before * factor:.12g}")
        changes.append(
            ScaleChange(path, str(before), str(table[key]), f"the job's batch size changes by a factor of {factor:g}")
        )
    return changes


def _outputs(tree: Tree) -> Iterator[ScaleChange]:
    """Only the node of rank 0 writes to the configured folders: nodes that share a disk would overwrite each other."""
    for table, key, path in _settings(tree, OUTPUTS):
        before = table[key]
        if isinstance(before, str):
            table[key] = f"{ELSEWHERE}/{key}"
            yield ScaleChange(path, before, table[key], "on the nodes without rank 0")


def _describe(tree: Tree, size: JobSize, changes: Sequence[ScaleChange]) -> None:
    """Add a table that describes the job, for scripts that need it before they have a process group."""
    table = {
        "job": size.job, "world_size": size.world_size, "nodes": size.nodes, "procs_per_node": size.procs_per_node,
        "master_addr": size.master_addr, "master_port": size.master_port,
        "adjusted": [change.key for change in changes],
    }  # fmt: skip
    tree["gconsole_distributed" if "distributed" in tree else "distributed"] = table


def _settings(tree: Any, keys: frozenset[str], path: str = "") -> Iterator[tuple[Any, str, str]]:
    """(table, key, path) of the settings of these names, at any depth, in the order of the file."""
    if isinstance(tree, list):
        for i, item in enumerate(tree):
            yield from _settings(item, keys, f"{path}[{i}].")
    elif isinstance(tree, dict):
        for key in list(tree):
            value = tree[key]
            if isinstance(value, dict | list):
                yield from _settings(value, keys, f"{path}{key}.")
            elif str(key).lower() in keys:
                yield tree, key, f"{path}{key}"


def _whole(value: Any, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise CannotScale(f"{path} = {value!r} is not a batch size; use a whole number")
    return int(value)


Tree = MutableMapping[str, Any]


class BadConfigFile(ValueError):
    """The file cannot be parsed in the format of its name; the message has line and reason."""


def load(name: str, text: str) -> Tree:
    """The configuration in a file of that name. Raises BadConfigFile."""
    reader, _ = _form(name)
    tree = reader(text)
    if not isinstance(tree, MutableMapping):
        raise BadConfigFile(f"{name}: does not contain a table of settings")
    return tree


def dump(name: str, tree: Tree, like: str) -> str:
    """The formatted file, with the indentation of `like`, the original text."""
    _, writer = _form(name)
    return writer(tree, like)


def _form(name: str) -> tuple[Callable[[str], Any], Callable[[Tree, str], str]]:
    try:
        return _FORMS[PurePath(name).suffix.lower()]
    except KeyError:
        raise BadConfigFile(f"{name}: not a .json, .toml, .yaml or .yml file") from None


def _read_json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise BadConfigFile(f"line {error.lineno}: {error.msg}") from error


def _write_json(tree: Tree, like: str) -> str:
    indent = re.search(r"\{\n([ \t]+)", like)
    return json.dumps(tree, indent=indent[1] if indent else 2, ensure_ascii=False) + "\n"


def _read_toml(text: str) -> Any:
    import tomlkit
    from tomlkit.exceptions import ParseError

    try:
        return tomlkit.parse(text)
    except ParseError as error:
        raise BadConfigFile(str(error)) from error


def _write_toml(tree: Tree, like: str) -> str:
    import tomlkit

    return tomlkit.dumps(tree)


def _yaml() -> Any:
    from ruamel.yaml import YAML

    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    yaml.width = 4096  # do not wrap long lines
    return yaml


def _read_yaml(text: str) -> Any:
    from ruamel.yaml.error import YAMLError

    try:
        return _yaml().load(text)
    except YAMLError as error:
        raise BadConfigFile(" ".join(str(error).split())) from error


def _write_yaml(tree: Tree, like: str) -> str:
    yaml = _yaml()
    if re.search(r"^( *)\S.*:\n\1 +- ", like, re.MULTILINE):
        yaml.indent(mapping=2, sequence=4, offset=2)
    written = io.StringIO()
    yaml.dump(tree, written)
    return written.getvalue()


_FORMS: Final[dict[str, tuple[Callable[[str], Any], Callable[[Tree, str], str]]]] = {
    ".json": (_read_json, _write_json), ".toml": (_read_toml, _write_toml),
    ".yaml": (_read_yaml, _write_yaml), ".yml": (_read_yaml, _write_yaml),
}  # fmt: skip
