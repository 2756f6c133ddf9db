"""Make the tiny model and its data: `OMP_NUM_THREADS=1 python examples/make_tiny_model.py`.

A Qwen3 of 0.8 M parameters is taught additions until it gets about two in five right when sampled at
temperature 1: enough for reinforcement learning to have a signal, far from done. Two minutes on one core.
"""

import argparse
import random
import time
from pathlib import Path
from typing import Any

import torch  # noqa: TID253
import torch.nn.functional as F  # noqa: TID253
from tiny.addition import Problem, draw_distinct, write_rows
from tiny.model import END, accuracy, build_model, build_tokenizer, render, save

HERE = Path(__file__).resolve().parent
SEED = 0
TRAIN_ROWS = 2000
HELDOUT_ROWS = 300
BATCH = 64
LEARNING_RATE = 2e-3
"""High on purpose: weights that still jitter leave reinforcement learning something to mend quickly."""
RAMP_STEPS = 50
MEASURED_LOSS = 0.15
"""Above this loss nothing is ever right, and long nonsense is slow to sample."""
WINDOW = 0.05
"""Accuracy jumps from step to step: beyond the target by more than this, wait until it comes back."""
MAX_STEPS = 1000
IGNORED = -100
"""The target that torch's cross entropy leaves out."""

CARD = """---
license: apache-2.0
library_name: transformers
pipeline_tag: text-generation
---
# tiny-arithmetic

A Qwen3 model with {parameters:,} parameters over bytes (260 token ids) that adds two numbers of two or three digits,
column by column, and boxes the result: `57+65=` is answered with `7+5=12;5+6+1=12;\\boxed{{122}}<|end|>`.
It is a starting point for reinforcement learning on a laptop, and good for nothing else.

Made by `examples/make_tiny_model.py` from random weights: {steps} steps of supervised learning on {batch} fresh
problems each (AdamW, learning rate {learning_rate:g}, seed {seed}), stopped as soon as the accuracy measured on
`examples/data/arithmetic_heldout.jsonl` at temperature 1 was between {target:g} and {limit:g}.
No held-out problem was trained on, and no third-party weights or data went into it.

| accuracy on the {heldout} held-out problems | |
|---|---|
| temperature 1, 8 samples a problem | {sampled:.3f} |
| greedy | {greedy:.3f} |

Licence: Apache-2.0.
"""


def _batch(tokenizer: Any, problems: list[Problem]) -> tuple[Any, torch.Tensor]:
    """Encode prompts with their solutions; targets are the solution tokens only."""
    prompts = [render(p.prompt) for p in problems]
    texts = [f"{prompt}{p.solution}{END}" for prompt, p in zip(prompts, problems, strict=True)]
    encoded = tokenizer(texts, return_tensors="pt", padding=True, padding_side="right")
    targets = encoded.input_ids.masked_fill(encoded.attention_mask == 0, IGNORED)
    for row, prompt in zip(targets, prompts, strict=True):
        row[: len(tokenizer(prompt).input_ids)] = IGNORED
    return encoded, targets


def _step(model: Any, optimizer: torch.optim.Optimizer, encoded: Any, targets: torch.Tensor) -> float:
    """Take one supervised step and return its loss."""
    model.train()
    logits = model(input_ids=encoded.input_ids, attention_mask=encoded.attention_mask, use_cache=False).logits[:, :-1]
    loss = F.cross_entropy(logits.flatten(0, 1), targets[:, 1:].flatten(), ignore_index=IGNORED)
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it without annotations
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def warm_up(model: Any, tokenizer: Any, heldout: list[Problem], *, target: float, every: int) -> int:
    """Teach additions until the held-out accuracy lies within WINDOW above `target`; returns the number of steps.

    Raises:
        SystemExit: the target was not reached within MAX_STEPS.

    """
    rng = random.Random(SEED + 1)
    excluded = frozenset(p.prompt for p in heldout)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.01)
    for step in range(1, MAX_STEPS + 1):
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1.0, step / RAMP_STEPS)
        loss = _step(model, optimizer, *_batch(tokenizer, draw_distinct(rng, BATCH, exclude=excluded)))
        if step % every:
            continue
        measured = accuracy(model, tokenizer, heldout, samples=2, seed=SEED) if loss < MEASURED_LOSS else 0.0
        print(f"step {step:4d}  loss {loss:.3f}  held-out accuracy at temperature 1: {measured:.3f}", flush=True)
        if target <= measured <= target + WINDOW:
            return step
    raise SystemExit(
        f"accuracy must be measured between {target:g} and {target + WINDOW:g} within {MAX_STEPS} steps, it was not; "
        "try another --target or a smaller --every"
    )


def main() -> None:
    """Write the data, make the model, measure it, write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=HERE / "models" / "tiny-arithmetic")
    parser.add_argument("--data", type=Path, default=HERE / "data")
    parser.add_argument("--target", type=float, default=0.37, help="held-out accuracy at which to stop")
    parser.add_argument("--every", type=int, default=5, help="steps between measurements")
    args = parser.parse_args()
    started = time.process_time()

    heldout = draw_distinct(random.Random(SEED + 2), HELDOUT_ROWS)
    train = draw_distinct(random.Random(SEED + 3), TRAIN_ROWS, exclude={p.prompt for p in heldout})
    args.data.mkdir(parents=True, exist_ok=True)
    write_rows(args.data / "arithmetic_heldout.jsonl", heldout)
    write_rows(args.data / "arithmetic_train.jsonl", train)

    tokenizer = build_tokenizer()
    model = build_model(tokenizer, seed=SEED)
    steps = warm_up(model, tokenizer, heldout, target=args.target, every=args.every)
    sampled = accuracy(model, tokenizer, heldout, samples=8, seed=SEED + 4)
    greedy = accuracy(model, tokenizer, heldout, samples=1, seed=SEED, greedy=True)
    save(model, tokenizer, args.to)
    card = CARD.format(
        parameters=model.num_parameters(),
        steps=steps,
        batch=BATCH,
        learning_rate=LEARNING_RATE,
        seed=SEED,
        target=args.target,
        limit=args.target + WINDOW,
        heldout=HELDOUT_ROWS,
        sampled=sampled,
        greedy=greedy,
    )
    (args.to / "README.md").write_text(card, encoding="utf-8")
    seconds = time.process_time() - started
    print(f"temperature 1: {sampled:.3f}, greedy: {greedy:.3f}, {seconds:.0f} CPU-seconds; written to {args.to}")


if __name__ == "__main__":
    main()
