"""One of ranks 1…N-1, started by rank 0: `python -m services.learner.follower`, told the rest by its environment."""

import os

from pacs.runtime.process import configure_logging, exit_code_of, leave
from services.learner.ranks import follow_rank_zero

__all__: list[str] = []

if __name__ == "__main__":
    configure_logging(f"learner.rank{os.environ.get('RANK', '?')}")
    leave(exit_code_of(follow_rank_zero))
