//! The trajectory that a run writes.

use rolltap_agent::{AgentSettings, StopReason, TrajectorySettings};
use serde_json::{Value, json};

use crate::harness::{run_in, shell, typing};
use crate::scripted::{Kind, Reply, scripted};

fn keeping(settings: &AgentSettings, dir: &std::path::Path) -> AgentSettings {
    let path = dir.join("trajectory.json");
    let trajectory = TrajectorySettings { path, session_id: "trial-1".into(), raw_content: false };
    AgentSettings { trajectory: Some(trajectory), ..settings.clone() }
}

fn read(dir: &std::path::Path) -> Value {
    serde_json::from_slice(&std::fs::read(dir.join("trajectory.json")).unwrap()).unwrap()
}

fn sources(trajectory: &Value) -> Vec<&str> {
    let steps = trajectory["steps"].as_array().unwrap();
    for (number, step) in steps.iter().enumerate() {
        assert_eq!(step["step_id"], number + 1);
    }
    steps.iter().map(|step| step["source"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn each_answer_is_a_step_with_what_was_typed_and_what_came_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let (_shell, terminal) = shell();
    let model = scripted(None, 10, |_, before| match before {
        0 => Reply::Words(typing(&["echo one-$((1+1))\n"], false)),
        1 => Reply::Words("no answer at all".into()),
        2 => Reply::Words(typing(&["true\n", "true\n"], true)),
        _ => Reply::Words(typing(&[], true)),
    })
    .await;
    let report = run_in(keeping(&model.settings, dir.path()), terminal).await.unwrap();
    assert_eq!(report.stop, StopReason::Completed);

    let trajectory = read(dir.path());
    assert_eq!(trajectory["schema_version"], "ATIF-v1.8");
    assert_eq!(trajectory["session_id"], "trial-1");
    assert_eq!(trajectory["agent"]["model_name"], "scripted");
    assert_eq!(trajectory["agent"]["extra"], json!({"parser": "json"}));
    assert_eq!(sources(&trajectory), ["user", "agent", "agent", "agent", "agent"]);
    let steps = &trajectory["steps"];
    assert_eq!(steps[1]["message"], "Analysis: a\nPlan: p");
    assert_eq!(steps[1]["model_name"], "scripted-1");
    assert_eq!(steps[1]["metrics"], json!({"prompt_tokens": 10, "completion_tokens": 1}));
    assert_eq!(
        steps[1]["tool_calls"],
        json!([{"tool_call_id": "call_1_1", "function_name": "bash_command",
                "arguments": {"keystrokes": "echo one-$((1+1))\n", "duration": 0.05}}])
    );
    let seen = &steps[1]["observation"]["results"][0];
    assert_eq!(seen["source_call_id"], "call_1_1");
    assert!(seen["content"].as_str().unwrap().contains("one-2"), "{seen}");
    assert_eq!((&steps[2]["message"], &steps[2]["tool_calls"]), (&json!("no answer at all"), &Value::Null));
    assert_eq!(steps[3]["tool_calls"][2]["function_name"], "mark_task_complete");
    assert_eq!(steps[3]["observation"]["results"][0]["source_call_id"], Value::Null);
    assert!(steps[4]["observation"]["results"][0]["content"].is_string());
    assert_eq!(
        trajectory["final_metrics"],
        json!({"total_prompt_tokens": 10 + 30 + 50 + 70, "total_completion_tokens": 4,
               "total_cached_tokens": 0, "total_steps": 5})
    );
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing beside it");
}

#[tokio::test]
async fn a_handover_is_a_step_that_leads_to_its_helpers() {
    let dir = tempfile::tempdir().unwrap();
    let (_shell, terminal) = shell();
    let model = scripted(None, 10, |call, before| match (call.kind, before) {
        (Kind::Work, 0) => Reply::Words(typing(&[""], false)),
        (Kind::Work, 1) => Reply::TooLong,
        (Kind::Work, _) => Reply::Words(typing(&[], true)),
        (kind, _) => Reply::Words(format!("the {kind:?}")),
    })
    .await;
    run_in(keeping(&model.settings, dir.path()), terminal).await.unwrap();
    let trajectory = read(dir.path());
    assert_eq!(sources(&trajectory), ["user", "agent", "system", "user", "agent", "agent"]);
    let step = &trajectory["steps"][2];
    assert_eq!(step["extra"]["context_management"]["type"], "compaction");
    let references = step["observation"]["results"][0]["subagent_trajectory_ref"].as_array().unwrap();
    let helpers = trajectory["subagent_trajectories"].as_array().unwrap();
    assert_eq!((references.len(), helpers.len()), (3, 3));
    for ((reference, helper), says) in references.iter().zip(helpers).zip(["Summary", "Questions", "Answers"])
    {
        assert_eq!(reference["trajectory_id"], helper["trajectory_id"]);
        assert_eq!(sources(helper), ["user", "agent"]);
        assert_eq!(helper["steps"][1]["message"], format!("the {says}"));
    }
}

#[tokio::test]
async fn a_run_whose_model_is_gone_leaves_what_was_done() {
    let dir = tempfile::tempdir().unwrap();
    let (_shell, terminal) = shell();
    let model = scripted(None, 10, |_, _| Reply::TooLong).await;
    let mut settings = keeping(&model.settings, dir.path());
    if let Some(trajectory) = &mut settings.trajectory {
        trajectory.raw_content = true;
    }
    run_in(settings, terminal).await.unwrap();
    assert_eq!(sources(&read(dir.path())), ["user"]);
}
