"""A healthy job: every rank sends lines to a program and reads its answers, then reduces."""

import subprocess

from common import join, step

PROGRAM = "while read line; do sleep 0.05; echo $line; done"
join()
tokenizer = subprocess.Popen(["bash", "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
while True:
    tokenizer.stdin.write(b"a line\n")
    tokenizer.stdin.flush()
    tokenizer.stdout.readline()
    step()
