"""Why a source that is there gave nothing."""


class NoFlight(Exception):
    """A source cannot be read: `status` as in a `pg_status` record, `text` what happened, `try_` what to do."""

    def __init__(self, status, text, try_=""):
        super(NoFlight, self).__init__(text)
        self.status, self.text, self.try_ = status, text, try_
