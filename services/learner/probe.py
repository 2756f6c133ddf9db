"""The learner's log-probs of given tokens, for `pacs doctor`: `python -m services.learner.probe CONFIG < ids.json`.

Standard input: a JSON list of token ids. Last line of standard output: a JSON list of log-probs, of all but the first.
"""

import json
import sys
from pathlib import Path

import numpy as np

from pacs.runtime.config_file import load_config
from pacs.runtime.process import configure_logging, exit_code_of


def main(config_path: Path, token_ids: list[int]) -> list[float]:
    """Load the policy as the learner does and ask once."""
    from services.learner.ranks import open_engine

    with open_engine(load_config(config_path)) as engine:
        return [float(value) for value in engine.probe(np.asarray(token_ids, dtype=np.int32))]


def _print_answer() -> None:
    token_ids = json.load(sys.stdin)
    sys.stdout.write("\n" + json.dumps(main(Path(sys.argv[1]), token_ids)) + "\n")


if __name__ == "__main__":
    configure_logging("learner.probe")
    raise SystemExit(exit_code_of(_print_answer))
