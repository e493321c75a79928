"""Whatever bytes come in from outside: a node's, a file's, the network's. Each target reads them as the product does.

    make fuzz                              every target for a minute, under atheris where it is installed
    python -m tests.fuzz link --seconds 600

`targets` are functions of bytes that raise where the product does what it must not; `talk` is a whole conversation,
`sent` a session; `found/` keeps the inputs that once did harm. `make test` tries all of these and a few hundred more.
"""
