//! Parts of rows, read alone.

use bytes::Bytes;
use proptest::prelude::*;
use rolltap_rollout::export::formats::jsonl::{JsonlReader, JsonlWriter};
use rolltap_rollout::export::formats::parquet::{ParquetReader, ParquetWriter};
use rolltap_rollout::export::pipeline::projection::{RowAge, RowFacts, RowPart};
use rolltap_rollout::row::RolloutRow;

use crate::trials::any::trials;
use crate::trials::example;

fn jsonl(rows: &[RolloutRow]) -> Vec<u8> {
    let mut writer = JsonlWriter::new(Vec::new());
    rows.iter().for_each(|row| writer.write(row).unwrap());
    writer.finish().unwrap()
}

fn parquet(rows: &[RolloutRow]) -> Bytes {
    let mut writer = ParquetWriter::new(Vec::new()).unwrap();
    rows.iter().for_each(|row| writer.write(row).unwrap());
    writer.finish().unwrap().into()
}

/// Reads the parts from both formats. Returns their debug form, which distinguishes -0.0 from 0.0.
fn read<T: RowPart + std::fmt::Debug>(rows: &[RolloutRow]) -> [Vec<String>; 2] {
    let of_jsonl =
        JsonlReader::<_, T>::of_parts(&*jsonl(rows)).map(|part| format!("{:?}", part.unwrap())).collect();
    let of_parquet = ParquetReader::<T>::of_parts(parquet(rows)).unwrap();
    [of_jsonl, of_parquet.map(|part| format!("{:?}", part.unwrap())).collect()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(rolltap_testing::sample(64, 640)))]

    #[test]
    fn a_part_equals_that_of_the_whole_row(trial in trials()) {
        let facts: Vec<_> = trial.rows.iter().map(|row| format!("{:?}", RowFacts::from(row))).collect();
        prop_assert_eq!(read::<RowFacts>(&trial.rows), [facts.clone(), facts]);
        let ages: Vec<_> = trial.rows.iter().map(|row| format!("{:?}", RowAge::from(row))).collect();
        prop_assert_eq!(read::<RowAge>(&trial.rows), [ages.clone(), ages]);
    }

    #[test]
    fn damaged_rows_are_parts_or_errors(
        trial in trials(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut lines = jsonl(&trial.rows);
        let mut file = parquet(&trial.rows).to_vec();
        for (place, byte) in damage {
            for bytes in [&mut lines, &mut file] {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
        }
        JsonlReader::<_, RowAge>::of_parts(&*lines).for_each(|part| drop(part.map_err(|error| error.to_string())));
        if let Ok(parts) = ParquetReader::<RowAge>::of_parts(Bytes::from(file)) {
            parts.for_each(|part| drop(part.map_err(|error| error.to_string())));
        }
    }
}

/// Only the requested columns must be present.
#[test]
fn a_part_that_is_missing_is_named() {
    let line =
        String::from_utf8(jsonl(&example().rows[..1])).unwrap().replacen("\"trainable_mask\":", "\"x\":", 1);
    let error = JsonlReader::<_, RowAge>::of_parts(line.as_bytes()).next().unwrap().unwrap_err();
    assert_eq!(error.to_string().split(" (").next(), Some("line 1: missing field `trainable_mask`"));
    let facts = JsonlReader::<_, RowFacts>::of_parts(line.as_bytes()).next().unwrap();
    assert!(facts.is_ok(), "which has no such field: {facts:?}");
}
