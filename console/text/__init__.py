"""Text and files of our own: sanitising, secrets, formats, atomic writes."""
