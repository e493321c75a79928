"""Terminal-free rendering of one topic each, as text and styled spans."""
