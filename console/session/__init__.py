"""Sessions: what the console saw, kept on disk, recovered after a crash, read again, and what can be made of it.

`layout` says where everything lies, `frames` how bytes are safe there, `reading` gives the records back; `recorder`
writes them. Nothing here draws on a screen or talks to a node; nothing here is asked by the fleet.
"""
