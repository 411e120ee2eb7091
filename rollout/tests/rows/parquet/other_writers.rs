//! Parquet files as other writers store rows, or as no writer does.

use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::Repetition;
use parquet::data_type::ByteArray;
use parquet::schema::types::{Type, TypePtr};
use proptest::prelude::*;
use rolltap_rollout::export::formats::parquet::ReadError;
use rolltap_rollout::row::RolloutRow;

use super::foreign::{self, Column, Value};
use super::{first_error, metadata, read, written};
use crate::trials::example;

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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(rolltap_testing::sample(96, 960)))]

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
