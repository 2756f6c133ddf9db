"""One method in a process of its own: `python learner_worker.py SPEC.json`; `benchmarks/learner.py` starts it.

Each line `step` on standard input asks for an optimizer step; the first is on short responses and allocates what stays.
At the end of input it says what memory it took. Answers are lines of JSON that begin with `@`.
"""

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch  # noqa: TID253
from learner_methods import METHODS, Method

from pacs.testing import make_labeled_group
from services.learner.batches import Batch, make_batch

WARM_TOKENS = 2  # of a response in the first step


def make_model(folder: Path, hidden: int, layers: int, vocabulary: int) -> None:
    """A random Qwen2 with tied embeddings, and a tokenizer of as many words."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64,
        num_key_value_heads=max(1, hidden // 128),
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        eos_token_id=1,
        pad_token_id=0,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    words = Tokenizer(models.WordLevel({"<pad>": 0, "<end>": 1, **{f"w{n}": n for n in range(2, vocabulary)}}, "<end>"))
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<end>").save_pretrained(folder)


def make_groups(spec: dict[str, Any], lengths: list[int]) -> list[Any]:
    """The same sequences whatever the group size: one prompt, every second label correct."""
    size, rng = spec["group_size"], np.random.default_rng(0)
    prompt = rng.integers(2, spec["vocabulary"], spec["prompt_tokens"]).astype(np.int32)
    responses = [rng.integers(2, spec["vocabulary"], length).tolist() for length in lengths]
    return [
        make_labeled_group(
            start, [(start + n) % 2 for n in range(size)], responses=responses[start : start + size], token_ids=prompt
        )
        for start in range(0, len(lengths), size)
    ]


def padded(batch: Batch, method: Method) -> dict[str, int]:
    """Tokens that go through the model for a method's micro-batches, and how many those are."""
    parts, width_B = method.parts(batch), method.width(batch.tokens_B)
    return {
        "micro_batches": len(parts),
        "padded_tokens": sum(len(part) * int(width_B[part].max()) for part in parts),
    }


def answer(**figures: Any) -> None:
    sys.stdout.write(f"@{json.dumps(figures)}\n")
    sys.stdout.flush()


class Memory:
    """Peak bytes above those at its construction: of the process, or allocated on the GPU."""

    def __init__(self) -> None:
        self._cuda = torch.cuda.is_available()
        if self._cuda:
            torch.cuda.reset_peak_memory_stats()
            self._before = torch.cuda.memory_allocated()
        else:
            Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
            self._before = _status("VmRSS")

    def peak_bytes(self) -> int:
        return (torch.cuda.max_memory_allocated() if self._cuda else _status("VmHWM")) - self._before


def _status(field: str) -> int:
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024


class AskedSteps:
    """Hands out the warm-up batch once, then the batch that is measured."""

    def __init__(self, clock: Any, warm: list[Any], groups: list[Any]) -> None:
        self._clock = clock
        self._measured = groups
        self.groups = warm
        self._steps = 0

    def next_step(self) -> bool:
        if sys.stdin.readline().strip() != "step":
            return False
        if self._steps:
            self.groups = self._measured
        self._clock.seconds.clear()
        self._began, self._cpu_began = time.perf_counter(), time.process_time()
        return True

    def done(self) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self._steps += 1
        cpu_seconds = time.process_time() - self._cpu_began
        answer(seconds=time.perf_counter() - self._began, cpu_seconds=cpu_seconds, parts=self._clock.seconds)


def main(spec: dict[str, Any]) -> None:
    torch.set_num_threads(spec["threads"])
    method = METHODS[spec["method"]](spec)
    warm = make_groups(spec, [WARM_TOKENS] * spec["sequences"])
    groups = make_groups(spec, spec["lengths"])
    batch, memory = make_batch(groups), Memory()
    answer(tokens=int(batch.tokens_B.sum()), **padded(batch, method), chosen=method.chosen(batch))
    method.serve(AskedSteps(method.clock, warm, groups))
    answer(peak_bytes=memory.peak_bytes())


if __name__ == "__main__":
    spec = json.loads(Path(sys.argv[1]).read_text())
    if spec["method"] == "make":
        make_model(Path(spec["model"]), spec["hidden"], spec["layers"], spec["vocabulary"])
    else:
        main(spec)
