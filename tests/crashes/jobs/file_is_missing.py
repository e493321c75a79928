"""All ranks open a file that does not exist."""

from common import join, steps

join()
with open("/data/imagenet/train/shard-00017.tar") as file:
    file.read()
steps()
