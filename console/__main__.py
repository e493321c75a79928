"""`python -m gconsole` is `gconsole`."""

from .cli.main import main

main()
