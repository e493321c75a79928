"""What the requests of `gconsole run` raise where they cannot be met."""


class Problem(Exception):
    """What was asked cannot be done; `name` is stable."""

    def __init__(self, name: str, text: str, try_: str = "") -> None:
        super(Problem, self).__init__(text)
        self.name, self.text, self.try_ = name, text, try_
