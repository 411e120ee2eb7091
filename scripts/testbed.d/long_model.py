"""Makes the model that the tests give long prompts: one random layer under a real tokenizer.

A Qwen2 of 5 million random weights with the tokenizer and chat template of Qwen3,
so that a prompt of 40 000 tokens is tokenised as in earnest and prefilled on a CPU
in seconds. Its answers are noise. The same package versions give the same files.

usage: python long_model.py TOKENIZER OUT_DIR

TOKENIZER is a folder that holds tokenizer.json and tokenizer_config.json.
Needs torch and transformers.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

VOCABULARY = 151_936  # of every Qwen3: its tokenizer's ids, rounded up
MAX_LENGTH = 65_536
HIDDEN = 32
SEED = 0
WEIGHT_SPREAD = 0.2  # as in the tiny model: some tokens clearly likelier than others
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


def copy_tokenizer(tokenizer: Path, out: Path) -> None:
    for name in TOKENIZER_FILES:
        shutil.copyfile(tokenizer / name, out / name)


def end_of_turn_id(out: Path) -> int:
    tokenizer = json.loads((out / "tokenizer.json").read_text())
    ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    return ids["<|im_end|>"]


def save_model(end_of_turn: int, out: Path) -> None:
    torch.manual_seed(SEED)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=1,
        num_attention_heads=1,  # vLLM on a CPU takes no head smaller than 32
        num_key_value_heads=1,
        max_position_embeddings=MAX_LENGTH,
        tie_word_embeddings=True,
        initializer_range=WEIGHT_SPREAD,
        bos_token_id=None,
        eos_token_id=end_of_turn,
        pad_token_id=None,
    )
    Qwen2ForCausalLM(config).save_pretrained(out)


def main(tokenizer: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    copy_tokenizer(tokenizer, out)
    save_model(end_of_turn_id(out), out)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
