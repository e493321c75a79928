"""The screen. `app.py` is the frame, `views/` one file a view, `widgets/` one file a widget, `models/` what they show.

Models are pure functions from the store to frozen values and import no textual; widgets take such values and know no
fleet; views put the two together. Nothing here imports `gconsole.fleet`: the way back is `hub.Control`.
"""
