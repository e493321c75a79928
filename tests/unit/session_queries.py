"""SQL on sessions, through the engine and through the command."""

from click.testing import CliRunner

from gconsole.cli.query import query as command
from gconsole.session.query.engine import Database
from gconsole.session.query.sources import RecordedSource

ENDLESS = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range * b.range % 7 = 3"


class SessionQueries:
    """A database over a folder or file that returns rows as tuples."""

    def __init__(self, path):
        self.source = RecordedSource(path)
        self.database = Database(self.source, self.source.scratch)

    def __call__(self, sql, **how):
        return self.database.query(sql, **how).rows

    def close(self):
        self.database.close()
        self.source.close()


def run(*args):
    """Run the command; returns its output and exit code, and raises unexpected exceptions."""
    result = CliRunner().invoke(command, list(map(str, args)), standalone_mode=False)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result
