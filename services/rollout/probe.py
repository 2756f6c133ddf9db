"""The engine's log-probs of given tokens, for `pacs doctor`: `python -m services.rollout.probe CONFIG < ids.json`.

Standard input: a JSON list of token ids. Last line of standard output: a JSON list of log-probs, of all but the first.
"""

import asyncio
import json
import sys
from pathlib import Path

import numpy as np

from pacs.runtime.config_file import load_config
from pacs.runtime.process import configure_logging, exit_code_of


async def main(config_path: Path, token_ids: list[int]) -> list[float]:
    """Start the engine, ask once, stop it."""
    from services.rollout.vllm_engine import VllmEngine

    config = load_config(config_path)
    engine = await VllmEngine.start(
        config.model.path,
        dtype=config.model.dtype,
        seed=config.run.seed,
        max_model_tokens=config.model.max_tokens,
        max_sequences=config.rollout.max_sequences,
        kv_cache_gib=config.rollout.kv_cache_gib,
    )
    try:
        logprobs = await engine.probe(np.asarray(token_ids, dtype=np.int32))
    finally:
        await engine.close()
    return [float(value) for value in logprobs]


def _print_answer() -> None:
    token_ids = json.load(sys.stdin)
    sys.stdout.write("\n" + json.dumps(asyncio.run(main(Path(sys.argv[1]), token_ids))) + "\n")


if __name__ == "__main__":
    configure_logging("rollout.probe")
    raise SystemExit(exit_code_of(_print_answer))
