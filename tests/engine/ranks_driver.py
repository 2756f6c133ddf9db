"""Opens an engine as the learner does, for one thing: `python ranks_driver.py CONFIG.yaml WHAT FOLDER`."""

import sys
import threading
from pathlib import Path

import numpy as np

from pacs.runtime.config_file import load_config
from pacs.runtime.process import configure_logging, exit_code_of
from pacs.testing import make_labeled_group
from services.learner.batches import make_batch
from services.learner.ranks import follow_rank_zero, is_follower, open_engine


def main(config_path, what, folder):
    lost = threading.Event()
    with open_engine(load_config(config_path), lambda error: lost.set()) as engine:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        batch = make_batch([make_labeled_group(0, [1, 0])])
        rows = np.arange(2)
        if what == "export":
            engine.logprobs(batch, rows)
            engine.export(folder)
        elif what == "busy":
            while True:
                engine.logprobs(batch, rows)
        elif what == "idle":  # as the loop: it waits for a group, or for this
            lost.wait(60)


if __name__ == "__main__":
    configure_logging("driver")
    if is_follower():
        raise SystemExit(exit_code_of(follow_rank_zero))
    raise SystemExit(exit_code_of(lambda: main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))))
