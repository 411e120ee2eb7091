//! Claude Code at work through the proxy: in front of a simulated upstream that directs it, and in front of vLLM.

use std::path::Path;
use std::process::Output;

use rolltap_proxy::api::TrialOpened;
use rolltap_rollout::call::{Call, CallStatus};
use rolltap_rollout::row::RolloutRow;
use rolltap_sim as sim;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::harness::{Stage, assert_one_branch, long_vllm, testbed};

/// Runs Claude Code in `home` until its task is done.
pub(crate) async fn claude_code(
    stage: &Stage,
    trial: &TrialOpened,
    home: &Path,
    task: &str,
    longest_answer: &str,
    extra: &[&str],
) -> Output {
    let work = home.join("work");
    std::fs::create_dir_all(&work).unwrap();
    let base_url = format!("http://{}/t/{}", stage.proxy.agent_addrs()[0], trial.key);
    let mut command = Command::new(testbed("ROLLTAP_TESTBED_CLAUDE_CODE"));
    command.env_clear().current_dir(work).kill_on_drop(true).stdin(std::process::Stdio::null());
    command.env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", home);
    command.env("ANTHROPIC_BASE_URL", base_url).env("ANTHROPIC_API_KEY", "dummy");
    // As root, Claude Code works without questions only in a sandbox.
    for switch in
        ["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY", "DISABLE_AUTOUPDATER", "IS_SANDBOX"]
    {
        command.env(switch, "1");
    }
    command.env("CLAUDE_CODE_MAX_OUTPUT_TOKENS", longest_answer);
    command.args(["-p", task, "--output-format", "json", "--dangerously-skip-permissions"]);
    command.arg("--debug-file").arg(home.join("log")).args(extra);
    command.output().await.unwrap()
}

fn result(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&said)
        .unwrap_or_else(|error| panic!("{error}: {said}\n{}", String::from_utf8_lossy(&output.stderr)))
}

/// Returns the complaints about the API in its log.
fn complaints(home: &Path) -> Vec<String> {
    let log = std::fs::read_to_string(home.join("log")).unwrap();
    let lines = log.lines().filter(|line| line.contains("[ERROR]") || line.contains("[WARN]"));
    lines
        .filter(|line| line.contains("API") || line.contains("stream") || line.contains("thinking"))
        .map(str::to_owned)
        .collect()
}

/// Returns the script of the model. Claude Code sends the arguments of Write back in the order of its own schema. A
/// model with another order gets another prompt, and a new branch.
fn script(work: &Path) -> String {
    let file = work.join("f.txt");
    let file = file.display();
    format!(
        r#"
[[conversation]]
match = "SUBTASK"
[[conversation.turn]]
[[conversation.turn.answer]]
content = "I do my part."
tool_calls = [{{ name = "Bash", arguments = {{ command = "echo part > part.txt", description = "do it" }} }}]
[[conversation.turn]]
[[conversation.turn.answer]]
content = "My part is done."

[[conversation]]
match = "MAINTASK"
[[conversation.turn]]
[[conversation.turn.answer]]
reasoning = "A file is wanted."
content = "I write it."
tool_calls = [{{ name = "Write", arguments = '{{"file_path":"{file}","content":"hello"}}' }}]
[[conversation.turn]]
[[conversation.turn.answer]]
error = {{ status = 500, message = "engine hiccup" }}
[[conversation.turn.answer]]
tool_calls = [
  {{ name = "Bash", arguments = {{ command = "sleep 0.2; cat f.txt", description = "read it" }} }},
  {{ name = "Read", arguments = {{ file_path = "{file}" }} }},
  {{ name = "Bash", arguments = {{ command = "false", description = "fail" }} }},
]
[[conversation.turn]]
[[conversation.turn.answer]]
reasoning = "Somebody else can do this."
tool_calls = [{{ name = "Agent", arguments = {{ description = "a part", prompt = "SUBTASK", subagent_type = "general-purpose" }} }}]
[[conversation.turn]]
[[conversation.turn.answer]]
content = "All done."
"#
    )
}

#[tokio::test]
#[ignore = "needs Claude Code: run ./scripts/test"]
async fn a_task_with_parallel_tools_a_sub_agent_and_an_error_is_done_and_is_two_branches() {
    let home = TempDir::new().unwrap();
    let script = sim::Script::from_toml(&script(&home.path().join("work")), "test").unwrap();
    // With this seed the second call fails at first.
    let settings =
        sim::Settings { script: Some(script), max_model_len: 500_000, seed: 2, ..sim::Settings::default() };
    let upstream = sim::start(settings).await.unwrap();
    let stage = Stage::before(format!("http://{}", upstream.addr())).await;
    let trial = stage.open().await;
    let output = claude_code(&stage, &trial, home.path(), "MAINTASK", "32000", &["--model", "sim"]).await;
    let result = result(&output);
    assert_eq!((&result["is_error"], &result["result"]), (&false.into(), &"All done.".into()), "{result}");
    let written = |name: &str| std::fs::read_to_string(home.path().join("work").join(name)).unwrap();
    assert_eq!((written("f.txt").as_str(), written("part.txt").as_str()), ("hello", "part\n"));
    let complaints: Vec<_> =
        complaints(home.path()).into_iter().filter(|line| !line.contains("engine hiccup")).collect();
    assert_eq!(complaints, Vec::<String>::new());

    let calls = stage.calls(&trial).await;
    let (complete, failed): (Vec<&Call>, Vec<&Call>) =
        calls.iter().partition(|call| call.status == CallStatus::Complete);
    assert_eq!(complete.len(), 6, "four of the agent, two of its sub-agent");
    assert!(!failed.is_empty() && failed.iter().all(|call| call.http_status == Some(500)));
    assert!(complete.iter().all(|call| call.is_trainable()));
    let rows = rows(&stage, &trial).await;
    let mut turns: Vec<_> = rows.iter().map(|row| row.calls.len()).collect();
    turns.sort_unstable();
    assert_eq!(turns, [2, 4], "a branch for the agent, one for its sub-agent");
}

/// The model's answers are noise. The test checks that Claude Code reads them and that the ids are recorded.
#[tokio::test]
#[ignore = "needs vLLM and Claude Code: run ./scripts/test"]
async fn a_task_before_vllm_ends_and_every_id_is_right() {
    let stage = Stage::before(long_vllm()).await;
    let trial = stage.open().await;
    let home = TempDir::new().unwrap();
    let output = claude_code(
        &stage,
        &trial,
        home.path(),
        "Say something.",
        "64",
        &["--model", "long", "--max-turns", "3"],
    )
    .await;
    let result = result(&output);
    assert_eq!(result["type"], "result", "{result}");
    assert_eq!(complaints(home.path()), Vec::<String>::new());
    let calls = stage.calls(&trial).await;
    assert!(!calls.is_empty());
    for call in &calls {
        assert_eq!(
            (call.status, &call.flaws[..], call.is_trainable()),
            (CallStatus::Complete, &[][..], true)
        );
    }
}

/// The model calls a tool each turn, and a grammar allows no other text. The sampled tokens must be preserved.
#[tokio::test]
#[ignore = "needs vLLM and Claude Code: run ./scripts/test"]
async fn every_turn_before_vllm_goes_on_with_the_tokens_of_the_one_before() {
    let stage = Stage::before(long_vllm()).await;
    let call = r#"<tool_call>\n\{"name": "Bash", "arguments": \{"command": "echo [a-z]{3,6}", "description": "[a-z]{3,8}"\}\}\n</tool_call>"#;
    let open = json!({"task_id": "real", "sampling": {
        "structured_outputs": {"regex": call}, "chat_template_kwargs": {"enable_thinking": false}}});
    let opened = stage.http.post(stage.admin("/v1/trials")).json(&open).send().await.unwrap();
    let trial: TrialOpened = opened.json().await.unwrap();
    let home = TempDir::new().unwrap();
    claude_code(&stage, &trial, home.path(), "Do it.", "96", &["--model", "long", "--max-turns", "5"]).await;
    assert_one_branch(&stage.calls(&trial).await, 5);
    let rows = rows(&stage, &trial).await;
    assert_eq!(rows.iter().map(|row| row.calls.len()).collect::<Vec<_>>(), [5]);
}

async fn rows(stage: &Stage, trial: &TrialOpened) -> Vec<RolloutRow> {
    let url = |action: &str| stage.admin(&format!("/v1/trials/{}/{action}", trial.trial_id));
    stage.http.post(url("seal")).send().await.unwrap();
    let text = stage.http.get(url("rollout")).send().await.unwrap().text().await.unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
