"""Orders from rank 0 to the others: announced in the store they met at, their arrays broadcast.

The announcement can be waited for as long as it takes: a batch may be long in coming, and a collective would run into
its deadline meanwhile. Waits for / is unblocked by: an order / rank 0, or its death, which takes the store along.
"""

import time

from pacs.errors import DeadlineExceeded, ServiceFailed
from services.learner.orders import Order, decode_order, encode_order, payload_bytes
from services.learner.world import World

__all__ = ["OrderChannel"]

LOOK_SECONDS = 10.0  # longest sleep between looks at whether the store is still there
TAKEN_SECONDS = 30.0
POLL_SECONDS = 0.02


class OrderChannel:
    """See the module.

    Args:
        world: the ranks; rank 0 gives orders, the others take them.

    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._number = 0

    def give(self, order: Order) -> None:
        """Tell all other ranks to do something."""
        header, payload = encode_order(order)
        self._number += 1
        self._world.store.set(_key(self._number), header)
        if payload:
            self._world.send_bytes(payload)

    def await_taken(self) -> None:
        """Wait until all have taken the last order: the store must outlive their look at it.

        Raises:
            DeadlineExceeded: one has not.

        """
        deadline = time.monotonic() + TAKEN_SECONDS
        while self._world.store.check([_key(self._number)]):
            if time.monotonic() > deadline:
                raise DeadlineExceeded("the other learner ranks to take their last order", TAKEN_SECONDS)
            time.sleep(POLL_SECONDS)

    def take(self) -> Order:
        """Wait for the next order.

        Raises:
            ServiceFailed: rank 0 is gone.

        """
        self._number += 1
        header = self._wait(_key(self._number))
        count = payload_bytes(header)
        return decode_order(header, self._world.receive_bytes(count) if count else b"")

    def _wait(self, key: str) -> bytes:
        store = self._world.store
        try:
            while not self._world.key_comes(key, LOOK_SECONDS):
                pass  # rank 0 lives and has nothing to do for us
            header = bytes(store.get(key))
            if store.add(f"{key}/read", 1) == self._world.ranks - 1:  # nobody needs it any more
                store.delete_key(key)
                store.delete_key(f"{key}/read")
        except RuntimeError as error:  # torch's, when the connection breaks
            raise ServiceFailed(
                f"learner rank {self._world.rank} lost rank 0 while waiting for its next order: {error}"
            ) from error
        return header


def _key(number: int) -> str:
    return f"order/{number}"
