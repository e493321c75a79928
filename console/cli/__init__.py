"""The command line: one file a subcommand; each parses, calls and prints, nothing more."""
