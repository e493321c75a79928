"""The console in a browser of the same machine: a page, one websocket, and behind it one process of `gconsole`.

What travels between browser and process is textual-serve's; who may come in, and how a visitor leaves, is decided here.
Nothing in here knows a fleet: a visitor is a command that draws with Textual.
"""
