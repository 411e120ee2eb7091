//! examples/learn in the trainers' own loops: vLLM, the service, the terminal agent and a trainer, for a step or two
//! each.

use std::path::Path;

use rolltap_testing::sample;
use serde_json::Value;

use crate::learn::{taught, training};
use crate::trainers::succeeds;

/// A hundred times the error of float32.
const TOLERANCE: f64 = 1e-3;

#[tokio::test]
#[ignore = "needs vLLM, the trainers' packages and a taught model: run ./scripts/test"]
async fn trainers_of_others_step_on_what_was_captured() {
    // TRL counts from 1, because it transfers the weights once before the first step.
    for (trainer, first) in [("tinker", 0), ("trl", 1)] {
        let folder = tempfile::tempdir().unwrap();
        let count = sample(1, 2);
        let steps = steps(trainer, count, folder.path()).await;
        assert_eq!(steps.len(), count, "{trainer}: {steps:?}");
        for (number, step) in (0_u64..).zip(&steps) {
            assert_eq!(step["step"], number, "{trainer}");
            assert_eq!(step["trials"], 8.0, "{trainer}: {step}");
            assert!(step["trained_tokens"].as_f64().unwrap() > 0.0, "{trainer}: {step}");
            // Each batch has the version of the weights that sampled it, and these weights recompute its logprobs.
            let versions = step["versions"].as_array().unwrap();
            assert_eq!(*versions.last().unwrap(), first + number, "{trainer}: {step}");
            assert!(step["logprob_diff_max"].as_f64().unwrap() < TOLERANCE, "{trainer}: {step}");
        }
    }
}

/// Runs the trainer on groups of four, in directories of this machine. Returns its report of each step.
async fn steps(trainer: &str, count: usize, out: &Path) -> Vec<Value> {
    let mut training = training(&format!("with_{trainer}.py"), "2", out);
    training.args(["--taught", &taught(), "--steps", &count.to_string()]);
    succeeds(training.into()).await;
    let said = std::fs::read_to_string(out.join("steps.jsonl")).unwrap();
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
