"""Creates the model of most groups, whose weights produce fixed answers that end.

A random model never stops and closes no bracket, so most of vLLM's tests would fail early. In this
model attention and MLP output zero, so the last token alone determines the next token, by the weights
of embedding and head:

- the words of ANSWER follow each other, from the end of a chat prompt to the end of the turn
- any other word is followed by RAMBLING, which ends too
- after any other token, as under a grammar, tokens that close JSON are likelier than others

usage: python talking_model.py LONG_MODEL OUT_DIR      (needs torch and transformers)

LONG_MODEL is the testbed's model, with the tokenizer and chat template of Qwen3.
"""

from __future__ import annotations

import re
import shutil
import sys
from itertools import pairwise
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import Qwen2Config, Qwen2ForCausalLM

END = "<|im_end|>"
# The first token ends a chat prompt. No token occurs twice, since a token has one successor.
ANSWER = ["\n", "<think>", "Okay", "Ġlet", "Ġme", "Ġthink", "Ġabout", "Ġthis", "Ġstep", "Ġby", "Ġdegrees"]
# The answer has the words that the tests look for, as far as one answer can have them all.
ANSWER += ["</think>", "\n\n", "The", "Ġsum", "Ġequals", "Ġ", "3", "1", "2", "ĠMark", "ĠJohn"]
ANSWER += ["ĠQ", "ED", END]
RAMBLING = ["Ġand", "Ġso", "Ġit", "Ġgoes", "Ġon", "Ġfor", "Ġsome", "Ġtwenty", "Ġwords", "Ġor"]
RAMBLING += ["Ġmore", "Ġuntil", "Ġnobody", "Ġreads", "Ġthem", "Ġany", "Ġlonger", "Ġat", "Ġall", END]
# From likely to unlikely, for the choices that a grammar leaves open.
CLOSING = [END, '"}', '"]', '"', "}", "]", '",', '":', ",", ":", "{", '{"', "[", '["', 'Ġ"', "1"]
CLOSING += ["@", ".", "a", "true", "null"]
# A word has no JSON syntax, digit or white space. After tokens with these, CLOSING alone decides.
WORD = re.compile(r"Ġ?[^\]\[{}\",:0-9ĠĊĉč]+")

HIDDEN = 64
SEED = 0


def successors(tokenizer: Tokenizer) -> list[tuple[int, int]]:
    def ids(tokens: list[str]) -> list[int]:
        # The vocabulary has other characters for control characters: `Ċ` for a line feed.
        return [tokenizer.token_to_id(token.replace("\n", "Ċ")) for token in tokens]

    return [pair for chain in (ids(ANSWER), ids(RAMBLING)) for pair in pairwise(chain)]


def set_weights(model: Qwen2ForCausalLM, tokenizer: Tokenizer) -> None:
    embedding, head = model.model.embed_tokens.weight, model.lm_head.weight
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
    embedding.zero_()
    head.zero_()
    # All tokens share dimension 0, words share dimension 1, and each token with a successor of its
    # own has one more dimension.
    embedding[:, 0] = 1
    head[:, 0].normal_(std=0.02)
    for rank, token in enumerate(CLOSING):
        head[tokenizer.token_to_id(token), 0] = 2 - 0.1 * rank
    for token, token_id in tokenizer.get_vocab().items():
        if WORD.fullmatch(token):
            embedding[token_id, 1] = 3
    head[tokenizer.token_to_id(RAMBLING[0]), 1] = 5
    for dimension, (token, following) in enumerate(successors(tokenizer), start=2):
        embedding[token, 1] = 0
        embedding[token, dimension] = 3
        head[following, dimension] = 5


def main(long_model: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copyfile(long_model / name, out / name)
    tokenizer = Tokenizer.from_file(str(out / "tokenizer.json"))
    given = Qwen2Config.from_pretrained(long_model)
    config = Qwen2Config(
        vocab_size=given.vocab_size,
        hidden_size=HIDDEN,
        intermediate_size=HIDDEN,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=given.max_position_embeddings,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=given.eos_token_id,
        pad_token_id=given.pad_token_id,
    )
    torch.manual_seed(SEED)
    model = Qwen2ForCausalLM(config)
    with torch.no_grad():
        set_weights(model, tokenizer)
    model.save_pretrained(out)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
