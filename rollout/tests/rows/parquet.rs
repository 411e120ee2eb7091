//! Parquet.

mod foreign;
mod other_writers;

use std::fs::File;

use bytes::Bytes;
use jiff::Timestamp;
use parquet::basic::{Compression, Encoding};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use proptest::prelude::*;
use rolltap_rollout::export::formats::jsonl::JsonlReader;
use rolltap_rollout::export::formats::parquet::{ParquetReader, ParquetWriter, ReadError};
use rolltap_rollout::row::{RolloutRow, SCHEMA_VERSION};

use crate::trials::any::trials;
use crate::trials::example;

fn written(rows: &[RolloutRow], rows_per_group: usize) -> Bytes {
    let mut writer = ParquetWriter::with_row_groups_of(Vec::new(), rows_per_group).unwrap();
    rows.iter().for_each(|row| writer.write(row).unwrap());
    writer.finish().unwrap().into()
}

fn read(file: Bytes) -> Vec<RolloutRow> {
    ParquetReader::new(file).unwrap().map(Result::unwrap).collect()
}

fn metadata(file: &Bytes) -> ParquetMetaData {
    SerializedFileReader::new(file.clone()).unwrap().metadata().clone()
}

/// Reads as far as possible and returns the first error.
fn first_error(file: Bytes) -> Option<ReadError> {
    match ParquetReader::new(file) {
        Ok(rows) => rows.filter_map(Result::err).next(),
        Err(error) => Some(error),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(rolltap_testing::sample(96, 960)))]

    #[test]
    fn every_valid_row_comes_back_with_the_same_bits(
        trials in prop::collection::vec(trials(), 0..4),
        rows_per_group in 1_usize..5,
    ) {
        let rows: Vec<_> = trials.into_iter().flat_map(|trial| trial.rows).collect();
        let read = read(written(&rows, rows_per_group));
        // `==` treats -0.0 and 0.0 as equal. The debug form distinguishes them and is exact for every finite number.
        prop_assert_eq!(format!("{read:?}"), format!("{rows:?}"));
    }

    #[test]
    fn arbitrary_bytes_are_an_error(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        footer in any::<u16>(),
        has_marks in any::<bool>(),
    ) {
        let mut file = bytes;
        if has_marks {
            file.splice(0..0, *b"PAR1");
            file.extend(u32::from(footer % 200).to_le_bytes());
            file.extend(*b"PAR1");
        }
        prop_assert!(first_error(file.into()).is_some());
    }

    #[test]
    fn damaged_files_are_rows_or_errors(
        trial in trials(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let mut file = Vec::from(written(&trial.rows, 2));
        for (place, byte) in damage {
            let place = place.index(file.len());
            file[place] = byte;
        }
        if let Some(cut) = cut {
            file.truncate(cut.index(file.len()));
        }
        drop(first_error(file.into()).map(|error| error.to_string()));
    }
}

#[test]
fn no_rows_are_a_file_with_a_schema() {
    let file = written(&[], 10);
    assert_eq!(metadata(&file).file_metadata().num_rows(), 0);
    assert!(read(file).is_empty());
}

#[test]
fn a_file_on_disk_is_read_as_well() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rollouts.parquet");
    let rows = example().rows;
    let mut writer = ParquetWriter::new(File::create(&path).unwrap()).unwrap();
    rows.iter().for_each(|row| writer.write(row).unwrap());
    writer.finish().unwrap();
    let read: Vec<_> = ParquetReader::new(File::open(&path).unwrap()).unwrap().map(Result::unwrap).collect();
    assert_eq!(read, rows);
}

#[test]
fn rows_are_spread_over_row_groups() {
    let rows: Vec<_> = std::iter::repeat_with(|| example().rows).take(40).flatten().collect();
    let file = written(&rows, 7);
    assert_eq!(metadata(&file).num_row_groups(), rows.len().div_ceil(7));
    assert_eq!(read(file), rows);
}

/// Parquet can hold values that JSON cannot. The checks report them, not the reader.
#[test]
fn rows_that_no_check_would_pass_come_back_too() {
    let mut row = example().rows[0].clone();
    row.logprobs = vec![f32::NAN, f32::INFINITY, f32::from_bits(0x7fc0_1234)];
    row.token_ids = vec![i32::MIN];
    row.loss_mask = vec![255];
    row.calls.clear();
    row.reward = Some(f64::NAN);
    let read = read(written(std::slice::from_ref(&row), 1));
    let bits = |row: &RolloutRow| row.logprobs.iter().map(|logprob| logprob.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&read[0]), bits(&row));
    assert_eq!(format!("{read:?}"), format!("{:?}", [row]));
}

#[test]
fn a_time_that_parquet_lacks_is_refused_and_leaves_no_trace() {
    let mut rows = example().rows;
    rows[1].calls[0].sampled_at = Timestamp::MAX;
    let mut writer = ParquetWriter::new(Vec::new()).unwrap();
    writer.write(&rows[0]).unwrap();
    let error = writer.write(&rows[1]).unwrap_err().to_string();
    assert!(error.starts_with("trial trial, branch 1: ") && error.contains("9999-"), "{error}");
    writer.write(&rows[2]).unwrap();
    assert_eq!(read(writer.finish().unwrap().into()), [rows[0].clone(), rows[2].clone()]);
}

#[test]
fn the_layout_is_the_one_promised() {
    let file = metadata(&written(&example().rows, 10));
    let about = file.file_metadata().key_value_metadata().unwrap();
    let value = |key: &str| about.iter().find(|pair| pair.key == key).and_then(|pair| pair.value.clone());
    assert_eq!(value("schema_version").as_deref(), Some(SCHEMA_VERSION));
    assert_eq!(value("writer").as_deref(), Some("rolltap"));
    assert_eq!(value("writer_version").as_deref(), Some(env!("CARGO_PKG_VERSION")));
    for column in file.row_group(0).columns() {
        let path = column.column_path().string();
        assert!(matches!(column.compression(), Compression::ZSTD(_)), "{path}");
        assert!(column.encodings().all(|encoding| !is_dictionary(encoding)), "{path}");
        let is_per_token = path.ends_with(".list.element") && !path.starts_with("suspicious.");
        assert_eq!(column.statistics().is_some(), !is_per_token && !is_long_text(&path), "{path}");
    }
}

fn is_dictionary(encoding: Encoding) -> bool {
    format!("{encoding:?}").contains("DICTIONARY")
}

fn is_long_text(path: &str) -> bool {
    [".sampling", ".messages", ".tools"].iter().any(|name| path.ends_with(name))
}

fn schema_text(file: &ParquetMetaData) -> String {
    let mut text = Vec::new();
    parquet::schema::printer::print_schema(&mut text, file.file_metadata().schema());
    String::from_utf8(text).unwrap()
}

/// The view of a reader in another language: names, types, and the nullable columns.
#[test]
fn the_schema_is_stable() {
    let text = schema_text(&metadata(&written(&[], 10)));
    let expected = [
        "REQUIRED BYTE_ARRAY trial_id (STRING);",
        "OPTIONAL BYTE_ARRAY group_id (STRING);",
        "REQUIRED group token_ids (LIST) {\n    REPEATED group list {\n      REQUIRED INT32 element;",
        "REQUIRED group loss_mask (LIST) {\n    REPEATED group list {\n      REQUIRED INT32 element (INTEGER(8,false));",
        "REQUIRED group logprobs (LIST) {\n    REPEATED group list {\n      REQUIRED FLOAT element;",
        "REQUIRED group version_labels (MAP) {\n    REPEATED group key_value {\n      REQUIRED BYTE_ARRAY key (STRING);\n      \
         REQUIRED BYTE_ARRAY value (STRING);",
        "OPTIONAL DOUBLE reward;",
        "OPTIONAL group suspicious (LIST) {\n    REPEATED group list {\n      REQUIRED BYTE_ARRAY element (STRING);",
        "OPTIONAL DOUBLE advantage;",
        "REQUIRED BOOLEAN has_media;",
        "REQUIRED group calls (LIST) {\n    REPEATED group list {\n      REQUIRED group element {",
        "REQUIRED INT64 sampled_at (TIMESTAMP(NANOS,true));",
        "OPTIONAL INT64 top_k;",
    ];
    for expected in expected {
        assert!(text.contains(expected), "{expected:?} is not in\n{text}");
    }
}

/// The columns that are newer than the file of the test below.
const NEWER: [&str; 1] = [" tools "];

/// The file was written by the version that used Arrow, from the rows beside it.
#[test]
fn a_file_written_through_arrow_has_the_same_schema_and_is_read() {
    let file = Bytes::from_static(include_bytes!("data/written_through_arrow.parquet"));
    let rows = JsonlReader::new(include_bytes!("data/written_through_arrow.jsonl").as_slice());
    let rows: Vec<_> = rows.map(Result::unwrap).collect();
    assert_eq!(format!("{:?}", read(file.clone())), format!("{rows:?}"));
    let (old, new) = (metadata(&file), metadata(&written(&rows, 3)));
    let new = schema_text(&new);
    let is_newer = |line: &&str| NEWER.iter().any(|name| line.contains(name));
    assert_eq!(new.lines().filter(is_newer).count(), NEWER.len(), "{new}");
    let known: Vec<_> = new.lines().filter(|line| !is_newer(line)).collect();
    assert_eq!(known, schema_text(&old).lines().collect::<Vec<_>>());
}

/// The file has the rows of `written_through_arrow.jsonl`, written by pyarrow 26 with its default compression, Snappy.
#[test]
fn a_file_of_pyarrow_is_read() {
    let rows = JsonlReader::new(include_bytes!("data/written_through_arrow.jsonl").as_slice());
    let rows: Vec<_> = rows.map(Result::unwrap).collect();
    let file = Bytes::from_static(include_bytes!("data/written_by_pyarrow.parquet"));
    assert_eq!(format!("{:?}", read(file)), format!("{rows:?}"));
}

/// pyarrow wrote the file with `compression="gzip"`.
#[test]
fn a_compression_that_is_not_read_is_named() {
    let error = first_error(Bytes::from_static(include_bytes!("data/written_with_gzip.parquet"))).unwrap();
    let error = error.to_string();
    assert!(error.starts_with("column schema_version is compressed with GZIP; "), "{error}");
}

#[test]
fn every_field_of_the_row_has_its_column() {
    let row = serde_json::to_value(&example().rows[0]).unwrap();
    let file = metadata(&written(&[], 10));
    let columns: Vec<_> =
        file.file_metadata().schema().get_fields().iter().map(|field| field.name()).collect();
    let fields: Vec<_> = row.as_object().unwrap().keys().collect();
    assert_eq!(columns, fields, "Parquet and JSON Lines have the same names in the same order");
}

#[test]
fn text_is_no_parquet() {
    let error = first_error(Bytes::from_static(b"{\"schema_version\":\"rollout/1\"}\n")).unwrap();
    assert!(error.to_string().starts_with("not a readable Parquet file: "), "{error}");
}

#[test]
fn fuzz_parquet() {
    let whole = written(&example().rows, 2);
    rolltap_testing::fuzz!("parquet", |bytes| {
        drop(first_error(Bytes::copy_from_slice(bytes)));
        // The bytes as edits of a whole file: positions and new values.
        let mut file = whole.to_vec();
        let (edits, _) = bytes.as_chunks::<3>();
        for &[low, high, value] in edits {
            let at = usize::from(u16::from_le_bytes([low, high])) % file.len();
            file[at] = value;
        }
        drop(first_error(file.into()));
    });
}
