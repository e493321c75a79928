"""Places on the screen that a key leads to: a view with its filter and order, or a page in it; and where a thing is.

A dialog offers the places of the thing that it shows; a deep link is such a place as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, quote, unquote, urlencode

import msgspec

from ...text.cells import clean
from .filter_language import quoted
from .heat_map import index_of, uuid_of
from .job_ranks import JobSummary, RankListRow
from .list_kind import DEFAULT_ARRANGEMENT, Arrangement

if TYPE_CHECKING:
    from ..snapshot import ScreenSnapshot

#: Places that are offered for one thing; more than nine have no key.
MOST: Final = 9
#: Culprits of one finding whose places are offered.
_MOST_THINGS: Final = 3
#: Characters of a link and of one of its values; longer ones are refused.
LONGEST: Final = 2_000
_SCHEME: Final = "gconsole://"
_GPU = re.compile(r"(?P<node>.+):gpu(?P<index>\d+)")
_RANK = re.compile(r"rank (?P<rank>\d+)")


class Destination(msgspec.Struct, frozen=True, omit_defaults=True):
    """One place. `node` and `gpu` (a UUID) are of a page, `job` of a page or of what the view shows."""

    view: str
    title: str = ""  # in a dialog
    node: str = ""
    gpu: str = ""
    job: str = ""
    filter: str = ""
    sort: str = ""
    reverse: bool = False
    group: str = ""
    metric: str = ""  # of the map of GPUs
    row: str = ""  # the one under the cursor, as its list names it
    at: int = 0  # console time in a recorded session, ns; 0: none


class Bookmark(msgspec.Struct, frozen=True, omit_defaults=True):
    """A screen that was kept: a place, and how its view was arranged."""

    place: Destination
    arrangement: Arrangement = DEFAULT_ARRANGEMENT


class LinkError(ValueError):
    """A text that is not a link to a place."""


def as_link(place: Destination, target: str) -> str:
    """`gconsole://TARGET/VIEW?filter=…`: the place in what `target` opens, a hosts file or a session."""
    fields = {name: value for name in _FIELDS if (value := getattr(place, name))}
    query = urlencode({name: "1" if value is True else value for name, value in fields.items()}, quote_via=quote)
    return f"{_SCHEME}{quote(target, safe='')}/{place.view}" + (f"?{query}" if query else "")


_FIELDS: Final = ("node", "gpu", "job", "filter", "sort", "reverse", "group", "metric", "row", "at")


def parse_link(text: str, views: Sequence[str]) -> tuple[str, Destination]:
    """Target and place of a link; raises LinkError. Nothing in it is run: it only selects what is shown."""
    if not text.startswith(_SCHEME) or len(text) > LONGEST:
        raise LinkError(f"not a link; a link begins with {_SCHEME} and has at most {LONGEST} characters")
    target, slash, rest = text.removeprefix(_SCHEME).partition("/")
    view, _, query = rest.partition("?")
    target = unquote(target)
    if not target or target.startswith("-") or target != clean(target):
        raise LinkError("the link names no target; it is gconsole://TARGET/VIEW")
    if not slash or view not in views:
        raise LinkError(f"{clean(view)!r} is not a view; use one of {', '.join(views)}")
    try:
        pairs = dict(parse_qsl(query, strict_parsing=bool(query), max_num_fields=len(_FIELDS)))
    except ValueError as error:
        raise LinkError(f"cannot read {clean(query)[:80]!r}: {error}") from None
    unknown = sorted(set(pairs) - set(_FIELDS))
    if unknown:
        raise LinkError(f"{clean(unknown[0])!r} is not a part of a link; use {', '.join(_FIELDS)}")
    instant = pairs.pop("at", "0")
    if not re.fullmatch(r"[0-9]{1,19}", instant):
        raise LinkError(f"{clean(instant)[:80]!r} is not an instant in ns")
    is_reversed = pairs.pop("reverse", "") == "1"
    texts = {name: clean(value) for name, value in pairs.items()}
    return target, Destination(view, reverse=is_reversed, at=int(instant), **texts)


# -- places of things --------------------------------------------------------------------------------------------------


def places_of(frame: ScreenSnapshot, names: Iterable[str], job: str | None = None) -> tuple[Destination, ...]:
    """Where the things of these names are: `rank 137` of a job, `node018`, `node019:gpu4`; at last their events."""
    places: dict[Destination, None] = {}
    nodes: dict[str, None] = {}
    for name in list(names)[:_MOST_THINGS]:
        for place in _places(frame, name, job):
            places[place] = None
            if place.node:
                nodes[place.node] = None
    if job is not None and (job in {diagnosis.job for diagnosis in frame.hang}):
        places[Destination("hang", "stacks of the job", job=job)] = None
    for started in frame.started:
        own = started.ordered.job
        if job is not None and (job == own or job.startswith(f"{own}@")):
            places[Destination("jobs", "output of the job", job=own)] = None
    places |= {events_of(node): None for node in nodes}
    return tuple(places)[:MOST]


def _places(frame: ScreenSnapshot, name: str, job: str | None) -> Iterator[Destination]:
    rank, gpu = _RANK.fullmatch(name), _GPU.fullmatch(name)
    if rank is not None:
        row = _row_of(frame, int(rank["rank"]), job)
        if row is not None:
            yield from places_of_rank(frame, row)
    elif name in frame.fleet.by_name:
        yield Destination("nodes", clean(name), node=name)
    elif gpu is not None:
        yield from _page_of_gpu(frame, gpu["node"], gpu["index"])
        if gpu["node"] in frame.fleet.by_name:
            yield Destination("nodes", clean(gpu["node"]), node=gpu["node"])


def _row_of(frame: ScreenSnapshot, number: int, job: str | None) -> RankListRow | None:
    jobs: Iterable[JobSummary] = (each for each in frame.jobs.jobs if job in (None, each.job))
    return next((row for each in jobs for row in each.rows if row.number == number), None)


def places_of_rank(frame: ScreenSnapshot, row: RankListRow) -> Iterator[Destination]:
    """The rank in its list, its node and its GPU."""
    several = f" job:{quoted(row.job)}" if len(frame.jobs.jobs) > 1 else ""
    if row.number is not None:
        yield Destination("ranks", f"rank {row.number}", filter=f"rank:{row.number}{several}")
    if row.rank is not None:
        if row.rank.node in frame.fleet.by_name:
            yield Destination("nodes", clean(row.rank.node), node=row.rank.node)
        if row.rank.gpu:
            yield from _page_of_gpu(frame, row.rank.node, row.rank.gpu)


def _page_of_gpu(frame: ScreenSnapshot, node: str, name: str) -> Iterator[Destination]:
    """The page of a GPU by index or UUID."""
    for gpu in frame.gpus.of(node):
        if name in (str(index_of(gpu)), uuid_of(gpu)):
            yield Destination("gpus", f"{clean(node)} gpu{index_of(gpu)}", node=node, gpu=uuid_of(gpu))
            return


def events_of(node: str) -> Destination:
    """The events of a node, its kernel log among them."""
    return Destination("events", f"events and log of {clean(node)}", filter=f"node:{quoted(node)}")
