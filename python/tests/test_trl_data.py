"""Loads the exports `messages`, `labels` and `preference` with TRL's own preparation of data sets, and trains a step."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from accelerate import PartialState
from conversations import TOOLS, Conversations
from datasets import load_dataset
from transformers import AutoTokenizer
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

from rolltap import read_lines

PartialState(cpu=True)
MODEL = os.environ.get("ROLLTAP_TESTBED_MODEL", "")


@pytest.fixture(autouse=True)
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces a query of streams, on which the testbed's stubs of CUDA's libraries fail."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(MODEL)


def loaded(path: Path, folder: Path):
    """Loads a file as users of TRL do."""
    return load_dataset("json", data_files=str(path), split="train", cache_dir=str(folder / "cache"))


def settings(folder: Path) -> dict:
    return {
        "output_dir": str(folder),
        "max_steps": 1,
        "max_length": None,
        "per_device_train_batch_size": 2,
        "learning_rate": 1e-3,
        "use_cpu": True,
        "bf16": False,
        "report_to": [],
        "save_strategy": "no",
    }


def trains(trainer) -> None:
    """Makes a step and compares the weights."""
    before = trainer.model.lm_head.weight.detach().clone()
    trainer.train()
    assert (trainer.model.lm_head.weight - before).abs().max() > 0


def sft(path: Path, tokenizer, tmp_path: Path) -> SFTTrainer:
    """Returns TRL's trainer with an export as its dataset, which it has prepared."""
    return SFTTrainer(
        model=MODEL,
        args=SFTConfig(**settings(tmp_path), packing=False),
        train_dataset=loaded(path, tmp_path),
        processing_class=tokenizer,
    )


def test_sft_trains_conversations(conversations: Conversations, tokenizer, tmp_path: Path) -> None:
    path = conversations.path("messages")
    lines = list(read_lines(path))
    assert len(lines) == 4
    trainer = sft(path, tokenizer, tmp_path)
    for line, prepared in zip(lines, trainer.train_dataset, strict=True):
        roles = [message["role"] for message in line["messages"]]
        assert roles == ["system", "user", "assistant", "tool", "tool", "assistant", "user", "assistant"]
        arguments = [call["function"]["arguments"] for call in line["messages"][2]["tool_calls"]]
        assert arguments == [{"command": "ls"}, {"command": "cat notes", "timeout": 3}]
        assert line["tools"] == TOOLS
        rendered = tokenizer.apply_chat_template(line["messages"], tools=line["tools"], return_dict=False)
        assert prepared["input_ids"] == rendered, "loading adds and removes nothing"
        assert "null" not in tokenizer.decode(prepared["input_ids"])
    trains(trainer)


def test_sft_trains_the_labels_as_they_are(conversations: Conversations, tokenizer, tmp_path: Path) -> None:
    path = conversations.path("labels", "--min-reward", "1")
    lines = list(read_lines(path))
    assert len(lines) == 2 and all(line["reward"] == 1.0 for line in lines)
    trainer = sft(path, tokenizer, tmp_path)
    for line, prepared in zip(lines, trainer.train_dataset, strict=True):
        assert (prepared["input_ids"], prepared["labels"]) == (line["input_ids"], line["labels"])
        assert line["attention_mask"] == [1] * len(line["input_ids"])
        trained = [label for label in line["labels"] if label != -100]
        assert 0 < len(trained) < len(line["labels"]) and line["labels"][-1] != -100
    batch = trainer.data_collator([trainer.train_dataset[index] for index in range(2)])
    sampled = sum(label != -100 for line in lines for label in line["labels"])
    assert (batch["labels"] != -100).sum().item() == sampled
    trains(trainer)


def test_dpo_compares_the_best_with_the_worst(conversations: Conversations, tokenizer, tmp_path: Path) -> None:
    path = conversations.path("preference")
    lines = list(read_lines(path))
    assert len(lines) == 2
    trainer = DPOTrainer(
        model=MODEL,
        args=DPOConfig(**settings(tmp_path)),
        train_dataset=loaded(path, tmp_path),
        processing_class=tokenizer,
    )
    for line, prepared in zip(lines, trainer.train_dataset, strict=True):
        assert (line["score_chosen"], line["score_rejected"]) == (1.0, 0.0)
        assert [message["role"] for message in line["prompt"]] == ["system", "user", "assistant", "tool", "tool"]
        for side in ("chosen", "rejected"):
            assert [message["role"] for message in line[side]] == ["assistant", "user", "assistant"]
            messages = [*line["prompt"], *line[side]]
            whole = tokenizer.apply_chat_template(messages, tools=line["tools"], return_dict=False)
            assert prepared["prompt_ids"] + prepared[f"{side}_ids"] == whole
        assert prepared["chosen_ids"] != prepared["rejected_ids"]
    trains(trainer)
