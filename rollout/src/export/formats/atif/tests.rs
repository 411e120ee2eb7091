use std::collections::HashMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::export::testing::arbitrary::{exported, masked, trial};
use crate::export::testing::fixture::{forked, straight};

fn written(trials: impl IntoIterator<Item = Trial>) -> Result<(Vec<Value>, Vec<String>), ExportError> {
    let mut out = Vec::new();
    let told = exported(&mut out, AtifExporter::new, trials)?;
    let text = String::from_utf8(out).unwrap();
    Ok((text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), told))
}

fn ids(step: &Value) -> (Value, Value, Value) {
    let metrics = &step["metrics"];
    (
        metrics["prompt_token_ids"].clone(),
        metrics["completion_token_ids"].clone(),
        metrics["logprobs"].clone(),
    )
}

#[test]
fn a_straight_trial_is_one_trajectory() {
    let (lines, told) = written([straight()]).unwrap();
    let line = &lines[0];
    assert_eq!(
        (&line["schema_version"], &line["trajectory_id"]),
        (&json!("ATIF-v1.8"), &json!("straight/0"))
    );
    let step = |id: i32, at: &str, prompt: &[i32], answer: &[i32], call: &str| {
        json!({
            "step_id": id, "timestamp": at, "source": "agent", "message": "",
            "metrics": {
                "prompt_tokens": prompt.len(), "completion_tokens": answer.len(),
                "prompt_token_ids": prompt, "completion_token_ids": answer,
                "logprobs": answer.iter().map(|id| -f64::from(*id)).collect::<Vec<_>>(),
                "extra": {"loss_mask": vec![1; answer.len()], "token_version": vec![0; answer.len()]},
            },
            "llm_call_count": 1,
            "extra": {
                "call_id": call, "choice_index": 0, "role": "main", "finish_reason": "stop",
                "temperature": null, "top_p": null, "top_k": null, "constrained": false,
            },
        })
    };
    let expected = json!([
        step(1, "1970-01-01T00:00:00Z", &[1, 2], &[3], "c0000"),
        step(2, "1970-01-01T00:00:01Z", &[1, 2, 3, 4], &[5, 6], "c0001"),
    ]);
    assert_eq!(line["steps"], expected);
    let metrics = json!({"total_prompt_tokens": 6, "total_completion_tokens": 3, "total_steps": 2});
    assert_eq!(line["final_metrics"], metrics);
    assert_eq!((&line["extra"]["reward"], &line["extra"]["advantage"]), (&json!(1.0), &json!(0.5)));
    assert_eq!(line.get("subagent_trajectories"), None);
    assert_eq!(told, ["2 calls: their messages, which were not recorded"]);
}

#[test]
fn further_branches_are_embedded_and_each_answer_stands_once() {
    let (lines, _) = written([forked()]).unwrap();
    let steps = lines[0]["steps"].as_array().unwrap();
    assert_eq!(ids(&steps[0]), (json!([1, 2]), json!([3]), json!([-3.0])));
    assert_eq!(ids(&steps[1]), (json!([1, 2, 3, 4]), json!([5]), json!([-5.0])));
    let other = &lines[0]["subagent_trajectories"][0];
    assert_eq!((&other["trajectory_id"], &other["session_id"]), (&json!("forked/1"), &json!("forked")));
    assert_eq!(other["extra"], json!({"branch_index": 1, "branch_cause": "fork", "status": "completed"}));
    assert_eq!(other["steps"].as_array().unwrap().len(), 1);
    assert_eq!(ids(&other["steps"][0]), (json!([1, 2, 3, 7]), json!([8, 9]), json!([-8.0, -9.0])));
}

#[test]
fn what_is_not_trained_has_no_logprobs() {
    let (lines, told) = written([masked(straight())]).unwrap();
    assert_eq!(lines[0]["steps"][1]["metrics"].get("logprobs"), None);
    assert_eq!(lines[0]["extra"]["reward"], Value::Null);
    assert_eq!(lines[0]["extra"]["failure_cause"], json!("AgentTimeoutError"));
    assert!(told.contains(&"2 calls: the logprobs of answers that are not trained".to_owned()), "{told:?}");
}

/// Returns the messages of the two calls of the straight trial: a tool is called, and its result is in the next request.
fn with_words() -> Trial {
    let call = json!({"id": "t1", "type": "function", "function": {"name": "bash", "arguments": "{\"command\": \"ls\"}"}});
    let answer = json!({"role": "assistant", "content": null, "reasoning": "I look.", "tool_calls": [call]});
    let begin = [
        json!({"role": "system", "content": "Be brief."}),
        json!({"role": "user", "content": [{"type": "text", "text": "Look."}]}),
    ];
    let result = json!({"role": "tool", "tool_call_id": "t1", "content": "notes"});
    let first: Vec<_> = begin.into_iter().chain([answer]).collect();
    let last = json!({"role": "assistant", "content": "Notes."});
    let second: Vec<_> = first.iter().cloned().chain([result, last]).collect();
    let mut trial = straight();
    trial.rows[0].calls[0].messages = Some(json!(first).to_string());
    trial.rows[0].calls[1].messages = Some(json!(second).to_string());
    trial
}

#[test]
fn recorded_messages_are_steps_and_results_are_in_the_step_of_their_call() {
    let (lines, told) = written([with_words()]).unwrap();
    assert_eq!(told, Vec::<String>::new());
    let steps = lines[0]["steps"].as_array().unwrap();
    let said: Vec<_> =
        steps.iter().map(|step| (&step["step_id"], &step["source"], &step["message"])).collect();
    let expected =
        [(1, "system", "Be brief."), (2, "user", "Look."), (3, "agent", ""), (4, "agent", "Notes.")];
    let expected: Vec<_> =
        expected.map(|(id, source, message)| (json!(id), json!(source), json!(message))).into();
    assert_eq!(said, expected.iter().map(|(id, source, message)| (id, source, message)).collect::<Vec<_>>());
    assert_eq!(steps[2]["reasoning_content"], "I look.");
    let call = json!([{"tool_call_id": "t1", "function_name": "bash", "arguments": {"command": "ls"}}]);
    assert_eq!(steps[2]["tool_calls"], call);
    let observation = json!({"results": [{"source_call_id": "t1", "content": "notes"}]});
    assert_eq!(steps[2]["observation"], observation);
    assert_eq!(lines[0]["final_metrics"]["total_steps"], 4);
    assert_eq!(ids(&steps[3]).1, json!([5, 6]));
}

#[test]
fn words_that_no_call_of_the_trajectory_has_are_marked() {
    let messages = json!([
        {"role": "assistant", "content": "Earlier."},
        {"role": "tool", "tool_call_id": "t0", "content": "elsewhere"},
        {"role": "assistant", "tool_calls": [{"id": "t1", "function": {"name": "f", "arguments": "{"}}]},
    ]);
    let mut trial = straight();
    trial.rows[0].calls[0].messages = Some(messages.to_string());
    let (lines, told) = written([trial]).unwrap();
    assert_eq!(told, ["1 calls: their messages, which were not recorded"]);
    let steps = &lines[0]["steps"];
    assert_eq!((&steps[0]["source"], &steps[0]["is_copied_context"]), (&json!("agent"), &json!(true)));
    assert_eq!((&steps[0].get("metrics"), &steps[2].get("is_copied_context")), (&None, &None));
    assert_eq!(steps[1]["source"], "system");
    assert_eq!(steps[1]["observation"], json!({"results": [{"content": "elsewhere"}]}));
    let call = &steps[2]["tool_calls"][0];
    assert_eq!((&call["arguments"], &call["extra"]["raw_arguments"]), (&json!({}), &json!("{")));
}

#[test]
fn messages_that_are_none_are_refused() {
    let mut trial = straight();
    trial.rows[0].calls[0].messages = Some("[{".to_owned());
    let error = written([trial]).unwrap_err().to_string();
    assert!(error.contains("the messages of call c0000 are no list of chat messages"), "{error}");
}

#[test]
fn what_is_no_number_is_refused() {
    assert!(written([Trial { reward: Some(f64::NAN), ..straight() }]).is_err());
    assert!(written([Trial { advantage: Some(f64::NAN), ..straight() }]).is_err());
}

/// Returns whether a trajectory and its embedded ones fulfil the rules of Harbor's own classes.
fn is_valid(trajectory: &Value) -> bool {
    let steps = trajectory["steps"].as_array().unwrap();
    let embedded = trajectory.get("subagent_trajectories").map_or(&[][..], |list| list.as_array().unwrap());
    let mut names: Vec<_> = embedded.iter().map(|other| other["trajectory_id"].as_str().unwrap()).collect();
    names.sort_unstable();
    names.dedup();
    !steps.is_empty()
        && (1..).zip(steps).all(|(id, step)| step["step_id"] == id)
        && names.len() == embedded.len()
        && embedded.iter().all(is_valid)
}

proptest! {
    #[test]
    fn what_is_written_reads_back_equal(trial in trial()) {
        let (lines, _) = written([trial.clone()]).unwrap();
        prop_assert!(is_valid(&lines[0]));
        let embedded = lines[0].get("subagent_trajectories").map_or(&[][..], |list| list.as_array().unwrap());
        let mut steps = HashMap::new();
        for step in std::iter::once(&lines[0]).chain(embedded).flat_map(|one| one["steps"].as_array().unwrap()) {
            prop_assert!(steps.insert(step["extra"]["call_id"].as_str().unwrap(), step).is_none());
        }
        for row in &trial.rows {
            for call in &row.calls {
                let (start, end) = (usize::try_from(call.start).unwrap(), usize::try_from(call.end).unwrap());
                let (prompt, answer, logprobs) = ids(steps[call.call_id.as_str()]);
                prop_assert_eq!(prompt, json!(row.token_ids[..start]));
                prop_assert_eq!(answer, json!(row.token_ids[start..end]));
                let mask = json!(row.trainable_mask[start..end]);
                prop_assert_eq!(&steps[call.call_id.as_str()]["metrics"]["extra"]["loss_mask"], &mask);
                if row.trainable_mask[start..end].contains(&1) {
                    let logprobs: Vec<f32> = serde_json::from_value(logprobs).unwrap();
                    prop_assert_eq!(&logprobs, &row.logprobs[start..end]);
                }
            }
        }
    }
}
