//! The whole path on real parts: the terminal agent in Docker containers, a real vLLM, a verifier, rollouts.

use std::collections::{BTreeMap, BTreeSet};

use rolltap_rollout::row::RolloutRow;
use serde_json::Value;

use crate::program::{Job, check, text};
use crate::recording_upstream::Witness;

/// The terminal agent accepts a random model's answer under this pattern. Whether it solves the tasks is left to
/// chance.
pub(crate) const PATTERN: &str = concat!(
    r#"\{"analysis": "[a-z]{1,9}", "plan": "[a-z]{1,9}", "commands": \[\{"keystrokes": "#,
    r#""echo 'Hello, (world|there)!' > /app/hello\.txt; echo (3|4) > /app/answer\.txt\\n", "#,
    r#""duration": 0\.5\}\], "task_complete": true\}"#
);

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs vLLM and Docker: run ./scripts/test"]
async fn a_real_model_solves_real_tasks_in_docker_and_every_token_is_what_vllm_reported() {
    let (witness, address) = Witness::start().await;
    let job = Job::new("real");
    let sampling = serde_json::json!({
        "structured_outputs": {"regex": PATTERN},
        "chat_template_kwargs": {"enable_thinking": false},
        "max_tokens": 200,
        "temperature": 1,
    });
    let manifest = env!("CARGO_MANIFEST_DIR");
    let mut command = job.command(&[
        "-p",
        &format!("{manifest}/examples/tasks/count-errors"),
        "-p",
        &format!("{manifest}/tests/tasks/hello-prebuilt"),
        "-a",
        "terminal",
        "-e",
        "docker",
        "-k",
        "4",
        "-n",
        "4",
        "--upstream",
        &format!("http://{address}/v1"),
        "--sampling",
        &sampling.to_string(),
    ]);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let said = format!("{}\n{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}");

    let (rows, answers) = (job.rows(), witness.answers());
    let trials: BTreeSet<_> = rows.iter().map(|row| &row.trial_id).collect();
    assert_eq!(trials.len(), 8, "{said}");
    // One call before the job checks that the server reports token ids. It belongs to no rollout.
    assert_eq!(spans(&rows).count() + 1, answers.len(), "every answer of vLLM is in the rollouts");
    for (row, start, end) in spans(&rows) {
        let answer = answer_of(&answers, &row.token_ids[..start], &row.token_ids[start..end]);
        let logprobs = answer["choices"][0]["logprobs"]["content"].as_array().unwrap().iter();
        let logprobs: Vec<_> = logprobs.map(|entry| entry["logprob"].as_f64().unwrap() as f32).collect();
        assert_eq!(row.logprobs[start..end], logprobs);
        assert!(row.loss_mask[start..end].iter().all(|&bit| bit == 1));
    }
    for (trial, reward) in rewards(&rows) {
        let last = last_answer(&rows, trial, &answers);
        let expected = if rows.iter().any(|row| row.trial_id == trial && row.task_id.contains("hello")) {
            last.contains("world")
        } else {
            last.contains("echo 3")
        };
        assert_eq!(reward, Some(f64::from(u8::from(expected))), "{trial}: {last}");
    }
    for path in [job.dir(), job.dir().join("rollouts.parquet"), job.dir().join("data")] {
        let checked = check(&path);
        assert!(
            checked.status.success(),
            "{}: {}{}",
            path.display(),
            text(&checked.stdout),
            text(&checked.stderr)
        );
    }
    assert_eq!(job.left_in_docker(), Vec::<String>::new());
}

/// Returns each call once with its row. A call that several branches share is in each of their rows.
fn spans(rows: &[RolloutRow]) -> impl Iterator<Item = (&RolloutRow, usize, usize)> {
    let mut seen = BTreeSet::new();
    let all = rows.iter().flat_map(|row| row.calls.iter().map(move |span| (row, span)));
    all.filter(move |(_, span)| seen.insert(&span.call_id))
        .map(|(row, span)| (row, span.start as usize, span.end as usize))
}

/// Returns vLLM's answer to this prompt with these tokens.
fn answer_of<'a>(answers: &'a [Value], prompt: &[i32], sampled: &[i32]) -> &'a Value {
    let is = |json: &Value, ids: &[i32]| {
        json.as_array()
            .is_some_and(|json| json.iter().map(Value::as_i64).eq(ids.iter().map(|&id| Some(i64::from(id)))))
    };
    let found = answers.iter().find(|answer| {
        is(&answer["prompt_token_ids"], prompt) && is(&answer["choices"][0]["token_ids"], sampled)
    });
    found.expect("vLLM gave no answer of these tokens")
}

fn rewards(rows: &[RolloutRow]) -> BTreeMap<&str, Option<f64>> {
    rows.iter().map(|row| (row.trial_id.as_str(), row.reward)).collect()
}

/// Returns the text of the trial's last answer, whose commands run last.
fn last_answer(rows: &[RolloutRow], trial: &str, answers: &[Value]) -> String {
    let of_trial = rows.iter().filter(|row| row.trial_id == trial);
    let (row, span) = of_trial
        .flat_map(|row| row.calls.iter().map(move |span| (row, span)))
        .max_by_key(|(_, span)| span.sampled_at)
        .unwrap();
    let (start, end) = (span.start as usize, span.end as usize);
    let answer = answer_of(answers, &row.token_ids[..start], &row.token_ids[start..end]);
    answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
}
