"""Makes the model that the tests sample from: small, random, and real to vLLM.

A Qwen2 of 0.6 million random weights with a byte-level BPE tokenizer of 4096
tokens and a ChatML template with tools and reasoning. It answers gibberish at
full speed on a CPU; a test that needs a meaningful answer forces one by
structured output. The same package versions give the same files.

usage: python tiny_model.py OUT_DIR      (needs torch and transformers)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

VOCABULARY = 4096
MAX_LENGTH = 4096
HIDDEN = 64
LAYERS = 2
SEED = 0
# At the usual 0.02 the next token is all but uniform. This makes some tokens
# clearly likelier than others, so that greedy and sampled answers differ.
WEIGHT_SPREAD = 0.2

END_OF_TEXT = "<|endoftext|>"
START_OF_TURN = "<|im_start|>"
END_OF_TURN = "<|im_end|>"
SPECIAL = [END_OF_TEXT, START_OF_TURN, END_OF_TURN]
# Single tokens, but not special: they stay visible in the decoded answer, where
# vLLM's tool and reasoning parsers look for them (as in Qwen's own tokenizers).
MARKERS = [
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
]

# How Qwen2 cuts text into pieces before merging.
PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

TEMPLATE = r"""
{%- macro turn(role, text) -%}
    {{- '<|im_start|>' + role + '\n' + text + '<|im_end|>\n' }}
{%- endmacro -%}
{%- macro call(function) -%}
    {{- '<tool_call>\n{"name": "' + function.name + '", "arguments": ' }}
    {{- function.arguments if function.arguments is string else function.arguments | tojson }}
    {{- '}\n</tool_call>' }}
{%- endmacro -%}
{%- set first = messages[0].content if messages[0].role == 'system' else '' -%}
{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if first %}{{- first + '\n\n' }}{%- endif %}
    {{- '# Tools\n\nThese functions may be called:\n<tools>' }}
    {%- for tool in tools %}{{- '\n' }}{{- tool | tojson }}{%- endfor %}
    {{- '\n</tools>\n\nA call is JSON between tags:\n<tool_call>\n{"name": <name>, "arguments": <object>}\n</tool_call><|im_end|>\n' }}
{%- elif messages[0].role == 'system' %}
    {{- turn('system', first) }}
{%- endif %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- turn(message.role, content) }}
    {%- elif message.role == 'assistant' %}
        {%- set reasoning = message.reasoning or message.reasoning_content %}
        {{- '<|im_start|>assistant\n' }}
        {%- if reasoning is string and reasoning %}
            {{- '<think>\n' + reasoning.strip('\n') + '\n</think>\n\n' }}
        {%- endif %}
        {{- content }}
        {%- for tool_call in message.tool_calls or [] %}
            {%- if content or not loop.first %}{{- '\n' }}{%- endif %}
            {{- call(tool_call.function or tool_call) }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' + content + '\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}
""".strip()


def train_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    # Text that is at hand wherever this runs, and pinned with the package: the
    # standard library would give each Python version a vocabulary of its own.
    corpus = sorted(Path(transformers.__file__).parent.glob("*.py"))
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(SPECIAL) - len(MARKERS),
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train([str(path) for path in corpus], trainer)
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.add_tokens(MARKERS)
    if tokenizer.get_vocab_size() != VOCABULARY:
        sys.exit(
            f"tiny_model: the tokenizer has {tokenizer.get_vocab_size()} tokens, not {VOCABULARY}"
        )
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, out: Path) -> None:
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END_OF_TURN,
        pad_token=END_OF_TEXT,
        additional_special_tokens=[START_OF_TURN, END_OF_TURN],
        clean_up_tokenization_spaces=False,
        model_max_length=MAX_LENGTH,
    )
    wrapped.chat_template = TEMPLATE
    wrapped.save_pretrained(out)


def save_model(tokenizer: Tokenizer, out: Path) -> None:
    end_of_turn, end_of_text = (
        tokenizer.token_to_id(END_OF_TURN),
        tokenizer.token_to_id(END_OF_TEXT),
    )
    torch.manual_seed(SEED)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=MAX_LENGTH,
        tie_word_embeddings=False,
        initializer_range=WEIGHT_SPREAD,
        bos_token_id=None,
        eos_token_id=end_of_turn,
        pad_token_id=end_of_text,
    )
    Qwen2ForCausalLM(config).save_pretrained(out)
    generation = {
        "eos_token_id": [end_of_turn, end_of_text],
        "pad_token_id": end_of_text,
        "do_sample": True,
    }
    (out / "generation_config.json").write_text(json.dumps(generation) + "\n")


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer()
    save_tokenizer(tokenizer, out)
    save_model(tokenizer, out)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
