//! JSON Lines.

use std::io::{self, BufReader, Read};

use proptest::prelude::*;
use rolltap_rollout::export::formats::jsonl::{JsonlReader, JsonlWriter, ReadError, WriteError};
use rolltap_rollout::origin::Origin;
use rolltap_rollout::row::RolloutRow;

use crate::trials::any::trials;
use crate::trials::example;

fn written(rows: &[RolloutRow]) -> Vec<u8> {
    let mut writer = JsonlWriter::new(Vec::new());
    rows.iter().for_each(|row| writer.write(row).unwrap());
    writer.finish().unwrap()
}

fn line_error(text: &str) -> String {
    let errors = JsonlReader::new(text.as_bytes()).filter_map(Result::err);
    errors.map(|error| error.to_string()).collect::<Vec<_>>().join("; ")
}

fn example_line() -> String {
    String::from_utf8(written(&example().rows[..1])).unwrap()
}

proptest! {
    #[test]
    fn every_valid_row_comes_back_with_the_same_bits(trial in trials()) {
        let read: Vec<_> = JsonlReader::new(written(&trial.rows).as_slice()).map(Result::unwrap).collect();
        // `==` treats -0.0 and 0.0 as equal. The debug form distinguishes them and is exact for every finite number.
        prop_assert_eq!(format!("{read:?}"), format!("{:?}", trial.rows));
    }

    #[test]
    fn arbitrary_bytes_are_rows_or_errors(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        JsonlReader::new(bytes.as_slice()).for_each(|row| drop(row.map_err(|error| error.to_string())));
    }

    #[test]
    fn damaged_rows_are_rows_or_errors(
        trial in trials(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = written(&trial.rows);
        for (place, byte) in damage {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        JsonlReader::new(bytes.as_slice()).for_each(|row| drop(row.map_err(|error| error.to_string())));
    }
}

#[test]
fn no_rows_are_an_empty_file() {
    assert!(written(&[]).is_empty());
    assert_eq!(JsonlReader::new(io::empty()).count(), 0);
}

#[test]
fn blank_lines_are_skipped_and_counted() {
    let line = example_line();
    let line = line.trim_end();
    let text = format!("\n{line}\r\n  \n{line}\n\nnonsense");
    let rows: Vec<_> = JsonlReader::new(text.as_bytes()).collect();
    assert_eq!(rows.iter().filter(|row| row.is_ok()).count(), 2);
    assert_eq!(rows.len(), 3);
    assert!(rows[2].as_ref().unwrap_err().to_string().starts_with("line 6: "), "{:?}", rows[2]);
}

#[test]
fn an_error_names_line_and_field() {
    let line = example_line();
    let cases = [
        (line.replacen("\"trial_id\":", "\"trial\":", 1), "line 1: missing field `trial_id`"),
        (
            line.replacen("\"token_ids\":[", "\"token_ids\":[1.5,", 1),
            "line 1: token_ids[0]: invalid type: floating",
        ),
        (
            line.replacen("\"token_ids\":[", "\"token_ids\":[4294967296,", 1),
            "line 1: token_ids[0]: invalid value",
        ),
        (
            line.replacen("\"sampled_mask\":[", "\"sampled_mask\":[-1,", 1),
            "line 1: sampled_mask[0]: invalid value",
        ),
        (
            line.replacen("\"logprobs\":[", "\"logprobs\":[null,", 1),
            "line 1: logprobs[0]: invalid type: null",
        ),
        (
            line.replacen("\"call_id\":\"", "\"call_id\":7,\"x\":\"", 1),
            "line 1: calls[0].call_id: invalid type",
        ),
        (line.replacen("1970-", "yesterday", 1), "line 1: calls[0].sampled_at: "),
        (format!("{} {{}}", line.trim_end()), "line 1: trailing characters"),
        (line[..line.len() / 2].to_owned(), "line 1: "),
    ];
    for (text, expected) in cases {
        let error = line_error(&text);
        assert!(error.starts_with(expected), "{error:?} does not start with {expected:?}");
        assert!(!error.contains("at line"), "{error:?} counts lines twice");
    }
}

#[test]
fn reading_goes_on_after_a_bad_line() {
    let line = example_line();
    let text = format!("{line}{{}}\n{line}");
    let rows: Vec<_> = JsonlReader::new(text.as_bytes()).map(|row| row.is_ok()).collect();
    assert_eq!(rows, [true, false, true]);
}

#[test]
fn unknown_keys_are_ignored() {
    let text = example_line().replacen('{', "{\"surprise\":0.5,", 1);
    let row = JsonlReader::new(text.as_bytes()).next().unwrap().unwrap();
    assert_eq!(row, example().rows[0]);
}

/// A `null` would be read as "no reward", which has another meaning.
#[test]
fn a_line_of_an_earlier_rolltap_was_captured() {
    let line = example_line();
    let earlier = line.replace(",\"origin\":\"captured\"", "");
    assert_ne!(earlier, line);
    let row = JsonlReader::new(earlier.as_bytes()).next().unwrap().unwrap();
    assert_eq!((&row.origin, Origin::of(&row)), (&None, Some(Origin::Captured)));
}

#[test]
fn numbers_that_json_lacks_are_refused() {
    type Spoil = fn(&mut RolloutRow);
    let spoil: [(&str, Spoil); 6] = [
        ("reward", |row| row.reward = Some(f64::NAN)),
        ("advantage", |row| row.advantage = Some(f64::NEG_INFINITY)),
        ("rewards[\"x\"]", |row| row.rewards.extend([("x".to_owned(), f64::INFINITY)])),
        ("logprobs[2]", |row| row.logprobs[2] = f32::NEG_INFINITY),
        ("calls[1].temperature", |row| row.calls[1].temperature = Some(f64::NAN)),
        ("calls[1].top_p", |row| row.calls[1].top_p = Some(f64::NAN)),
    ];
    for (expected, spoil) in spoil {
        let mut row = example().rows[0].clone();
        spoil(&mut row);
        let mut writer = JsonlWriter::new(Vec::new());
        let error = writer.write(&row).unwrap_err();
        assert!(matches!(&error, WriteError::NotFinite { field, .. } if field == expected), "{error}");
        assert!(writer.finish().unwrap().is_empty());
    }
}

#[test]
fn a_broken_input_is_reported_once() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the disk is gone"))
        }
    }
    let rows: Vec<_> = JsonlReader::new(BufReader::new(Broken)).collect();
    assert!(matches!(rows.as_slice(), [Err(ReadError::Io { line: 1, .. })]), "{rows:?}");
}

#[test]
fn fuzz_jsonl() {
    rolltap_testing::fuzz!("jsonl", |text| {
        for row in JsonlReader::new(text).filter_map(Result::ok) {
            let read: Vec<_> = JsonlReader::new(written(std::slice::from_ref(&row)).as_slice()).collect();
            let [Ok(read)] = &read[..] else { panic!("{read:?}") };
            // The debug form distinguishes -0.0 and 0.0.
            assert_eq!(format!("{read:?}"), format!("{row:?}"));
        }
    });
}
