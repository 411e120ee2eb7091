"""Trains a model with TRL's GRPO at a Harbor task in a terminal.

The model types with tool calls, so its chat template must support tools.

python trl_terminal.py --model Qwen/Qwen3-0.6B --task-dir ../../examples/tasks/hello-file --output runs/trl
"""

import argparse

from datasets import Dataset
from transformers import AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from rolltap.env import serve
from rolltap.trainers.trl_terminal import environment_factory

parser = argparse.ArgumentParser()
parser.add_argument("--model", required=True)
parser.add_argument("--chat-template", help="a file with another one than the model's own")
parser.add_argument("--task-dir", required=True)
parser.add_argument("--env", choices=["docker", "local"], default="docker")
parser.add_argument("--output", required=True)
parser.add_argument("--max-steps", type=int, default=100)
parser.add_argument("--num-generations", type=int, default=8)
parser.add_argument("--learning-rate", type=float, default=1e-6)
parser.add_argument("--use-cpu", action="store_true")
flags = parser.parse_args()

tokenizer = AutoTokenizer.from_pretrained(flags.model)
if flags.chat_template is not None:
    with open(flags.chat_template) as file:
        tokenizer.chat_template = file.read()

# The environment appends the task and the screen of the terminal to this prompt.
row = {
    "prompt": [{"role": "user", "content": "Solve this task at the terminal.\n\n"}],
    "task_dir": flags.task_dir,
}

with serve(["-e", flags.env]) as server:
    trainer = GRPOTrainer(
        model=flags.model,
        processing_class=tokenizer,
        # There are no reward functions: the environment returns the reward of the task's verifier.
        environment_factory=environment_factory(server, environment=flags.env),
        train_dataset=Dataset.from_list([row] * flags.num_generations),
        args=GRPOConfig(
            flags.output,
            max_steps=flags.max_steps,
            num_generations=flags.num_generations,
            per_device_train_batch_size=flags.num_generations,
            learning_rate=flags.learning_rate,
            max_completion_length=4096,
            max_tool_calling_iterations=20,
            logging_steps=1,
            use_cpu=flags.use_cpu,
            bf16=not flags.use_cpu,
            report_to=[],
        ),
    )
    trainer.train()
