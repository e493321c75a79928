"""Trains until something from outside ends it."""

from common import join, steps

join()
steps()
