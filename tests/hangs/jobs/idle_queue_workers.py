"""Nothing is wrong: every rank without torch looks for work in a folder once a second, and there is none."""

import os
import tempfile
import time

from plain import ready

INBOX = tempfile.mkdtemp()
ready()
while True:
    for name in os.listdir(INBOX):
        os.unlink(os.path.join(INBOX, name))
    time.sleep(1)
