"""Clock windows of a node, and SQL over a session."""

import random

from session_builders import START

from gconsole.records import ClockNode
from gconsole.session.query.engine import Database
from gconsole.session.query.sources import RecordedSource

SECOND = 1_000_000_000


def windows(node, count=20, begin=50 * SECOND, **changes):
    """Clock windows of a node, one per 10 s, with a rate of about -20 ppm and jitter."""
    chance = random.Random(node)
    common, made = START, []
    for n in range(count):
        alpha = 1 - 20e-6 + chance.gauss(0, 1e-7)
        made.append(ClockNode(
            node=node, agent="c", seq=n + 1, rx=START + n * 10 * SECOND, window_id=n, reference="n0", alpha=alpha,
            at_mono=begin + n * 10 * SECOND, at_common=common, bound_ns=chance.randrange(5_000, 40_000),
            drift_bound_ppm=0.5, **changes,
        ))  # fmt: skip
        common += int(10 * SECOND * alpha)
    return made


def ask(path, sql):
    with RecordedSource(path) as source:
        database = Database(source)
        try:
            return [tuple(row.values()) for row in database.query(sql, limit=None).to_dicts()]
        finally:
            database.close()
