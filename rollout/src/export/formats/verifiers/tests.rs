use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::export::testing::arbitrary::{exported, masked, trial};
use crate::export::testing::fixture::{forked, straight};

fn lines(trials: impl IntoIterator<Item = Trial>) -> (Vec<Value>, Vec<String>) {
    let mut out = Vec::new();
    let told = exported(&mut out, VerifiersExporter::new, trials).unwrap();
    let text = String::from_utf8(out).unwrap();
    (text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), told)
}

fn context(parent: Option<usize>, at: f64, ids: &[i32]) -> Value {
    let mask = vec![false; ids.len()];
    let message = json!({"role": "user", "content": ""});
    json!({"parent": parent, "message": message, "sampled": false, "timestamp": at, "token_ids": ids, "mask": mask})
}

fn answer(parent: usize, at: f64, ids: &[i32], advantage: f64) -> Value {
    let logprobs: Vec<_> = ids.iter().map(|id| -f64::from(*id)).collect();
    json!({
        "parent": parent, "message": {"role": "assistant", "content": null}, "sampled": true, "timestamp": at,
        "token_ids": ids, "mask": vec![true; ids.len()],
        "logprobs": logprobs, "advantages": vec![advantage; ids.len()],
    })
}

#[test]
fn a_straight_trial_is_a_chain() {
    let (lines, told) = lines([straight()]);
    let expected = json!([
        context(None, 0.0, &[1, 2]),
        answer(0, 0.0, &[3], 0.5),
        context(Some(1), 1.0, &[4]),
        answer(2, 1.0, &[5, 6], 0.5),
    ]);
    assert_eq!(lines[0]["nodes"], expected);
    assert_eq!(lines[0]["rewards"], json!({"reward": {"score": 1.0, "weight": 1.0}}));
    assert_eq!((&lines[0]["ok"], &lines[0]["errors"]), (&json!(true), &json!([])));
    assert_eq!(lines[0]["calls"][1]["usage"], json!({"prompt_tokens": 4, "completion_tokens": 2}));
    assert_eq!(told, ["2 messages: their words and bounds (nodes hold what a call added as one)"]);
}

#[test]
fn branches_share_the_nodes_of_what_they_share() {
    let (lines, _) = lines([forked()]);
    let expected = json!([
        context(None, 0.0, &[1, 2]),
        answer(0, 0.0, &[3], -0.5),
        context(Some(1), 1.0, &[4]),
        answer(2, 1.0, &[5], -0.5),
        context(Some(1), 2.0, &[7]),
        answer(4, 2.0, &[8, 9], -0.5),
    ]);
    assert_eq!(lines[0]["nodes"], expected);
    assert_eq!(
        lines[0]["calls"].as_array().unwrap().iter().map(|call| &call["node"]).collect::<Vec<_>>(),
        [1, 3, 5]
    );
    let branches = &lines[0]["info"]["rolltap"]["branches"];
    assert_eq!(branches[1], json!({"branch_index": 1, "branch_cause": "fork", "status": "completed"}));
}

/// The keys have the order of the fields in the package.
#[test]
fn the_line_is_this() {
    let mut out = Vec::new();
    let mut trial = straight();
    trial.rows[0].calls.truncate(1);
    exported(&mut out, VerifiersExporter::new, [trial]).unwrap();
    let expected = concat!(
        r#"{"version":1,"id":"straight","verifiers":{"version":"0.4.0"},"#,
        r#""task":{"type":"Task","data":{"id":"org/task","name":"org/task"},"key":"org/task"},"#,
        r#""agent":{"config":{"model":"m"}},"nodes":["#,
        r#"{"parent":null,"message":{"role":"user","content":""},"sampled":false,"timestamp":0.0,"#,
        r#""token_ids":[1,2],"mask":[false,false]},"#,
        r#"{"parent":0,"message":{"role":"assistant","content":null},"sampled":true,"timestamp":0.0,"#,
        r#""token_ids":[3],"mask":[true],"logprobs":[-3.0],"advantages":[0.5]}],"#,
        r#""calls":[{"node":1,"model":"m","sampling":{"temperature":null,"top_p":null,"top_k":null},"#,
        r#""finish_reason":"stop","usage":{"prompt_tokens":2,"completion_tokens":1},"time":{"start":0.0,"end":0.0}}],"#,
        r#""rewards":{"reward":{"score":1.0,"weight":1.0}},"metrics":{},"#,
        r#""info":{"rolltap":{"group_id":"group","group_size":2,"sample_index":0,"attempt":0,"#,
        r#""logprobs_mode":"processed_logprobs","version_labels":{},"#,
        r#""branches":[{"branch_index":0,"branch_cause":"first_call","status":"completed"}],"#,
        r#""calls":[{"call_id":"c0000","choice_index":0,"role":"main","policy_version":0}]}},"#,
        r#""is_completed":true,"ok":true,"stop_condition":null,"errors":[]}"#,
        "\n"
    );
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn a_trial_exported_for_its_group_is_not_ok_and_trains_nothing() {
    let (lines, _) = lines([masked(forked())]);
    assert_eq!((&lines[0]["ok"], &lines[0]["rewards"]), (&json!(false), &json!({"reward": null})));
    assert_eq!(lines[0]["errors"], json!([{"type": "AgentTimeoutError", "message": ""}]));
    for node in lines[0]["nodes"].as_array().unwrap() {
        assert!(node["mask"].as_array().unwrap().iter().all(|trained| trained == false));
    }
}

#[test]
fn branches_that_disagree_are_refused() {
    let mut trial = forked();
    trial.rows[1].token_ids[2] = 4;
    let mut out = Vec::new();
    let error = exported(&mut out, VerifiersExporter::new, [trial]).unwrap_err();
    assert!(
        error.to_string().contains("call c0000 differs from the same call in an earlier branch"),
        "{error}"
    );
    assert!(out.is_empty());
}

#[test]
fn images_are_refused_unless_nothing_is_trained_on_them() {
    let with_media = |mut trial: Trial| {
        trial.rows[0].has_media = true;
        trial
    };
    let mut out = Vec::new();
    let error = exported(&mut out, VerifiersExporter::new, [with_media(straight())]).unwrap_err();
    assert!(error.to_string().contains("images"), "{error}");
    exported(&mut out, VerifiersExporter::new, [with_media(masked(straight()))]).unwrap();
}

#[test]
fn a_logprob_that_is_no_number_leaves_no_line() {
    let mut trial = straight();
    trial.rows[0].logprobs[2] = f32::NAN;
    let mut out = Vec::new();
    let error = exported(&mut out, VerifiersExporter::new, [trial]).unwrap_err();
    assert!(error.to_string().contains("trial straight, branch 0: logprobs[2] is NaN"), "{error}");
    assert!(out.is_empty());
}

/// Walks a leaf's path as verifiers does. Returns ids, trained tokens (an answer in the first branch that has it), and
/// logprobs, which are spread over the trained tokens and 0.0 elsewhere.
fn walked(line: &Value, leaf: usize, seen: &mut Vec<usize>) -> (Vec<i32>, Vec<u8>, Vec<f32>) {
    let nodes = line["nodes"].as_array().unwrap();
    let mut path = vec![leaf];
    while let Some(parent) = nodes[*path.last().unwrap()]["parent"].as_u64() {
        path.push(usize::try_from(parent).unwrap());
    }
    let (mut ids, mut mask, mut logprobs) = (Vec::new(), Vec::new(), Vec::new());
    for &index in path.iter().rev() {
        let node = &nodes[index];
        let is_first = !seen.contains(&index);
        seen.push(index);
        ids.extend(serde_json::from_value::<Vec<i32>>(node["token_ids"].clone()).unwrap());
        let given: Vec<f32> = node
            .get("logprobs")
            .map_or_else(Vec::new, |given| serde_json::from_value(given.clone()).unwrap());
        let mut given = given.into_iter();
        for trained in serde_json::from_value::<Vec<bool>>(node["mask"].clone()).unwrap() {
            mask.push(u8::from(trained && is_first));
            logprobs.push(if trained { given.next().unwrap() } else { 0.0 });
        }
        assert!(given.next().is_none());
    }
    (ids, mask, logprobs)
}

proptest! {
    #[test]
    fn what_is_written_reads_back_equal(trial in trial()) {
        let (lines, _) = lines([trial.clone()]);
        let nodes = lines[0]["nodes"].as_array().unwrap();
        let is_leaf = |index: &usize| !nodes.iter().any(|node| node["parent"] == *index);
        let leaves: Vec<usize> = (0..nodes.len()).filter(is_leaf).collect();
        prop_assert_eq!(leaves.len(), trial.rows.len());
        let mut seen = Vec::new();
        for (row, leaf) in trial.rows.iter().zip(leaves) {
            let (ids, mask, logprobs) = walked(&lines[0], leaf, &mut seen);
            let trained: Vec<_> =
                row.logprobs.iter().zip(&row.trainable_mask).map(|(lp, on)| if *on == 1 { *lp } else { 0.0 }).collect();
            prop_assert_eq!((&ids, &mask, &logprobs), (&row.token_ids, &row.loss_mask, &trained));
        }
    }
}
