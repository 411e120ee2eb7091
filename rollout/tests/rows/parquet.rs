//! Parquet.

use std::fs::File;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use parquet::basic::{Compression, Encoding, Repetition};
use parquet::data_type::ByteArray;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::{Type, TypePtr};
use proptest::prelude::*;
use rolltap_rollout::export::formats::parquet::{ParquetReader, ParquetWriter, ReadError};
use rolltap_rollout::row::{RolloutRow, SCHEMA_VERSION};

use crate::foreign::{self, Column, Value};
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

/// Returns the example's rows as another writer might store them: columns changed or omitted, and all of them nullable.
fn foreign(change: impl Fn(Column) -> Option<Column>) -> Bytes {
    let columns = foreign::columns(&written(&example().rows, 100));
    let columns: Vec<_> = columns.into_iter().filter_map(change).map(Column::optional).collect();
    foreign::file(&columns, &[1, 2])
}

/// Returns the example's rows with a column changed.
fn changed(name: &str, change: impl Fn(Column) -> Column) -> Bytes {
    foreign(|column| Some(if column.schema.name() == name { change(column) } else { column }))
}

fn numbers(schema: &str) -> Column {
    Column::new(schema, (0..3).map(|number| Some(Value::Int64(number))).collect())
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

    /// The pages are whole, but the lists and structs that their levels describe are not.
    #[test]
    fn levels_that_contradict_each_other_are_rows_or_errors(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<[u8; 2]>()), 1..4),
    ) {
        let mut columns = foreign::columns(&written(&example().rows, 100));
        let schema = metadata(&written(&[], 1)).file_metadata().schema_descr_ptr();
        for (leaf, level, [definition, repetition]) in damage {
            let leaf = leaf.index(schema.num_columns());
            let column = schema.column(leaf);
            let mut leaves = columns.iter_mut().flat_map(|column| &mut column.leaves);
            let leaf = leaves.nth(leaf).unwrap();
            let level = level.index(leaf.definitions.len());
            leaf.definitions[level] = i16::from(definition) % (column.max_def_level() + 1);
            // The writer counts rows by the levels that are 0.
            if leaf.repetitions[level] > 0 {
                leaf.repetitions[level] = 1 + i16::from(repetition) % column.max_rep_level();
            }
            let present = leaf.definitions.iter().filter(|&&level| level == column.max_def_level()).count();
            let value = leaf.values.first().cloned();
            if let Some(value) = value {
                leaf.values.resize(present, value);
            } else {
                leaf.definitions[level] = 0;
            }
        }
        drop(first_error(foreign::file(&columns, &[1, 2])).map(|error| error.to_string()));
    }
}

#[test]
fn a_struct_with_fields_of_different_lengths_is_an_error() {
    let error = first_error(changed("calls", |mut calls| {
        let start = &mut calls.leaves[6];
        start.definitions.insert(1, 1);
        start.repetitions.insert(1, 1);
        start.values.insert(1, Value::Int32(7));
        calls
    }));
    let error = error.unwrap().to_string();
    assert!(
        error.starts_with("row group 0, row 0 of the file, column calls: the file is damaged"),
        "{error}"
    );
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
    path.ends_with(".sampling") || path.ends_with(".messages")
}

/// The view of a reader in another language: names, types, and the nullable columns.
#[test]
fn the_schema_is_stable() {
    let file = metadata(&written(&[], 10));
    let mut text = Vec::new();
    parquet::schema::printer::print_schema(&mut text, file.file_metadata().schema());
    let text = String::from_utf8(text).unwrap();
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
fn columns_that_are_nullable_without_need_are_read() {
    assert_eq!(read(foreign(Some)), example().rows);
}

#[test]
fn unknown_columns_are_ignored_wherever_they_stand() {
    let mut columns = foreign::columns(&written(&example().rows, 100));
    columns.reverse();
    columns.insert(3, numbers("OPTIONAL INT64 surprise;"));
    columns.push(Column { schema: columns[0].schema.clone(), leaves: columns[0].leaves.clone() });
    assert_eq!(read(foreign::file(&columns, &[3])), example().rows);
}

#[test]
fn so_are_unknown_fields_of_calls() {
    let file = changed("calls", |calls| {
        let schema = with_fields_of_calls(&calls, |fields| {
            let surprise = numbers("REQUIRED INT64 surprise;").schema;
            [&[surprise], fields].concat()
        });
        let start = calls.leaves[6].clone();
        let values = start.values.iter().map(|_| Value::Int64(7)).collect();
        let leaves = [vec![foreign::Leaf { values, ..start }], calls.leaves].concat();
        Column { schema, leaves }
    });
    assert_eq!(read(file), example().rows);
}

/// Returns the type of the calls with other fields of a call.
fn with_fields_of_calls(calls: &Column, fields: impl FnOnce(&[TypePtr]) -> Vec<TypePtr>) -> TypePtr {
    let inside = |schema: &Type, change: &dyn Fn(&Type) -> Type| {
        let info = schema.get_basic_info();
        foreign::changed(schema, info.repetition(), |fields| vec![Arc::new(change(&fields[0]))])
    };
    let call = &calls.schema.get_fields()[0].get_fields()[0];
    let call = foreign::changed(call, Repetition::REQUIRED, fields);
    Arc::new(inside(&calls.schema, &|list| inside(list, &|_| call.clone())))
}

/// Other writers choose other names, and declare elements as nullable that never are.
#[test]
fn lists_with_nullable_elements_of_another_name_are_lists() {
    let file = changed("token_ids", |mut ids| {
        ids.leaves[0].definitions.iter_mut().for_each(|level| *level += i16::from(*level > 0));
        ids.with_schema("REQUIRED group token_ids (LIST) { REPEATED group bag { OPTIONAL INT32 item; } }")
    });
    assert_eq!(read(file), example().rows);
}

#[test]
fn lists_of_two_levels_are_lists() {
    let two_levels = "REQUIRED group token_ids (LIST) { REPEATED INT32 element; }";
    assert_eq!(read(changed("token_ids", |ids| ids.with_schema(two_levels))), example().rows);
    let mut columns = foreign::columns(&written(&example().rows, 100));
    let at = columns.iter().position(|column| column.schema.name() == "token_ids").unwrap();
    columns[at] = columns[at].clone().with_schema("REPEATED INT32 token_ids;");
    assert_eq!(read(foreign::file(&columns, &[2, 1])), example().rows);
}

#[test]
fn a_missing_column_is_named() {
    let without = foreign(|column| (column.schema.name() != "logprobs").then_some(column));
    let error = first_error(without).unwrap();
    assert!(matches!(&error, ReadError::Schema { column, .. } if column == "logprobs"), "{error}");
    assert!(error.to_string().contains("missing"), "{error}");
}

#[test]
fn a_column_that_an_earlier_rolltap_did_not_write_is_null() {
    let later = ["branch_reprefilled", "advantage", "origin", "suspicious"];
    let without = foreign(|column| (!later.contains(&column.schema.name())).then_some(column));
    let expected =
        example().rows.into_iter().map(|row| RolloutRow { branch_reprefilled: None, origin: None, ..row });
    assert_eq!(read(without), expected.collect::<Vec<_>>());
}

#[test]
fn so_is_what_it_did_not_write_of_calls() {
    let file = changed("calls", |mut calls| {
        let names = calls.schema.get_fields()[0].get_fields()[0].get_fields();
        calls.leaves.remove(names.iter().position(|field| field.name() == "model").unwrap());
        let without = |fields: &[TypePtr]| {
            fields.iter().filter(|field| field.name() != "model").cloned().collect::<Vec<_>>()
        };
        Column { schema: with_fields_of_calls(&calls, without), ..calls }
    });
    let mut expected = example().rows;
    expected.iter_mut().flat_map(|row| &mut row.calls).for_each(|call| call.model = None);
    assert_eq!(read(file), expected);
}

#[test]
fn a_column_of_another_type_is_named() {
    let wrong = |schema: &str| {
        let name = schema.split([' ', ';']).nth(2).unwrap();
        first_error(changed(name, |_| numbers(schema))).unwrap().to_string()
    };
    assert_eq!(
        wrong("REQUIRED INT64 branch_index;"),
        "not a file of rollout/1 rows: column branch_index: holds Int64, Int32 is expected"
    );
    let error = wrong("REQUIRED INT64 calls;");
    assert!(error.contains("column calls: holds Int64, List("), "{error}");
    let error = wrong("REQUIRED INT64 model (TIMESTAMP(MICROS,true));");
    assert!(error.contains("column model: holds INT64 ("), "{error}");
}

#[test]
fn a_null_where_none_may_be_is_placed() {
    let text = |text: &str| Some(Value::Text(ByteArray::from(text)));
    let names = Column::new("OPTIONAL BYTE_ARRAY task_id (STRING);", vec![text("a"), text("b"), None]);
    let error = first_error(changed("task_id", |_| names.clone())).unwrap();
    assert_eq!(
        error.to_string(),
        "row group 1, row 2 of the file, column task_id: is null, Utf8 is expected"
    );
    let error = first_error(changed("token_ids", |mut ids| {
        let leaf = &mut ids.leaves[0];
        leaf.definitions.iter_mut().for_each(|level| *level += i16::from(*level > 0));
        let null = leaf.values.iter().position(|id| matches!(id, Value::Int32(21))).unwrap();
        leaf.values.remove(null);
        leaf.definitions[null] -= 1;
        ids.with_schema("REQUIRED group token_ids (LIST) { REPEATED group list { OPTIONAL INT32 element; } }")
    }));
    assert_eq!(
        error.unwrap().to_string(),
        "row group 0, row 0 of the file, column token_ids[3]: is null, Int32 is expected"
    );
}

#[test]
fn a_mask_beyond_its_type_is_an_error() {
    let error = first_error(changed("loss_mask", |mut mask| {
        mask.leaves[0].values[1] = Value::Int32(256);
        mask
    }));
    assert_eq!(
        error.unwrap().to_string(),
        "row group 0, row 0 of the file, column loss_mask[1]: is 256, UInt8 is expected"
    );
}

#[test]
fn text_that_is_not_utf8_is_an_error() {
    let error = first_error(changed("model", |mut model| {
        model.leaves[0].values[2] = Value::Text(ByteArray::from(vec![0xff]));
        model
    }));
    let expected = "row group 1, row 2 of the file, column model: is not UTF-8, Utf8 is expected";
    assert_eq!(error.unwrap().to_string(), expected);
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
