"""The TUI: `app` is the frame, `controllers/` act, `views/` show, `widgets/` draw, `models/` compute what is shown.

Models are pure functions from the store to frozen values and do not import textual. Widgets draw such values without
access to the fleet. Views connect both. Nothing here imports `gconsole.fleet`: actions go through `core.control`.
"""
