"""The edge to transformers: a chat becomes token ids, once, here. Token ids travel from then on."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pacs.errors import BadInput

__all__ = ["ChatTokenizer"]


class ChatTokenizer:
    """The model's own tokenizer and chat template.

    Raises:
        BadInput: the model's folder holds no tokenizer that can be read.

    """

    def __init__(self, model_path: Path) -> None:
        from transformers import AutoTokenizer

        try:
            self._tokenizer = AutoTokenizer.from_pretrained(str(model_path), local_files_only=True)
        except (OSError, ValueError) as error:
            raise BadInput(f"the model's folder must hold a tokenizer, got {model_path}: {error}") from error

    @property
    def has_chat_template(self) -> bool:
        """Whether the tokenizer says how a chat is laid out."""
        return bool(self._tokenizer.chat_template)

    @property
    def eos_token(self) -> str | None:
        """The token that ends a text, or None."""
        token: str | None = self._tokenizer.eos_token
        return token

    def __call__(self, messages: Sequence[Mapping[str, str]]) -> NDArray[np.int32]:
        """Token ids of the chat, ready for the model's turn: int32 [tokens]. Without a chat template: the bare text."""
        if self._tokenizer.chat_template:
            chat = [dict(message) for message in messages]
            text = self._tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
            ids = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        else:
            ids = self._tokenizer(messages[-1]["content"])["input_ids"]
        return np.asarray(ids, dtype=np.int32)
