use std::io::Cursor;

use proptest::prelude::*;
use rmp::decode as msgpack;

use super::*;
use crate::export::testing::arbitrary::{exported, masked, trial};
use crate::export::testing::fixture::{forked, straight};

fn options() -> PrimeRlOptions {
    PrimeRlOptions { env_name: "e".into(), assumed_temperature: Some(0.5), ..PrimeRlOptions::default() }
}

fn written(
    options: &PrimeRlOptions,
    trials: impl IntoIterator<Item = Trial>,
) -> Result<(Vec<u8>, Vec<String>), ExportError> {
    let mut out = Vec::new();
    let told = exported(&mut out, |out| PrimeRlExporter::new(Cursor::new(out), options.clone()), trials)?;
    Ok((out, told))
}

fn refusal(options: &PrimeRlOptions, trial: Trial) -> String {
    written(options, [trial]).unwrap_err().to_string()
}

/// A `MicroBatch` as prime-rl decodes it.
#[derive(Debug, Default, PartialEq)]
struct Read {
    input_ids: Vec<i64>,
    loss_mask: Vec<bool>,
    advantages: Vec<f64>,
    inference_logprobs: Vec<f32>,
    position_ids: Vec<i64>,
    sequence_lengths: Vec<i64>,
    temperatures: Vec<f64>,
    env_names: Vec<String>,
    seq_lens: Vec<i64>,
}

fn list<T>(bytes: &mut &[u8], mut read: impl FnMut(&mut &[u8]) -> T) -> Vec<T> {
    let length = msgpack::read_array_len(bytes).unwrap();
    (0..length).map(|_| read(bytes)).collect()
}

fn string(bytes: &mut &[u8]) -> String {
    let length = msgpack::read_str_len(bytes).unwrap();
    let (text, rest) = bytes.split_at(length as usize);
    *bytes = rest;
    String::from_utf8(text.to_vec()).unwrap()
}

fn batch(bytes: &mut &[u8]) -> Read {
    assert_eq!(msgpack::read_array_len(bytes).unwrap(), 16);
    let read = Read {
        input_ids: list(bytes, |bytes| msgpack::read_int(bytes).unwrap()),
        loss_mask: list(bytes, |bytes| msgpack::read_bool(bytes).unwrap()),
        advantages: list(bytes, |bytes| msgpack::read_f64(bytes).unwrap()),
        inference_logprobs: list(bytes, |bytes| msgpack::read_f32(bytes).unwrap()),
        position_ids: list(bytes, |bytes| msgpack::read_int(bytes).unwrap()),
        sequence_lengths: list(bytes, |bytes| msgpack::read_int(bytes).unwrap()),
        temperatures: list(bytes, |bytes| msgpack::read_f64(bytes).unwrap()),
        env_names: list(bytes, string),
        seq_lens: list(bytes, |bytes| msgpack::read_int(bytes).unwrap()),
    };
    (0..7).for_each(|_| msgpack::read_nil(bytes).unwrap());
    read
}

fn batches(bytes: &[u8]) -> Vec<Read> {
    let mut rest = bytes;
    let batches = list(&mut rest, batch);
    assert!(rest.is_empty());
    batches
}

fn names(count: usize) -> Vec<String> {
    vec!["e".to_owned(); count]
}

/// The ids are 1 2 [3] 4 [5 6]. The logits that predict 3, 5 and 6 are at 2, 4 and 5.
#[test]
fn a_straight_trial_is_one_sample() {
    let (bytes, told) = written(&options(), [straight()]).unwrap();
    let expected = Read {
        input_ids: vec![1, 2, 3, 4, 5, 6],
        loss_mask: vec![false, false, true, false, true, true],
        advantages: vec![0.0, 0.0, 0.5, 0.0, 0.5, 0.5],
        inference_logprobs: vec![0.0, 0.0, -3.0, 0.0, -5.0, -6.0],
        position_ids: vec![0, 1, 2, 3, 4, 5],
        sequence_lengths: vec![6],
        temperatures: vec![1.0, 0.5, 1.0, 0.5, 0.5, 1.0],
        env_names: names(6),
        seq_lens: vec![6],
    };
    assert_eq!(batches(&bytes), [expected]);
    assert_eq!(told, ["1 rows: their trial, group and reward (a micro-batch has the advantage alone)"]);
}

#[test]
fn the_bytes_are_these() {
    let mut trial = straight();
    let row = &mut trial.rows[0];
    for list in [&mut row.token_ids, &mut row.token_version] {
        list.truncate(3);
    }
    for mask in [&mut row.loss_mask, &mut row.trainable_mask] {
        mask.truncate(3);
    }
    row.logprobs.truncate(3);
    row.calls.truncate(1);
    let (bytes, _) = written(&options(), [trial]).unwrap();
    let half = [0xcb, 0x3f, 0xe0, 0, 0, 0, 0, 0, 0];
    let one = [0xcb, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0];
    let nought = [0xcb, 0, 0, 0, 0, 0, 0, 0, 0];
    let parts: [&[u8]; 18] = [
        &[0xdd, 0, 0, 0, 1],
        &[0xdc, 0, 16],
        &[0x93, 1, 2, 3],
        &[0x93, 0xc2, 0xc2, 0xc3],
        &[0x93],
        &nought,
        &nought,
        &half,
        &[0x93, 0xca, 0, 0, 0, 0, 0xca, 0, 0, 0, 0, 0xca, 0xc0, 0x40, 0, 0],
        &[0x93, 0, 1, 2],
        &[0x91, 3],
        &[0x93],
        &one,
        &half,
        &one,
        &[0x93, 0xa1, b'e', 0xa1, b'e', 0xa1, b'e'],
        &[0x91, 3],
        &[0xc0; 7],
    ];
    assert_eq!(bytes, parts.concat());
}

#[test]
fn branches_are_packed_with_positions_of_their_own_and_filled_up() {
    let (bytes, _) = written(&PrimeRlOptions { pad_to_multiple_of: 8, ..options() }, [forked()]).unwrap();
    let read = batches(&bytes);
    assert_eq!(read.len(), 1);
    assert_eq!(read[0].input_ids, [1, 2, 3, 4, 5, 1, 2, 3, 7, 8, 9, 1, 1, 1, 1, 1]);
    assert_eq!(read[0].position_ids, [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4]);
    assert_eq!((&*read[0].seq_lens, &*read[0].sequence_lengths), (&[5, 11][..], &[5, 11][..]));
    let trained: Vec<_> = (0..16).filter(|&index| read[0].loss_mask[index]).collect();
    assert_eq!(trained, [2, 4, 9, 10]);
    assert_eq!((read[0].temperatures[3], read[0].temperatures[7]), (0.5, 1.0));
    assert_eq!(read[0].env_names[10..12], ["e".to_owned(), String::new()]);
}

#[test]
fn what_has_no_room_begins_another_micro_batch() {
    let (bytes, _) = written(&PrimeRlOptions { seq_len: 10, ..options() }, [forked()]).unwrap();
    assert_eq!(batches(&bytes).iter().map(|read| &*read.seq_lens).collect::<Vec<_>>(), [[6], [5]]);
    let many = std::iter::repeat_with(straight).take(20);
    let (bytes, _) = written(&PrimeRlOptions { seq_len: 6, ..options() }, many).unwrap();
    assert_eq!(batches(&bytes).len(), 20);
}

#[test]
fn an_overlong_sequence_is_cut_and_reported() {
    let (bytes, told) = written(&PrimeRlOptions { seq_len: 5, ..options() }, [straight()]).unwrap();
    assert_eq!(batches(&bytes)[0].input_ids, [1, 2, 3, 4, 5]);
    assert!(told.contains(&"1 trained tokens: beyond the sequence length".to_owned()), "{told:?}");
    assert!(told.contains(&"1 rows: what of them is beyond the sequence length".to_owned()), "{told:?}");
}

#[test]
fn what_trains_nothing_is_left_out() {
    let (bytes, told) = written(&options(), [masked(forked())]).unwrap();
    assert_eq!(
        (bytes, told),
        (vec![0xdd, 0, 0, 0, 0], vec!["2 rows: nothing in them is trained".to_owned()])
    );
}

#[test]
fn raw_logprobs_are_of_logits_that_nothing_divided() {
    let mut trial = straight();
    trial.rows[0].logprobs_mode = "raw_logprobs".into();
    trial.rows[0].calls[0].temperature = Some(0.7);
    let (bytes, _) = written(&options(), [trial]).unwrap();
    assert_eq!(batches(&bytes)[0].temperatures, [1.0; 6]);
}

#[test]
fn what_would_train_something_wrong_is_refused() {
    let unknown = PrimeRlOptions { assumed_temperature: None, ..options() };
    assert!(refusal(&unknown, straight()).contains("nobody recorded the temperature that call c0000"));
    let mut greedy = straight();
    greedy.rows[0].calls[1].temperature = Some(0.0);
    assert!(refusal(&options(), greedy).contains("call c0001 was sampled at temperature 0"));
    assert!(refusal(&options(), Trial { advantage: None, ..straight() }).contains("--advantage"));
    let mut not_a_number = straight();
    not_a_number.rows[0].logprobs[4] = f32::NAN;
    assert!(refusal(&options(), not_a_number).contains("logprobs[4] is NaN"));
    let mut too_short = straight();
    too_short.rows[0].logprobs.pop();
    assert!(refusal(&options(), too_short).contains("lists per token"));
}

#[test]
fn a_list_within_a_file_leaves_what_is_before_it() {
    let mut out = b"head".to_vec();
    let mut cursor = Cursor::new(&mut out);
    cursor.set_position(4);
    let mut exporter = Box::new(PrimeRlExporter::new(cursor, options()));
    exporter.write(straight()).unwrap();
    exporter.finish().unwrap();
    assert_eq!(&out[..4], b"head");
    assert_eq!(batches(&out[4..]).len(), 1);
}

proptest! {
    #[test]
    fn what_is_written_reads_back_equal(trials in proptest::collection::vec(trial(), 1..5), seq_len in 20_usize..60) {
        let options = PrimeRlOptions { seq_len, ..options() };
        let (bytes, _) = written(&options, trials.clone()).unwrap();
        let mut samples = Vec::new();
        for read in batches(&bytes) {
            prop_assert!(read.input_ids.len() <= seq_len);
            let mut start = 0;
            for &length in &read.seq_lens {
                let range = start..start + usize::try_from(length).unwrap();
                start = range.end;
                let ids: Vec<_> = read.input_ids[range.clone()].iter().map(|&id| i32::try_from(id).unwrap()).collect();
                let mask: Vec<_> = read.loss_mask[range.clone()].iter().map(|&on| u8::from(on)).collect();
                let advantages = read.advantages[range.clone()].iter().map(|value| value.to_bits()).collect::<Vec<_>>();
                let logprobs = read.inference_logprobs[range].iter().map(|value| value.to_bits()).collect::<Vec<_>>();
                samples.push((ids, mask, advantages, logprobs));
            }
            prop_assert_eq!(start, read.input_ids.len());
        }
        let mut expected = Vec::new();
        for trial in &trials {
            for row in &trial.rows {
                let kept = row.token_ids.len().min(seq_len);
                let mask = row.loss_mask[..kept].to_vec();
                if !mask.contains(&1) {
                    continue;
                }
                let advantages = mask.iter().map(|&on| if on == 1 { trial.advantage.unwrap() } else { 0.0 });
                let logprobs = row.logprobs.iter().zip(&mask).map(|(lp, &on)| if on == 1 { *lp } else { 0.0 });
                let bits = (advantages.map(f64::to_bits).collect(), logprobs.map(f32::to_bits).collect());
                expected.push((row.token_ids[..kept].to_vec(), mask, bits.0, bits.1));
            }
        }
        samples.sort();
        expected.sort();
        prop_assert_eq!(samples, expected);
    }
}
