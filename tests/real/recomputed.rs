//! The logprobs of rollouts are the model's for exactly these tokens. A forward pass outside of vLLM computes the same
//! ones, but different ones for slightly wrong sequences, masks or logprobs. So does vLLM itself for
//! `rolltap check --recompute`.

use std::io::Write as _;

use futures_util::future::join_all;
use rolltap_proxy::History;
use rolltap_rollout::row::RolloutRow;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::clients::printed;
use crate::conversation::{Conversation, Echo, Manner, Wire};
use crate::harness::{Stage, testbed, vllm};
use crate::recompute_check::vllm_finds_its_own_logprobs;

/// Ten times the largest measured difference (3.1e-5) between two implementations of the same sums in 32 bits.
const TOLERANCE: f64 = 3e-4;
const TURNS: usize = 5;

#[tokio::test]
#[ignore = "needs vLLM and Python: run ./scripts/test"]
async fn a_forward_pass_over_each_branch_finds_the_captured_logprobs() {
    let stage = Stage::with_tokenizer(vllm(), testbed("ROLLTAP_TESTBED_MODEL")).await;
    let mut talks = Vec::new();
    for wire in [Wire::Chat, Wire::Messages] {
        for stream in [false, true] {
            for tools in [false, true] {
                for thinking in [false, true] {
                    let manner = Manner { wire, stream, echo: Echo::Whole, tools };
                    // Half of the conversations preserve every token in one long sequence.
                    let history = if tools == stream { History::Sampled } else { History::Faithful };
                    talks.push(converse(&stage, manner, thinking, history));
                }
            }
        }
    }
    let rows: Vec<RolloutRow> = join_all(talks).await.into_iter().flatten().collect();
    let distinct: usize = rows.iter().map(|row| row.loss_mask.iter().filter(|&&bit| bit == 1).count()).sum();

    let seen = recomputed(&rows).await;
    let spliced: usize = rows.iter().map(|row| row.calls.len() - 1).sum();
    println!(
        "{} branches, {spliced} answers spliced into them, {distinct} distinct sampled tokens",
        rows.len()
    );
    for (name, figures) in seen.as_object().unwrap() {
        let (tokens, apart) = (&figures["tokens"], &figures["apart"]);
        let (median, largest) = (figures["median"].as_f64().unwrap(), figures["largest"].as_f64().unwrap());
        println!(
            "{name:<12} {tokens:>6} tokens, {apart:>6} apart by more than 1e-3, median {median:.1e}, largest {largest:.1e}"
        );
    }
    assert!(spliced >= 5 * TURNS, "only {spliced} answers have others after them");
    assert!(distinct >= 5000, "{distinct} tokens are too few for a result");
    let largest = |of: &str| seen[of]["largest"].as_f64().unwrap();
    assert!(largest("same") <= TOLERANCE);
    // Each control fails the check by a large factor, while the rows pass.
    for control in ["shifted", "mask_early", "retokenised"] {
        assert!(largest(control) > 1000.0 * TOLERANCE, "{control} passes");
    }
    for control in ["shifted", "retokenised"] {
        let median = seen[control]["median"].as_f64().unwrap();
        assert!(median > 10.0 * TOLERANCE, "most tokens of {control} pass");
    }
    vllm_finds_its_own_logprobs(&rows, &stage.vllm, TOLERANCE);
}

/// Holds a conversation and returns its branches.
async fn converse(stage: &Stage, manner: Manner, thinking: bool, history: History) -> Vec<RolloutRow> {
    let trial = stage.open_with(history).await;
    let mut talk = Conversation::new(stage, &trial, "tiny", manner, "Answer.");
    let free = json!({"temperature": 1, "top_p": 1, "max_tokens": 80, "chat_template_kwargs": {"enable_thinking": thinking}});
    for turn in 0..TURNS {
        let mut asked = free.clone();
        if manner.tools && turn == 1 {
            asked["structured_outputs"] = json!({"regex": CALL});
            asked["chat_template_kwargs"] = json!({"enable_thinking": false});
        }
        talk.add_user_message(&format!("Question {turn}: and then? déjà vu, 日本"));
        let answer = talk.ask(&asked).await;
        if !answer.calls.is_empty() {
            talk.results(&answer.calls, "Blue, as far as the eye can see.");
            talk.ask(&free).await;
        }
    }
    stage.rollout(&trial).await
}

/// A call in the form that vLLM's parser reads.
const CALL: &str = r#"<tool_call>\n\{"name": "look", "arguments": \{"at": "(sky|sea)"\}\}\n</tool_call>"#;

async fn recomputed(rows: &[RolloutRow]) -> Value {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    for row in rows {
        writeln!(file, "{}", serde_json::to_string(row).unwrap()).unwrap();
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/real/recompute.py");
    let mut python = Command::new(testbed("ROLLTAP_TESTBED_PYTHON"));
    let python = python.arg(script).arg(testbed("ROLLTAP_TESTBED_MODEL")).arg(file.path());
    // With other tests on the same cores, threads that compute a small sum together wait for each other.
    python.env("OMP_NUM_THREADS", "1");
    printed(&python.env("HF_HUB_OFFLINE", "1").kill_on_drop(true).output().await.unwrap())
}
