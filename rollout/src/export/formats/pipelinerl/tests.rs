use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::export::exporter::Trial;
use crate::export::testing::any_trial::{any_group, compared_rows};
use crate::export::testing::fixture::{forked, judged_failed_and_trained, straight};
use crate::export::testing::read_back::{bits, float_bits, ints, objects, written};

#[test]
fn a_call_is_a_text_and_shared_tokens_train_once() {
    let (lines, omissions) = written(PipelineRlExporter::new, [straight(), forked()]).unwrap();
    let expected = r#"{"text":"","n_predicted":0,"reward":0.5,"logprobs":[-5.0,-6.0],"ref_logprobs":[],"input_ids":[1,2,3,4,5,6],"labels":[-100,-100,-100,-100,5,6],"group_id":"group","finished":true,"prompt_tokens":4,"output_tokens":2,"metadata":{"model_version":0,"rollout_index":0,"step_index":1,"trial_id":"straight","task_id":"org/task","branch_index":0,"call_id":"c0001","reward":1.0,"rewards":{}}}"#;
    assert_eq!(lines[1], expected);
    assert_eq!(omissions, []);
    let texts: Vec<serde_json::Value> =
        lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let labels: Vec<_> = texts.iter().map(|text| ints(&text["labels"])).collect();
    assert_eq!(
        labels[2..],
        [vec![-100, -100, 3], vec![-100, -100, -100, -100, 5], vec![-100, -100, -100, -100, 8, 9]]
    );
    let steps: Vec<_> = texts.iter().map(|text| text["metadata"]["step_index"].as_i64().unwrap()).collect();
    assert_eq!(steps, [0, 1, 0, 1, 2]);
}

/// The trainer requires as many trials as the group has samples, and compares by step.
#[test]
fn a_trial_that_trains_nothing_keeps_its_place() {
    let mut texts = objects(PipelineRlExporter::new, judged_failed_and_trained());
    texts.truncate(2);
    let told: Vec<_> = texts
        .iter()
        .map(|text| (&text["metadata"]["step_index"], &text["reward"], &text["metadata"]["reward"]))
        .collect();
    assert_eq!(told, [(&json!(0), &json!(1.0), &json!(1.0)), (&json!(-1), &json!(0.0), &json!(null))]);
    for text in &texts {
        assert_eq!((&text["labels"], &text["logprobs"]), (&json!([-100, -100]), &json!([])));
    }
}

#[test]
fn without_advantages_the_reward_is_the_trials() {
    let text =
        objects(PipelineRlExporter::new, [Trial { group: None, advantage: None, ..straight() }]).remove(0);
    assert_eq!(text["reward"], 1.0);
    let mixed = [straight(), Trial { advantage: None, ..forked() }];
    let refusal = written(PipelineRlExporter::new, mixed).unwrap_err().to_string();
    assert!(refusal.contains("some trials of the export have an advantage and some have none"), "{refusal}");
}

#[test]
fn only_the_length_limit_leaves_a_text_unfinished() {
    let mut trial = Trial { group: None, ..straight() };
    trial.rows[0].calls[1].finish_reason = Some("length".into());
    let finished: Vec<_> =
        objects(PipelineRlExporter::new, [trial]).iter().map(|text| text["finished"].clone()).collect();
    assert_eq!(finished, [true, false]);
}

#[test]
fn two_attempts_at_one_sample_would_be_one_rollout() {
    let refusal = written(PipelineRlExporter::new, [straight(), straight()]).unwrap_err().to_string();
    assert!(refusal.contains("another trial is sample 0 of group \"group\" too"), "{refusal}");
}

proptest! {
    #[test]
    fn what_is_written_reads_back(group in any_group()) {
        let texts = objects(PipelineRlExporter::new, group.clone());
        let mut texts = texts.iter();
        for trial in &group {
            let rows = compared_rows(trial);
            for run in rows.iter().flat_map(call_runs) {
                let text = texts.next().unwrap();
                prop_assert_eq!(ints(&text["input_ids"]), run.all_ids());
                let labels = ints(&text["labels"]);
                let (prompt, answer) = labels.split_at(run.tokens.start);
                prop_assert!(prompt.iter().all(|&label| label == NO_LABEL));
                prop_assert_eq!(answer, run.ids());
                prop_assert_eq!(float_bits(&text["logprobs"]), bits(run.logprobs()));
                prop_assert_eq!(text["reward"].as_f64(), trial.advantage);
                prop_assert_eq!(text["metadata"]["trial_id"].as_str(), Some(&*run.row.trial_id));
            }
            if rows.iter().all(|row| !row.loss_mask.contains(&1)) {
                let text = texts.next().unwrap();
                prop_assert_eq!(ints(&text["input_ids"]), &rows[0].token_ids[..rows[0].prompt_len as usize]);
                prop_assert!(ints(&text["labels"]).iter().all(|&label| label == NO_LABEL));
            }
        }
        prop_assert!(texts.next().is_none());
    }
}
