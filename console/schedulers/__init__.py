"""Attach to what a site runs: which nodes Slurm or Kubernetes gave to a job."""

from .command import SiteError
from .targets import Attached, Place, attach, is_site_target

__all__ = ["Attached", "Place", "SiteError", "attach", "is_site_target"]
