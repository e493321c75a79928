"""The command line: modules of related subcommands, which parse options, call the other packages and print."""
