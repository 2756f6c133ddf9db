"""A Qwen3 of 0.8 M parameters over bytes: its tokenizer, its weights, its accuracy, its directory."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch  # noqa: TID253 - the edge file of the examples for both libraries
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (  # noqa: TID253
    GenerationConfig,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from tiny.addition import Problem, is_correct

__all__ = ["accuracy", "build_model", "build_tokenizer", "render", "save"]

PAD, USER, ASSISTANT, END = SPECIAL_TOKENS = ("<|pad|>", "<|user|>", "<|assistant|>", "<|end|>")
CONTEXT_TOKENS = 512
RESPONSE_TOKENS = 64
"""The longest worked solution with its end token has 44."""

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.role == 'user' %}<|user|>{{ message.content }}"
    "{% elif message.role == 'assistant' %}<|assistant|>{{ message.content }}<|end|>{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def build_tokenizer() -> Any:
    """Build the tokenizer: four special tokens and the 256 bytes, no merges."""
    symbols = [*SPECIAL_TOKENS, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE(vocab={symbol: i for i, symbol in enumerate(symbols)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        padding_side="left",
        model_max_length=CONTEXT_TOKENS,
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    )


def build_model(tokenizer: Any, *, seed: int) -> Any:
    """Build the model with random weights, float32."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=CONTEXT_TOKENS,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen3ForCausalLM(config)
    # Plain sampling: the trainer's log-probabilities are those of the unmodified distribution.
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
    )
    return model


def render(prompt: str) -> str:
    """Put a prompt into the chat template, up to where the model answers."""
    return f"{USER}{prompt}{ASSISTANT}"


@torch.no_grad()
def accuracy(
    model: Any, tokenizer: Any, problems: Sequence[Problem], *, samples: int, seed: int, greedy: bool = False
) -> float:
    """Measure the share of correct completions over `samples` completions a problem, at temperature 1 or greedily."""
    torch.manual_seed(seed)
    encoded = tokenizer([render(p.prompt) for p in problems for _ in range(samples)], return_tensors="pt", padding=True)
    model.eval()
    ids = model.generate(
        input_ids=encoded.input_ids,
        attention_mask=encoded.attention_mask,
        max_new_tokens=RESPONSE_TOKENS,
        do_sample=not greedy,
    )
    completions = tokenizer.batch_decode(ids[:, encoded.input_ids.shape[1] :], skip_special_tokens=True)
    correct = sum(is_correct(text, problems[i // samples].answer) for i, text in enumerate(completions))
    return correct / len(completions)


def save(model: Any, tokenizer: Any, to: Path) -> None:
    """Write a Hugging Face directory that transformers 4 and 5 and vLLM read."""
    model.save_pretrained(to)
    tokenizer.save_pretrained(to, save_jinja_files=False)
    # transformers 5 names a class here that version 4 does not have; both know this one.
    path = to / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
