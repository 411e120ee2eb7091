"""Writes the table and the plot of a run."""

from __future__ import annotations

import json
from pathlib import Path

from state import State

COLUMNS = {
    "step": "{:.0f}",
    "reward": "{:.2f}",
    "turns": "{:.1f}",
    "trained_tokens": "{:.0f}",
    "tokens": "{:.0f}",
    "branches": "{:.2f}",
    "exact_prefix": "{:.3f}",
    "staleness_mean": "{:.2f}",
    "staleness_max": "{:.0f}",
    "logprob_diff_mean": "{:.1e}",
    "logprob_diff_max": "{:.1e}",
    "ids_differ": "{:.2f}",
    "never_sampled": "{:.4f}",
    "never_sampled_diff": "{:.1e}",
    "kl_start": "{:.4f}",
    "vllm_s": "{:.1f}",
    "agent_s": "{:.1f}",
    "verifier_s": "{:.1f}",
    "environment_s": "{:.1f}",
    "training_s": "{:.1f}",
    "hand_over_s": "{:.2f}",
    "wait_s": "{:.1f}",
    "wall_s": "{:.1f}",
}


def write(folder: Path, state: State) -> None:
    """Writes `table.md`, `table.jsonl`, `trials.json` (the outcome of each trial), `plot.png` and `plot.svg`."""
    rows = state.table
    trials = {"trained": state.trained, "left_out": state.left_out}
    (folder / "trials.json").write_text(json.dumps(trials, indent=1) + "\n")
    (folder / "table.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    # Only the control `retokenised` has some of the columns.
    columns = {name: form for name, form in COLUMNS.items() if any(name in row for row in rows)}
    lines = ["| " + " | ".join(columns) + " |", "|" + " ---: |" * len(columns)]
    for row in rows:
        lines.append("| " + " | ".join(form.format(row.get(name, float("nan"))) for name, form in columns.items()) + " |")
    (folder / "table.md").write_text("\n".join(lines) + "\n")
    plot(folder, {folder.name: rows})


def plot(folder: Path, runs: dict[str, list[dict[str, float]]]) -> None:
    """Plots reward, turns, difference of logprobs and divergence over the steps."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from PIL import Image

    figure, axes = pyplot.subplots(2, 2, figsize=(10, 6), sharex=True, layout="constrained")
    for axis, (name, title, scale) in zip(
        axes.flat,
        (
            ("reward", "mean reward", "linear"),
            ("turns", "turns per episode", "linear"),
            ("logprob_diff_max", "captured and recomputed logprobs: largest difference", "log"),
            ("kl_start", "KL from the policy at the start, nats per token", "linear"),
        ),
    ):
        for label, rows in runs.items():
            axis.plot([row["step"] for row in rows], [row[name] for row in rows], label=label, marker=".")
        axis.set_title(title, fontsize=10)
        axis.set_yscale(scale)
        axis.grid(alpha=0.3)
    # Below the panels the legend hides no curve.
    figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=8, fontsize=8)
    for axis in axes[1]:
        axis.set_xlabel("step")
    for kind in ("png", "svg"):
        figure.savefig(folder / f"plot.{kind}", dpi=110)
    pyplot.close(figure)
    # 64 colours reduce the PNG to about a quarter of its size, which is small enough to commit.
    with Image.open(folder / "plot.png") as image:
        reduced = image.convert("RGB").quantize(64, dither=Image.Dither.NONE)
    reduced.save(folder / "plot.png", optimize=True)
