use std::path::Path;

use rolltap_orchestrator::export::{ExportProgress, ExportSettings, Output, export};
use rolltap_proxy::store::Damage;
use rolltap_rollout::export::choices::Named;
use rolltap_testing::{rollout_row, write_jsonl};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::collection::Collection;

/// Two samples of a group, the first with the temperature and the messages that some formats need.
fn rows() -> Vec<Value> {
    let rows = [("one", 0, 1.0), ("two", 1, 0.0)].map(|(trial, sample, reward)| {
        let mut row = rollout_row(trial, "task", Some(reward), 3 + sample);
        row["sample_index"] = sample.into();
        let messages = json!([{"role": "user", "content": "q"}, {"role": "assistant", "content": trial}]);
        row["calls"][0]["messages"] = messages.to_string().into();
        row
    });
    rows.to_vec()
}

/// Exports the file as `rolltap export` does without options.
fn exported(format: Format, input: &Path, output: &Path) -> Vec<u8> {
    let settings = ExportSettings {
        input: input.to_owned(),
        reward_version: None,
        output: Output::File { path: output.to_owned(), replaces: true },
        format,
        options: FormatOptions::default(),
        messages: false,
        rules: format.rules(),
    };
    export(&settings, &ExportProgress::for_stderr(true), &CancellationToken::new()).unwrap();
    std::fs::read(output).unwrap()
}

/// Returns the lines of a file without the numbers that count the trials before them.
fn lines(file: &[u8]) -> Vec<Value> {
    let lines = std::str::from_utf8(file).unwrap().lines();
    let mut lines: Vec<Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    for line in lines.iter_mut().filter_map(Value::as_object_mut) {
        for counted in ["index", "rollout_id"] {
            line.remove(counted);
        }
    }
    lines
}

fn group(input: &Path) -> Vec<TrialContent> {
    let collection = Collection::open(&[input.to_owned()]).unwrap();
    let content = collection.jobs()[0].content();
    content.trials.iter().map(|entry| content.trial(&entry.id).unwrap()).collect()
}

#[test]
fn the_records_of_a_group_are_the_lines_of_its_export_in_every_format() {
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (dir.path().join("rows.jsonl"), dir.path().join("out"));
    write_jsonl(&input, &rows());
    let group = group(&input);
    for format in Format::ALL {
        let record = |id| Exported::of(*format, id, &group).unwrap().record().unwrap().bytes;
        let (one, two) = (record("one"), record("two"));
        let name = format.name();
        match format {
            // Its micro-batches pack trials, and each record has one.
            Format::PrimeRl => assert!(!one.is_empty() && !two.is_empty()),
            Format::Parquet => {
                assert_eq!([one, two].concat(), exported(Format::Jsonl, &input, &output));
            }
            format if format.has_record_per_group() => {
                assert_eq!(one, two, "{name}");
                assert_eq!(one, exported(*format, &input, &output), "{name}");
            }
            format => {
                let lines = lines(&[one, two].concat());
                assert_eq!(lines, self::lines(&exported(*format, &input, &output)), "{name}");
            }
        }
    }
}

#[test]
fn the_reason_is_that_of_the_trial_and_not_of_its_group() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("rows.jsonl");
    let mut rows = rows();
    let mut third = rows[0].clone();
    third["trial_id"] = "three".into();
    third["sample_index"] = 2.into();
    rows[1]["reward"] = Value::Null;
    rows[1]["reward_valid"] = false.into();
    rows.push(third);
    rows.iter_mut().for_each(|row| row["group_size"] = 3.into());
    write_jsonl(&input, &rows);
    let group = group(&input);
    assert!(Exported::of(Format::Skyrl, "one", &group).is_ok());
    let reason = Exported::of(Format::Skyrl, "two", &group).unwrap_err();
    assert_eq!(reason, NotExported::LeftOut(LeftOut::Failed));
}

#[test]
fn trials_that_are_open_damaged_or_without_tokens_have_no_record_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("rows.jsonl");
    let mut rows = rows();
    rows.iter_mut().for_each(|row| row["group_size"] = 3.into());
    write_jsonl(&input, &rows);
    let mut trials = group(&input);
    trials[1].export.is_unfinished = true;
    trials[0].export.is_group_closed = true;
    assert_eq!(Exported::of(Format::Jsonl, "two", &trials).unwrap_err(), NotExported::Unfinished);
    assert!(Exported::of(Format::Jsonl, "one", &trials).is_ok());

    // A trial that sampled nothing counts in the group of a trainer that compares rewards.
    trials[1].export.is_unfinished = false;
    trials[1].export.without_rows = trials[1].rows.first().map(Into::into);
    trials[1].rows.clear();
    assert_eq!(Exported::of(Format::Jsonl, "two", &trials).unwrap_err(), NotExported::NothingSampled);
    let stand_in = Exported::of(Format::Skyrl, "two", &trials).unwrap();
    assert_eq!((stand_in.trial.reward, stand_in.trial.rows[0].token_ids.len()), (Some(0.0), 2));

    trials[0].export.damage = Some(Damage {
        path: "capture-1".into(),
        at: 7,
        reason: "a wrong sum".to_owned(),
        is_torn_end: false,
    });
    let reason = Exported::of(Format::Jsonl, "one", &trials).unwrap_err().to_string();
    assert!(reason.starts_with("rolltap export fails: the captures are damaged: "), "{reason}");
    // An export does not read the calls of an incomplete trial.
    trials[0].export.is_unfinished = true;
    assert_eq!(Exported::of(Format::Jsonl, "one", &trials).unwrap_err(), NotExported::Unfinished);
}
