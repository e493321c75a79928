"""Fuzzing of every parser of external input: nodes, files, the network. Each target parses as the product does.

    make fuzz                              every target for a minute, under atheris where it is installed
    python -m tests.fuzz link --seconds 600

`targets` are functions of bytes that raise if the product violates its contract; `conversation` feeds a node's
bytes to a fleet, `sent_session` builds untrusted sessions. `found/` keeps inputs that once caused failures; `make
test` runs all of these and a few hundred more.
"""
