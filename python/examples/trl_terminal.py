"""GRPO of TRL at a Harbor task in a terminal; the model types with tools.

`python trl_terminal.py MODEL TASK_DIR OUTPUT_DIR [STEPS] [docker|local]`. The model's chat template has to know tools.
"""

import sys

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from rolltap.env import serve
from rolltap.trainers.trl_terminal import environment_factory

model, task_dir, output = sys.argv[1:4]
steps = int(sys.argv[4]) if len(sys.argv) > 4 else 100
environment = sys.argv[5] if len(sys.argv) > 5 else "docker"

row = {"prompt": [{"role": "user", "content": "Solve this task at the terminal.\n\n"}], "task_dir": task_dir}

with serve(["-e", environment]) as server:
    trainer = GRPOTrainer(
        model=model,
        # The environment's own reward is the only one: that of the task's verifier.
        environment_factory=environment_factory(server, environment=environment),
        train_dataset=Dataset.from_list([row] * 4),
        args=GRPOConfig(
            output,
            max_steps=steps,
            num_generations=2,
            per_device_train_batch_size=2,
            max_completion_length=512,
            max_tool_calling_iterations=20,
            report_to=[],
        ),
    )
    trainer.train()
