"""Fuzzing of every parser of external input: nodes, files, the network. Each target parses as the product does.

    make fuzz                              every target for a minute, under atheris where it is installed
    python -m tests.fuzz link --seconds 600

`targets` are functions of bytes that raise where the product does what it must not; `conversation` feeds a node's
bytes to a fleet, `sent_session` makes sessions of other people. `found/` keeps the inputs that once did harm; `make
test` tries all of these and a few hundred more.
"""
