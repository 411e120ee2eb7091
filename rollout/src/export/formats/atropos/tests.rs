use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::export::exporter::GroupPlace;
use crate::export::testing::arbitrary::{exported, masked, trial};
use crate::export::testing::fixture::{forked, straight};

fn written(trials: impl IntoIterator<Item = Trial>) -> Result<(String, Vec<String>), ExportError> {
    let mut out = Vec::new();
    let told = exported(&mut out, AtroposExporter::new, trials)?;
    Ok((String::from_utf8(out).unwrap(), told))
}

fn parsed(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn without_advantage(trial: Trial) -> Trial {
    Trial { advantage: None, ..trial }
}

fn alone(trial: Trial) -> Trial {
    Trial { group: None, ..trial }
}

#[test]
fn a_group_is_one_body() {
    let (text, told) = written([straight(), forked()]).unwrap();
    let expected = concat!(
        r#"{"tokens":[[1,2,3,4,5,6],[1,2,3,4,5],[1,2,3,7,8,9]],"#,
        r#""masks":[[-100,-100,3,-100,5,6],[-100,-100,3,-100,5],[-100,-100,-100,-100,8,9]],"#,
        r#""scores":[1.0,0.0,0.0],"#,
        r#""advantages":[[0.0,0.0,0.5,0.0,0.5,0.5],[0.0,0.0,-0.5,0.0,-0.5],[0.0,0.0,0.0,0.0,-0.5,-0.5]],"#,
        r#""inference_logprobs":[[1.0,1.0,-3.0,1.0,-5.0,-6.0],[1.0,1.0,-3.0,1.0,-5.0],[1.0,1.0,1.0,1.0,-8.0,-9.0]],"#,
        r#""overrides":[{},{},{}]}"#,
        "\n"
    );
    assert_eq!(text, expected);
    let told_of =
        "1 rows: further branches of a trial, each a sample to a trainer that makes advantages of the scores";
    assert!(told.contains(&told_of.to_owned()), "{told:?}");
}

/// A fork would shift the mean that the trainer subtracts from the scores.
#[test]
fn forks_need_advantages() {
    let error = written([without_advantage(straight()), without_advantage(forked())]).unwrap_err();
    assert!(error.to_string().contains("trial forked, branch 1: Atropos would count"), "{error}");
    let (text, _) = written([alone(without_advantage(straight()))]).unwrap();
    assert_eq!(parsed(&text)[0].get("advantages"), None);
}

#[test]
fn a_trial_without_a_reward_keeps_the_group_whole_with_a_stand_in() {
    let stand_in = Trial { stand_in: Some(1.0), ..masked(straight()) };
    let (text, told) = written([without_advantage(straight()), stand_in]).unwrap();
    let body = &parsed(&text)[0];
    assert_eq!(body["scores"], json!([1.0, 1.0]));
    assert_eq!(body["masks"][1], json!([-100, -100, -100, -100, -100, -100]));
    assert_eq!(body["overrides"], json!([{}, {"set_advantage_to_zero": true}]));
    let told_of = "1 trials: without a reward, scored with a stand-in and not trained";
    assert!(told.contains(&told_of.to_owned()), "{told:?}");
}

#[test]
fn a_group_in_which_nothing_is_trained_is_left_out() {
    let (text, told) = written([masked(straight()), masked(forked())]).unwrap();
    assert_eq!((text.as_str(), told), ("", vec!["1 groups: in which nothing is trained".to_owned()]));
}

/// Atropos never batches a group whose size does not divide the largest size in its queue.
#[test]
fn groups_of_two_sizes_are_refused() {
    let in_group = |ordinal, trials| {
        move |trial| Trial { group: Some(GroupPlace { ordinal, trials }), ..without_advantage(trial) }
    };
    let pair = [straight(), straight()].map(in_group(0, 2));
    let error = written(pair.into_iter().chain([in_group(1, 1)(straight())])).unwrap_err().to_string();
    assert!(error.contains("its group has 1 sequences and the first group 2"), "{error}");
}

#[test]
fn a_group_that_is_not_whole_at_the_end_is_written_too() {
    let (text, _) = written([straight()]).unwrap();
    assert_eq!(parsed(&text)[0]["tokens"], json!([[1, 2, 3, 4, 5, 6]]));
}

#[test]
fn a_common_temperature_is_written() {
    let at = |first, second| {
        let mut trial = alone(straight());
        trial.rows[0].calls[0].temperature = first;
        trial.rows[0].calls[1].temperature = second;
        let (text, told) = written([trial]).unwrap();
        (parsed(&text)[0]["overrides"][0].clone(), told)
    };
    assert_eq!(at(Some(0.7), Some(0.7)).0, json!({"temperature": 0.7}));
    let told_of =
        "1 rows: their temperature (unknown, 0, or not one for the branch), which trainers take to be 1";
    for (first, second) in [(Some(0.7), Some(0.8)), (Some(0.7), None), (Some(0.0), Some(0.0))] {
        let (overrides, told) = at(first, second);
        assert_eq!(overrides, json!({}));
        assert!(told.contains(&told_of.to_owned()), "{told:?}");
    }
}

#[test]
fn what_is_no_number_is_refused() {
    assert!(written([alone(Trial { reward: Some(f64::NAN), ..straight() })]).is_err());
    assert!(written([alone(Trial { advantage: Some(f64::INFINITY), ..straight() })]).is_err());
}

proptest! {
    #[test]
    fn what_is_written_reads_back_equal(trials in proptest::collection::vec(trial(), 1..4)) {
        prop_assume!(trials.iter().flat_map(|trial| &trial.rows).any(|row| row.loss_mask.contains(&1)));
        let count = trials.len();
        let trials: Vec<_> = trials
            .into_iter()
            .map(|trial| Trial { group: Some(GroupPlace { ordinal: 7, trials: count }), ..trial })
            .collect();
        let (text, _) = written(trials.clone()).unwrap();
        let body = &parsed(&text)[0];
        let mut index = 0;
        for trial in &trials {
            for row in &trial.rows {
                prop_assert_eq!(&body["tokens"][index], &json!(row.token_ids));
                let masks: Vec<i32> = serde_json::from_value(body["masks"][index].clone()).unwrap();
                let mask: Vec<_> = masks.iter().map(|&id| u8::from(id != -100)).collect();
                prop_assert_eq!(&mask, &row.loss_mask);
                let logprobs: Vec<f32> = serde_json::from_value(body["inference_logprobs"][index].clone()).unwrap();
                let advantages: Vec<f64> = serde_json::from_value(body["advantages"][index].clone()).unwrap();
                for token in 0..row.token_ids.len() {
                    let expected = match row.loss_mask[token] {
                        1 => (row.token_ids[token], row.logprobs[token], trial.advantage.unwrap()),
                        _ => (-100, 1.0, 0.0),
                    };
                    prop_assert_eq!((masks[token], logprobs[token], advantages[token]), expected);
                }
                prop_assert_eq!(body["scores"][index].as_f64(), trial.reward);
                index += 1;
            }
        }
        prop_assert_eq!(body["tokens"].as_array().unwrap().len(), index);
    }
}
