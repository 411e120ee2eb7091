//! mini-SWE-agent's own command line, in a folder of this machine.

use std::path::Path;

use rolltap_proxy::api::TrialOpened;
use rolltap_sim as sim;
use tempfile::TempDir;
use tokio::process::Command;

use crate::clients::{are_whole, client};
use crate::harness::Stage;

/// The model looks, writes, reads back, and completes the task.
const SCRIPT: &str = r#"
[[conversation]]
[[conversation.turn]]
[[conversation.turn.answer]]
content = "I look first."
tool_calls = [{ name = "bash", arguments = { command = "ls -a" } }]
[[conversation.turn]]
[[conversation.turn.answer]]
reasoning = "Nothing is there yet."
tool_calls = [{ name = "bash", arguments = { command = "echo 'Hello, world!' > hello.txt && cat hello.txt" } }]
[[conversation.turn]]
[[conversation.turn.answer]]
content = "Done."
tool_calls = [{ name = "bash", arguments = { command = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT" } }]
"#;

/// Returns the agent's command in `folder`, which holds its own folders too.
fn mini(trial: &TrialOpened, folder: &Path, model: &str) -> Command {
    let mut mini = client("mini");
    mini.current_dir(folder)
        .env("MSWEA_CONFIGURED", "true")
        .env("MSWEA_GLOBAL_CONFIG_DIR", folder.join("config"))
        .env("MSWEA_COST_TRACKING", "ignore_errors")
        .env("MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT", "1")
        .args(["--yolo", "--exit-immediately", "--task", "Write hello.txt", "--output", "trajectory.json"])
        .args(["--model", &format!("openai/{model}"), "--config", "mini.yaml", "--config"])
        .arg(format!("model.model_kwargs.api_base={}", trial.base_urls.openai));
    mini
}

#[tokio::test]
#[ignore = "needs Python: run ./scripts/test"]
async fn mini_swe_agent_finishes_a_task() {
    let script = sim::Script::from_toml(SCRIPT, "script").unwrap();
    let upstream =
        sim::start(sim::Settings { script: Some(script), ..sim::Settings::default() }).await.unwrap();
    let stage = Stage::before(format!("http://{}", upstream.addr())).await;
    let trial = stage.open().await;
    let folder = TempDir::new().unwrap();
    let output = mini(&trial, folder.path(), "sim").output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(std::fs::read_to_string(folder.path().join("hello.txt")).unwrap(), "Hello, world!\n");
    let calls = stage.calls(&trial).await;
    assert_eq!(calls.len(), 3);
    are_whole(&calls);
    // Each turn extends the previous one, so all of it is one row.
    let rows = stage.rollout(&trial).await;
    assert_eq!(rows.len(), 1);
    assert_eq!(
        rows[0].token_ids.len(),
        calls[2].prompt_token_ids.len() + calls[2].choices[0].token_ids.len()
    );
}

#[tokio::test]
#[ignore = "needs vLLM and Python: run ./scripts/test"]
async fn mini_swe_agent_calls_vllm() {
    let stage = Stage::set().await;
    let trial = stage.open().await;
    let folder = TempDir::new().unwrap();
    let mut mini = mini(&trial, folder.path(), "tiny");
    // The tiny model's words are noise and its context is short, so the prompt is short and there are two turns.
    mini.args(["--config", "agent.step_limit=2", "--config", "agent.instance_template={{task}}"])
        .args(["--config", "model.model_kwargs.max_tokens=32"]);
    let output = mini.output().await.unwrap();
    let calls = stage.calls(&trial).await;
    assert_eq!(calls.len(), 2, "{}", String::from_utf8_lossy(&output.stdout));
    are_whole(&calls);
}
