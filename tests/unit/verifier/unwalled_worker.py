"""A worker on a machine whose kernel has no Landlock."""

from services.verifier.checkers import worker_loop
from tests.unit.verifier.fake_worker import load


def no_landlock():
    raise OSError(38, "landlock_create_ruleset: Function not implemented")


if __name__ == "__main__":
    worker_loop.wall_in = no_landlock
    worker_loop.serve(load)
