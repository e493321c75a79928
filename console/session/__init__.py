"""Sessions: what the console saw, kept on disk, recovered after a crash, read again, asked, exported.

`layout` says where everything lies, `frames` how bytes are safe there, `reading` gives the records back; `recorder`
writes them. `columns` and `compact` make tables of them, `database` answers SQL over those, `export/` writes the forms
that other tools read. Nothing here knows a screen or a node; nothing here is asked by the fleet. What costs much to
import (duckdb, matplotlib) only those modules import that need it.
"""
