"""Worker extensions that break the engine on purpose; vLLM imports them by name in its worker process."""

import torch  # noqa: TID253 - runs in vLLM's worker
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory  # noqa: TID253 - as above

from services.rollout.weight_transfer import BroadcastTransferEngine, WeightTransferWorker, registered_name

STALE_HEAD = "stale-head"


class ScramblingWorker(WeightTransferWorker):
    """Can overwrite what it samples from."""

    def scramble(self):
        for parameter in self.model_runner.model.parameters():
            torch.nn.init.normal_(parameter.data, std=3.0)


class StaleHeadEngine(BroadcastTransferEngine):
    """Forgets the packed copy of a tied lm_head, as vLLM's own reloading does on CPU."""

    def repack_tied_head(self):
        pass


WeightTransferEngineFactory.register_engine(registered_name(STALE_HEAD), StaleHeadEngine)
