"""Rank 1 raises an exception from another one."""

from common import join, steps


class ConfigurationError(Exception):
    pass


def learning_rate(config):
    try:
        return config["optimizer"]["lr"]
    except KeyError as error:
        raise ConfigurationError("no learning rate in the section optimizer") from error


if join() == 1:
    learning_rate({"optimizer": {}})
steps()
