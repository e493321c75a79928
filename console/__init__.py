"""gconsole: the console for distributed training jobs on GPU clusters."""

__version__ = "0.2.0.dev0"
