use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::export::shared::row_queries::is_trained;
use crate::export::testing::arbitrary::{exported, masked, trial};
use crate::export::testing::fixture::{forked, straight};
use crate::row::RolloutRow;

type Written = Result<(String, Vec<String>), ExportError>;

fn generic(trials: impl IntoIterator<Item = Trial>) -> Written {
    let mut out = Vec::new();
    let told = exported(&mut out, HarborExporter::new, trials)?;
    Ok((String::from_utf8(out).unwrap(), told))
}

fn details(trials: impl IntoIterator<Item = Trial>) -> Written {
    let mut out = Vec::new();
    let told = exported(&mut out, HarborDetailsExporter::new, trials)?;
    Ok((String::from_utf8(out).unwrap(), told))
}

fn parsed(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_generic_rollout_is_a_line_per_branch() {
    let (text, told) = generic([straight(), forked()]).unwrap();
    let expected = concat!(
        r#"{"reward":1.0,"token_ids":[1,2,3,4,5,6],"mask_ids":[0,0,1,0,1,1]}"#,
        "\n",
        r#"{"reward":0.0,"token_ids":[1,2,3,4,5],"mask_ids":[0,0,1,0,1]}"#,
        "\n",
        r#"{"reward":0.0,"token_ids":[1,2,3,7,8,9],"mask_ids":[0,0,0,0,1,1]}"#,
        "\n"
    );
    assert_eq!(text, expected);
    assert_eq!(told, ["3 rows: their logprobs", "3 rows: their trial and group", "3 rows: their advantages"]);
}

#[test]
fn a_trial_exported_for_its_group_trains_nothing() {
    let (text, _) = generic([masked(straight())]).unwrap();
    assert_eq!(text, "{\"reward\":null,\"token_ids\":[1,2,3,4,5,6],\"mask_ids\":[0,0,0,0,0,0]}\n");
    let (text, told) = details([masked(forked())]).unwrap();
    let expected = json!({
        "trial_name": "forked", "task_name": "org/task",
        "agent_result": {"rollout_details": []}, "verifier_result": null,
    });
    assert_eq!(parsed(&text), [expected]);
    assert!(told.contains(&"2 rows: nothing in them is trained".to_owned()), "{told:?}");
}

#[test]
fn details_are_lists_per_turn() {
    let (text, _) = details([straight()]).unwrap();
    let expected = concat!(
        r#"{"trial_name":"straight","task_name":"org/task","agent_result":{"rollout_details":["#,
        r#"{"prompt_token_ids":[[1,2],[1,2,3,4]],"completion_token_ids":[[3],[5,6]],"logprobs":[[-3.0],[-5.0,-6.0]],"#,
        r#""extra":{"call_id":["c0000","c0001"],"role":["main","main"],"token_version":[[0],[0,0]]}}]},"#,
        r#""verifier_result":{"rewards":{"reward":1.0}}}"#,
        "\n"
    );
    assert_eq!(text, expected);
}

#[test]
fn a_shared_turn_is_in_the_details_of_one_branch() {
    let (text, told) = details([forked()]).unwrap();
    let line = &parsed(&text)[0]["agent_result"]["rollout_details"];
    assert_eq!(line[0]["prompt_token_ids"], json!([[1, 2], [1, 2, 3, 4]]));
    assert_eq!(line[0]["completion_token_ids"], json!([[3], [5]]));
    assert_eq!(line[1]["prompt_token_ids"], json!([[1, 2, 3, 7]]));
    assert_eq!(line[1]["completion_token_ids"], json!([[8, 9]]));
    assert!(
        told.contains(&"1 calls: not trained on this branch, so not among its turns".to_owned()),
        "{told:?}"
    );
}

/// A detail has no field that would prevent a reader from training token 5.
#[test]
fn a_turn_that_is_trained_in_part_is_refused() {
    let mut trial = straight();
    trial.rows[0].loss_mask[4] = 0;
    let error = details([trial]).unwrap_err().to_string();
    assert!(error.contains("of call c0001 some tokens are trained and some are not"), "{error}");
}

#[test]
fn what_is_no_number_is_refused() {
    let mut named = straight();
    named.rows[0].rewards.insert("other".into(), f64::INFINITY);
    assert!(details([named]).is_err());
    assert!(generic([Trial { reward: Some(f64::NAN), ..straight() }]).is_err());
}

fn is_trained_in_part(row: &RolloutRow) -> bool {
    row.calls.iter().any(|call| {
        let mask = &row.loss_mask[usize::try_from(call.start).unwrap()..usize::try_from(call.end).unwrap()];
        mask.contains(&1) && mask.contains(&0)
    })
}

proptest! {
    #[test]
    fn generic_rollouts_read_back_equal(trial in trial()) {
        let (text, _) = generic([trial.clone()]).unwrap();
        for (row, line) in trial.rows.iter().zip(parsed(&text)) {
            prop_assert_eq!(line["reward"].as_f64(), trial.reward);
            prop_assert_eq!(&line["token_ids"], &json!(row.token_ids));
            prop_assert_eq!(&line["mask_ids"], &json!(row.loss_mask));
        }
    }

    /// Each trained token of a row is in one turn, and the prompt of that turn is the row up to the answer.
    #[test]
    fn details_read_back_equal(trial in trial()) {
        let Ok((text, _)) = details([trial.clone()]) else {
            prop_assert!(trial.rows.iter().any(is_trained_in_part));
            return Ok(());
        };
        let line = &parsed(&text)[0]["agent_result"]["rollout_details"];
        let trained: Vec<_> = trial.rows.iter().filter(|row| is_trained(row)).collect();
        prop_assert_eq!(line.as_array().unwrap().len(), trained.len());
        for (row, detail) in trained.into_iter().zip(line.as_array().unwrap()) {
            let lists = |name: &str| -> Vec<Vec<i32>> { serde_json::from_value(detail[name].clone()).unwrap() };
            let logprobs: Vec<Vec<f32>> = serde_json::from_value(detail["logprobs"].clone()).unwrap();
            let mut mask = vec![0; row.token_ids.len()];
            for ((prompt, completion), logprobs) in
                lists("prompt_token_ids").iter().zip(lists("completion_token_ids")).zip(logprobs)
            {
                let range = prompt.len()..prompt.len() + completion.len();
                prop_assert_eq!(&row.token_ids[..range.start], prompt);
                prop_assert_eq!(&row.token_ids[range.clone()], completion);
                prop_assert_eq!(&row.logprobs[range.clone()], logprobs);
                mask[range].fill(1);
            }
            prop_assert_eq!(&mask, &row.loss_mask);
        }
    }
}
