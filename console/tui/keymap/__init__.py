"""Key bindings: the table of actions, the user's own keys, and the hints in footer and help."""
