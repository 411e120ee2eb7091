use proptest::prelude::*;
use serde::Deserialize;
use serde_json::Value;

use super::*;
use crate::export::testing::arbitrary::{exported, masked, trial};
use crate::export::testing::fixture::{forked, straight};

fn written(trials: impl IntoIterator<Item = Trial>) -> Result<(String, Vec<String>), ExportError> {
    let mut out = Vec::new();
    let told = exported(&mut out, TinkerExporter::new, trials)?;
    Ok((String::from_utf8(out).unwrap(), told))
}

fn refusal(trial: Trial) -> String {
    written([trial]).unwrap_err().to_string()
}

/// The straight trial's ids are 1 2 [3] 4 [5 6]. Each place describes the token after it.
#[test]
fn a_straight_trial_is_one_datum() {
    let (text, told) = written([straight()]).unwrap();
    let expected = concat!(
        r#"{"model_input":{"chunks":[{"tokens":[1,2,3,4,5],"type":"encoded_text"}]},"loss_fn_inputs":{"#,
        r#""target_tokens":{"data":[2,3,4,5,6],"dtype":"int64","shape":[5]},"#,
        r#""logprobs":{"data":[0.0,-3.0,0.0,-5.0,-6.0],"dtype":"float32","shape":[5]},"#,
        r#""advantages":{"data":[0.0,0.5,0.0,0.5,0.5],"dtype":"float32","shape":[5]}}}"#,
        "\n"
    );
    assert_eq!(text, expected);
    assert_eq!(told, ["1 rows: their trial, group and reward (a datum has the advantage alone)"]);
}

#[test]
fn a_shared_token_is_trained_by_one_branch() {
    let (text, _) = written([forked()]).unwrap();
    let expected = concat!(
        r#"{"model_input":{"chunks":[{"tokens":[1,2,3,4],"type":"encoded_text"}]},"loss_fn_inputs":{"#,
        r#""target_tokens":{"data":[2,3,4,5],"dtype":"int64","shape":[4]},"#,
        r#""logprobs":{"data":[0.0,-3.0,0.0,-5.0],"dtype":"float32","shape":[4]},"#,
        r#""advantages":{"data":[0.0,-0.5,0.0,-0.5],"dtype":"float32","shape":[4]}}}"#,
        "\n",
        r#"{"model_input":{"chunks":[{"tokens":[1,2,3,7,8],"type":"encoded_text"}]},"loss_fn_inputs":{"#,
        r#""target_tokens":{"data":[2,3,7,8,9],"dtype":"int64","shape":[5]},"#,
        r#""logprobs":{"data":[0.0,0.0,0.0,-8.0,-9.0],"dtype":"float32","shape":[5]},"#,
        r#""advantages":{"data":[0.0,0.0,0.0,-0.5,-0.5],"dtype":"float32","shape":[5]}}}"#,
        "\n",
    );
    assert_eq!(text, expected);
}

#[test]
fn what_trains_nothing_has_no_datum_and_needs_no_advantage() {
    let (text, told) = written([masked(forked())]).unwrap();
    assert_eq!((text.as_str(), told), ("", vec!["2 rows: nothing in them is trained".to_owned()]));
}

#[test]
fn what_would_train_something_wrong_is_refused() {
    assert!(refusal(Trial { advantage: None, ..straight() }).contains("--advantage"));
    assert!(refusal(Trial { advantage: Some(f64::NAN), ..straight() }).contains("its advantage is NaN"));
    assert!(refusal(Trial { advantage: Some(1e300), ..straight() }).contains("is inf"));
    let mut with_media = straight();
    with_media.rows[0].has_media = true;
    assert!(refusal(with_media).contains("images"));
    let mut first = straight();
    first.rows[0].loss_mask[0] = 1;
    assert!(refusal(first).contains("none before it"));
    let mut not_a_number = straight();
    not_a_number.rows[0].logprobs[2] = f32::NEG_INFINITY;
    assert!(refusal(not_a_number).contains("logprobs[2] is -inf"));
}

#[test]
fn policy_versions_are_reported() {
    let mut trial = straight();
    trial.rows[0].token_version[2] = 3;
    assert!(written([trial]).unwrap().1.contains(&"1 rows: their policy versions".to_owned()));
}

#[derive(Deserialize)]
struct Read<T> {
    data: Vec<T>,
    shape: Vec<usize>,
}

fn tensor<T: for<'de> Deserialize<'de>>(datum: &Value, name: &str) -> Read<T> {
    serde_json::from_value(datum["loss_fn_inputs"][name].clone()).unwrap()
}

proptest! {
    #[test]
    fn what_is_written_reads_back_equal(trial in trial()) {
        let (text, _) = written([trial.clone()]).unwrap();
        let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        for row in trial.rows.iter().filter(|row| is_trained(row)) {
            let datum = lines.next().unwrap();
            let mut ids: Vec<i32> = serde_json::from_value(datum["model_input"]["chunks"][0]["tokens"].clone()).unwrap();
            let targets: Read<i32> = tensor(&datum, "target_tokens");
            prop_assert_eq!(&targets.data, &row.token_ids[1..]);
            prop_assert_eq!(targets.shape, [row.token_ids.len() - 1]);
            ids.extend(targets.data.last());
            prop_assert_eq!(&ids, &row.token_ids);
            let (logprobs, advantages): (Read<f32>, Read<f32>) = (tensor(&datum, "logprobs"), tensor(&datum, "advantages"));
            for index in 1..ids.len() {
                let is_on = row.loss_mask[index] == 1;
                let expected = if is_on { (row.logprobs[index], trial.advantage.unwrap() as f32) } else { (0.0, 0.0) };
                prop_assert_eq!((logprobs.data[index - 1], advantages.data[index - 1]), expected);
            }
        }
        prop_assert!(lines.next().is_none());
    }
}
