"""From the configuration to an engine of one or many ranks, and from the environment to one of the others.

On one machine rank 0 starts the others. Under a launcher such as torchrun, which sets RANK and WORLD_SIZE, all are
there already and nobody is started. The others get their configuration from rank 0, so that all have the same.
"""

import contextlib
import logging
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from pacs.errors import BadInput, ServiceFailed
from pacs.runtime.config import RunConfig
from pacs.runtime.family import exit_with_parent
from services.learner.engine import TrainingEngine
from services.learner.rank_processes import RankProcesses

if TYPE_CHECKING:
    from services.learner.world import World

__all__ = ["Launched", "follow_rank_zero", "is_follower", "open_engine"]

CONFIG_KEY = "config"
HOST = "127.0.0.1"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Launched:
    """What a launcher says of this process.

    Args:
        rank: among all.
        ranks: how many there are.
        local_rank: among those of its machine.

    """

    rank: int
    ranks: int
    local_rank: int

    @classmethod
    def read(cls) -> Self | None:
        """From the environment; None if no launcher has set it.

        Raises:
            BadInput: it is set in part.

        """
        if not {"RANK", "MASTER_ADDR"} <= os.environ.keys():
            return None
        missing = sorted({"WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT"} - os.environ.keys())
        if missing:
            raise BadInput(f"a launcher that sets RANK and MASTER_ADDR must set {missing} too, as torchrun does")
        return cls(*(int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")))


def is_follower() -> bool:
    """Whether a launcher says that this process is not rank 0."""
    launched = Launched.read()
    return launched is not None and launched.rank > 0


@contextlib.contextmanager
def open_engine(
    config: RunConfig, on_lost: Callable[[ServiceFailed], object] = lambda _: None
) -> Iterator[TrainingEngine]:
    """The engine of rank 0, all other ranks behind it; when the block ends they do.

    Args:
        config: of the run.
        on_lost: called on another thread when a rank ends unasked; the block must end soon then.

    Raises:
        BadInput: the model cannot be trained, or a launcher started another number of ranks.
        PacsError: the ranks did not come together.

    """
    from services.learner.deepspeed_engine import DeepSpeedEngine
    from services.learner.order_channel import OrderChannel
    from services.learner.ranked_engine import RankedEngine

    launched = Launched.read()
    if launched is not None and launched.ranks != config.learner.ranks:
        raise BadInput(
            f"learner.ranks must be the number of processes the launcher starts, got learner.ranks="
            f"{config.learner.ranks} and WORLD_SIZE={launched.ranks}; set learner.ranks"
        )
    if config.learner.ranks == 1:
        alone = DeepSpeedEngine.start(config)
        logger.info("training with %s", alone.describe())
        yield alone
        return
    processes = RankProcesses(on_lost)
    engine: RankedEngine | None = None
    try:
        world = _gather_ranks(config, processes, launched)
        channel = OrderChannel(world)
        engine = RankedEngine(DeepSpeedEngine.start(config, world), channel, processes.lost_within)
        logger.info("training with %s", engine.describe())
        yield engine
    finally:
        in_step = engine is not None and engine.in_step
        processes.close(engine.dismiss if engine is not None and in_step else None)
        if in_step and processes.lost_within(0.0) is None:
            if launched is not None:
                channel.await_taken()
            world.leave()


def follow_rank_zero() -> None:
    """Be one of the other ranks until rank 0 says stop; stopping is its business, so signals to stop are ignored."""
    from services.learner.deepspeed_engine import DeepSpeedEngine
    from services.learner.order_channel import OrderChannel
    from services.learner.ranked_engine import follow
    from services.learner.world import World, launcher_store

    exit_with_parent(signal.SIGKILL)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    launched = Launched.read()
    if launched is None:
        raise BadInput("a rank that follows is started by rank 0 or by a launcher, got no RANK and MASTER_ADDR")
    store = launcher_store(hosts=False)
    world = World.join(store, launched.rank, launched.ranks, launched.local_rank)
    config = RunConfig.model_validate_json(store.get(CONFIG_KEY))
    follow(DeepSpeedEngine.start(config, world), OrderChannel(world))
    world.leave()


def _gather_ranks(config: RunConfig, processes: RankProcesses, launched: Launched | None) -> "World":
    """Start the other ranks where no launcher has, and wait for them."""
    from services.learner.world import World, host_store, launcher_store

    if launched is not None:
        store = launcher_store(hosts=True)
    else:
        store, port = host_store(HOST)
        processes.start(config.learner.ranks, {"MASTER_ADDR": HOST, "MASTER_PORT": str(port)})
    store.set(CONFIG_KEY, config.model_dump_json())
    local_rank = 0 if launched is None else launched.local_rank
    return World.join(store, 0, config.learner.ranks, local_rank, processes.raise_if_lost)
