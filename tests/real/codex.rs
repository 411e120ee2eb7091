//! Codex, unmodified, on the Responses dialect.

use std::path::Path;

use rolltap_proxy::api::TrialOpened;
use rolltap_rollout::call::{Call, CallStatus, Dialect};
use rolltap_rollout::token_list::TokenList;
use rolltap_sim as sim;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::harness::{Stage, assert_one_branch, long_vllm, testbed, vllm};

/// Writes a file, reads it twice at once, and reports its content, unless the connection breaks or the server is busy.
const SCRIPT: &str = r#"
[[conversation]]
[[conversation.turn]]
[[conversation.turn.answer]]
reasoning = "A file is wanted."
content = "I write it."
tool_calls = [{ name = "exec_command", arguments = { cmd = "echo hello > hello.txt" } }]

[[conversation.turn]]
[[conversation.turn.answer]]
reasoning = "Two looks at once."
tool_calls = [{ name = "exec_command", arguments = { cmd = "cat hello.txt" } }, { name = "exec_command", arguments = { cmd = "ls" } }]

[[conversation.turn]]
[[conversation.turn.answer]]
content = "This breaks off."
break_after = 2
[[conversation.turn.answer]]
error = { status = 503, message = "overloaded" }
[[conversation.turn.answer]]
content = "The file says hello."
"#;
/// With this seed the simulator is busy first, then breaks off, then answers.
const SEED: u64 = 5;

/// The outcome of a run of Codex.
struct Run {
    succeeded: bool,
    said: String,
    log: String,
    work: TempDir,
}

/// Runs Codex as the trial's agent, in a home and a folder of its own.
async fn codex(trial: &TrialOpened, model: &str, task: &str) -> Run {
    let (home, work) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    configure(home.path(), &trial.base_urls.openai, model);
    let mut command = Command::new(testbed("ROLLTAP_TESTBED_CODEX"));
    command
        .args(["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", task])
        .current_dir(work.path())
        .env("HOME", home.path())
        .env("KEY", "dummy")
        .env("RUST_LOG", "warn")
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true);
    let output = command.output().await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, log) = (text(&output.stdout), text(&output.stderr));
    Run { succeeded: output.status.success(), said, log, work }
}

fn configure(home: &Path, base_url: &str, model: &str) {
    let config = format!(
        "model = {model:?}\nmodel_provider = \"rolltap\"\n[model_providers.rolltap]\nname = \"rolltap\"\nbase_url = {base_url:?}\n\
         wire_api = \"responses\"\nenv_key = \"KEY\"\nrequest_max_retries = 20\nstream_max_retries = 20\n"
    );
    std::fs::create_dir(home.join(".codex")).unwrap();
    std::fs::write(home.join(".codex/config.toml"), config).unwrap();
}

async fn open(stage: &Stage, sampling: Value) -> TrialOpened {
    let open = json!({"task_id": "real", "sampling": sampling});
    stage.http.post(stage.admin("/v1/trials")).json(&open).send().await.unwrap().json().await.unwrap()
}

fn assert_whole(call: &Call) {
    assert_eq!(
        (call.status, &call.flaws[..], call.dialect),
        (CallStatus::Complete, &[][..], Dialect::Responses)
    );
    let choice = &call.choices[0];
    assert!(!call.prompt_token_ids.is_empty() && !choice.token_ids.is_empty());
    assert_eq!(choice.logprobs.len(), choice.token_ids.len());
    assert!(choice.logprobs.iter().all(Option::is_some));
}

#[tokio::test]
#[ignore = "needs Codex: run ./scripts/test"]
async fn codex_finishes_a_task_of_several_turns_in_one_branch() {
    let script = sim::Script::from_toml(SCRIPT, "codex").unwrap();
    let settings = sim::Settings { script: Some(script), seed: SEED, ..sim::Settings::default() };
    let upstream = sim::start(settings).await.unwrap();
    let stage = Stage::before(format!("http://{}", upstream.addr())).await;
    let trial = open(&stage, json!({})).await;
    let run = codex(&trial, "sim", "Write hello into hello.txt").await;
    assert!(run.succeeded, "{}", run.log);
    assert_eq!(run.said.trim(), "The file says hello.");
    assert_eq!(std::fs::read_to_string(run.work.path().join("hello.txt")).unwrap(), "hello\n");

    let calls = stage.calls(&trial).await;
    let (whole, failed): (Vec<_>, Vec<_>) =
        calls.iter().partition(|call| call.status == CallStatus::Complete);
    assert_eq!((whole.len(), failed.len()), (3, 2), "{}", run.log);
    let mut so_far = TokenList::new();
    for call in whole {
        assert_whole(call);
        assert!(call.prompt_token_ids.starts_with(&so_far), "a turn does not extend the previous one");
        so_far = call.prompt_token_ids.clone();
        so_far.extend_from_slice(&call.choices[0].token_ids);
    }
}

#[tokio::test]
#[ignore = "needs vLLM and Codex: run ./scripts/test"]
async fn codex_works_on_a_real_vllm() {
    let stage = Stage::before(long_vllm()).await;
    // The model's answers are noise, so a grammar sets their text and the turn ends.
    let sampling = json!({"structured_outputs": {"regex": "done [a-z]{3}"}, "max_tokens": 40,
        "chat_template_kwargs": {"enable_thinking": false}});
    let trial = open(&stage, sampling).await;
    let run = codex(&trial, "long", "Write hello into hello.txt").await;
    assert!(run.succeeded, "{}", run.log);
    assert!(!run.log.contains("ERROR") && !run.log.contains("stream disconnected"), "{}", run.log);
    let calls = stage.calls(&trial).await;
    assert_eq!(calls.len(), 1);
    assert_whole(&calls[0]);
}

/// The model calls a tool each turn until the trial's limit ends it.
#[tokio::test]
#[ignore = "needs vLLM and Codex: run ./scripts/test"]
async fn every_turn_before_vllm_goes_on_with_the_tokens_of_the_one_before() {
    let stage = Stage::before(long_vllm()).await;
    let call =
        r#"<tool_call>\n\{"name": "exec_command", "arguments": \{"cmd": "echo [a-z]{3,6}"\}\}\n</tool_call>"#;
    let sampling =
        json!({"structured_outputs": {"regex": call}, "chat_template_kwargs": {"enable_thinking": false}});
    let open = json!({"task_id": "real", "sampling": sampling, "limits": {"max_calls": 5}});
    let opened = stage.http.post(stage.admin("/v1/trials")).json(&open).send().await.unwrap();
    let trial: TrialOpened = opened.json().await.unwrap();
    let run = codex(&trial, "long", "Do it.").await;
    let calls = stage.calls(&trial).await;
    assert!(!run.succeeded && calls.len() == 5, "{}", run.log);
    assert_one_branch(&calls, 5);
}

#[tokio::test]
#[ignore = "needs vLLM and Codex: run ./scripts/test"]
async fn codex_understands_that_its_prompt_does_not_fit() {
    let stage = Stage::before(vllm()).await;
    let trial = open(&stage, json!({})).await;
    let run = codex(&trial, "tiny", "Write hello into hello.txt").await;
    assert!(!run.succeeded);
    assert!(run.log.contains("ran out of room in the model's context window"), "{}", run.log);
    assert_eq!(stage.calls(&trial).await.len(), 1, "it tried again");
}
