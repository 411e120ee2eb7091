"""The small model: its tokenizer, its chat template, and weights that know nothing yet."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

VOCABULARY = 1024
CONTEXT = 4096
END_OF_TEXT, START_OF_TURN, END_OF_TURN = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL = [END_OF_TEXT, START_OF_TURN, END_OF_TURN]

# A word with the blank before it, one digit, signs, white space: a token never reaches over two of these.
PIECES = r" ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\n' }}"
    # White space between the text and a call is not part of the text: the parser of vLLM leaves it there.
    "{%- if message.tool_calls %}{{- (message.content or '') | trim }}{%- else %}{{- message.content or '' }}{%- endif %}"
    "{%- for call in message.tool_calls or [] %}"
    "{{- '\n<tool_call>\n' + ({'name': call.function.name, 'arguments': call.function.arguments} | tojson) + '\n</tool_call>' }}"
    "{%- endfor %}"
    "{{- '<|im_end|>\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)


def make_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer with the words of these texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(SPECIAL),
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens(SPECIAL)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END_OF_TURN,
        pad_token=END_OF_TEXT,
        clean_up_tokenization_spaces=False,
        model_max_length=CONTEXT,
    )
    wrapped.chat_template = TEMPLATE
    return wrapped


def render(tokenizer: Any, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = False) -> str:
    """The text of a conversation, by the chat template."""
    shown = [{**one, "tool_calls": [_with_object(call) for call in one.get("tool_calls") or []]} for one in messages]
    # transformers takes an empty list for one without a first conversation.
    if not shown:
        return ""
    text: str = tokenizer.apply_chat_template(shown, tokenize=False, add_generation_prompt=add_generation_prompt)
    return text


def body(message: Mapping[str, Any]) -> str:
    """The text of one message without its role and its end, as the chat template shows it."""
    calls = [_with_object(call)["function"] for call in message.get("tool_calls") or []]
    text = message.get("content") or ""
    shown = [json.dumps({"name": one["name"], "arguments": one["arguments"]}, ensure_ascii=False) for one in calls]
    return (text.strip() if calls else text) + "".join(f"\n<tool_call>\n{one}\n</tool_call>" for one in shown)


def _with_object(call: Mapping[str, Any]) -> dict[str, Any]:
    """The call with its arguments as an object, as vLLM gives them to the template."""
    function = call["function"]
    arguments = function["arguments"]
    return {**call, "function": {**function, "arguments": json.loads(arguments) if isinstance(arguments, str) else arguments}}


def make_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen2ForCausalLM:
    """Less than a million random weights, of an architecture that vLLM serves."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen2ForCausalLM(config).float()


def save(model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Writes what vLLM and transformers load."""
    config = copy.deepcopy(model.config)
    config.architectures, config.tie_word_embeddings = [type(model).__name__], False
    config.save_pretrained(folder)
    save_weights(model.named_parameters(), folder)
    tokenizer.save_pretrained(folder)
    generation = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "do_sample": True}
    (folder / "generation_config.json").write_text(json.dumps(generation) + "\n")


def save_weights(weights: Iterable[tuple[str, torch.Tensor]], folder: Path) -> None:
    """Writes the weights alone, in the place of those that are there.

    A head that shares the embedding's weights gets a copy of them: vLLM, when it loads weights again, leaves a shared head
    at the old ones ("ParallelLMHead: Failed to load weights" in its log), and samples from a mixture of two policies.
    """
    named = {name: value.detach().contiguous() for name, value in weights}
    named.setdefault("lm_head.weight", named["model.embed_tokens.weight"].clone())
    aside = folder / "model.safetensors.new"
    save_file(named, aside, metadata={"format": "pt"})
    aside.replace(folder / "model.safetensors")
