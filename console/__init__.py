"""gconsole: the console for distributed training jobs on GPU clusters."""

__version__ = "0.1.0"
