"""A healthy job."""

from common import join, steps

join()
steps()
