//! Tests that all formats reject invalid rows and write nothing for these.

use std::io::Cursor;

use super::fixture::straight;
use crate::export::choices::Named;
use crate::export::exporter::Trial;
use crate::export::format::{Format, FormatOptions};
use crate::export::formats::parquet::ParquetReader;
use crate::export::pipeline::advantage::Advantage;

/// Exports a single spoiled trial, with the advantage that the format requires. Returns the rejection and the output.
fn refusal(format: Format, spoil: fn(&mut Trial)) -> (Option<String>, Vec<u8>) {
    let mut options = FormatOptions::default();
    options.prime_rl.assumed_temperature = Some(1.0);
    let mut trial = Trial { group: None, ..straight() };
    if format.advantage() == Advantage::None {
        trial.advantage = None;
    }
    spoil(&mut trial);
    let mut file = Cursor::new(Vec::new());
    let mut exporter = format.exporter(&mut file, &options).unwrap();
    let refusal = exporter.write(trial).err().map(|error| error.to_string());
    drop(exporter);
    (refusal, file.into_inner())
}

/// A function that spoils a trial, and the expected error.
type Spoil = (fn(&mut Trial), &'static str);

/// Each of these errors passes unnoticed in several trainers.
#[test]
fn broken_rows_are_refused_by_trial_and_place_and_leave_nothing() {
    let spoil: [Spoil; 5] = [
        (|trial| trial.rows[0].logprobs[2] = f32::NAN, "logprobs[2] is NaN"),
        (|trial| trial.rows[0].logprobs[5] = 0.5, "logprobs[5] is 0.5"),
        (|trial| trial.rows[0].logprobs.truncate(5), "its lists per token have 6 and [6, 6, 6, 5] values"),
        (|trial| trial.rows[0].has_media = true, "it held images, audio or video"),
        (|trial| trial.reward = Some(f64::NAN), "its reward is NaN"),
    ];
    // `rollout/1` represents any row. Its validity is checked when rows are selected.
    let trainers = Format::ALL.iter().filter(|format| !matches!(format, Format::Jsonl | Format::Parquet));
    for (&format, (spoil, told)) in trainers.flat_map(|format| spoil.iter().map(move |spoil| (format, spoil)))
    {
        let name = format.name();
        let (refusal, written) = refusal(format, *spoil);
        let refusal = refusal.unwrap_or_else(|| panic!("{name} takes it, though {told}"));
        assert!(refusal.starts_with("trial straight, branch 0: "), "{name}: {refusal}");
        assert!(refusal.contains(told), "{name}: {refusal}");
        assert_eq!(written, b"", "{name}");
    }
}

/// Otherwise a format that rejects everything would pass the test above.
#[test]
fn what_is_not_broken_is_taken() {
    for &format in Format::ALL {
        let (refusal, _) = refusal(format, |_| {});
        assert_eq!(refusal, None, "{}", format.name());
    }
}

#[test]
fn an_export_of_no_trial_holds_no_trial() {
    for format in Format::ALL {
        let mut file = Cursor::new(Vec::new());
        let exporter = format.exporter(&mut file, &FormatOptions::default()).unwrap();
        assert_eq!(exporter.finish().unwrap(), [], "{}", format.name());
        let written = file.into_inner();
        match format {
            Format::Parquet => {
                let mut rows = ParquetReader::new(bytes::Bytes::from(written)).unwrap();
                assert!(rows.next().is_none(), "a schema, and no row");
            }
            Format::PrimeRl => assert_eq!(written, [0xdd, 0, 0, 0, 0], "a list of none"),
            _ => assert_eq!(written, b"", "{}", format.name()),
        }
    }
}
