"""Stack capture: py-spy, pystack, native frames and source lines."""
