"""Starts the learner: `python -m services.learner CONFIG`; under a launcher such as torchrun, one of its ranks."""

import os

from pacs.runtime.family import exit_with_parent
from pacs.runtime.process import configure_logging, exit_code_of, leave, load_settings, stop_on_signals
from services.learner.ranks import follow_rank_zero, is_follower, open_engine
from services.learner.settings import Settings


def main(settings: Settings) -> None:
    """Wire the learner and train until the last step or until told to stop."""
    from prometheus_client import CollectorRegistry

    from pacs.runtime.base_model import adapters_of
    from pacs.runtime.health_server import HealthServer
    from services.learner.checkpoints import Checkpoints
    from services.learner.export import write_export
    from services.learner.handler import LearnerHandler
    from services.learner.link import LearnerLink
    from services.learner.loop import TrainLoop
    from services.learner.metrics import LearnerMetrics
    from services.learner.publication import WeightSender

    config = settings.config
    registry = CollectorRegistry()
    metrics = LearnerMetrics(registry, config.run.name, config.run.max_staleness)
    link = LearnerLink(settings, lambda: metrics.version)
    stop_on_signals(lambda: link.ask_to_stop("signal"))
    health = HealthServer(registry, lambda: link.waiting_for, settings.bind_host, config.learner.metrics_port)
    with open_engine(config, link.rank_lost) as engine:
        sender = WeightSender(
            engine,
            settings.advertise_host,
            config.publication.phase_seconds,
            engine.backend,
            adapters_of(config.model),
        )
        loop = TrainLoop(
            config,
            engine,
            LearnerHandler(config, engine),
            link,
            sender,
            Checkpoints(settings.checkpoint_directory, config.learner.keep_checkpoints),
            metrics,
            lambda: write_export(engine.export, settings.export_directory),
        )
        try:
            loop.run()
        finally:
            sender.close()
            link.close()
            health.close()


if __name__ == "__main__":
    if is_follower():
        configure_logging(f"learner.rank{os.environ['RANK']}")
        leave(exit_code_of(follow_rank_zero))
    configure_logging("learner")
    exit_with_parent()
    leave(exit_code_of(lambda: main(load_settings("learner", Settings))))
