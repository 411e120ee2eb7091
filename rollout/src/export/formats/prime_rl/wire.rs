//! Encodes a micro-batch in msgpack: an array of sixteen fields without names, in the order of prime-rl's `MicroBatch`.

use std::io;

use rmp::encode as msgpack;

use super::PrimeRlOptions;
use super::pack::{MicroBatch, Sample};
use crate::export::exporter::ExportError;

/// The number of fields of `MicroBatch`.
const FIELDS: u32 = 16;
/// The number of last fields that are nil here: reference logprobs, routed experts, multimodal inputs (2), and weights
/// of the loss's components (3).
const ABSENT: usize = 7;

/// Returns the header of a list in the msgpack form (`array 32`) with a fixed size, so that its length can be replaced
/// later.
pub(super) fn list_header(length: u32) -> [u8; 5] {
    let [a, b, c, d] = length.to_be_bytes();
    // The short forms of msgpack depend on the length, which is not known yet.
    [0xdd, a, b, c, d]
}

/// Appends `batch`, padded by the options.
pub(super) fn encode(
    out: &mut Vec<u8>,
    batch: &MicroBatch,
    options: &PrimeRlOptions,
) -> Result<(), ExportError> {
    let multiple = options.pad_to_multiple_of.max(1);
    // The padding depends on the sum of the samples, so it is added only when a batch is complete.
    let filling = batch.tokens.next_multiple_of(multiple) - batch.tokens;
    encode_fields(&mut Fields { out, batch, filling }, &options.env_name).map_err(ExportError::Io)
}

fn encode_fields(fields: &mut Fields<'_>, env_name: &str) -> io::Result<()> {
    let seq_lens = fields.seq_lens();
    array(fields.out, FIELDS)?;
    fields.tokens(|sample, i| sample.row.token_ids.get(i), |out, id| sint(out, i64::from(*id)), &1)?;
    fields.tokens(|sample, i| sample.row.loss_mask.get(i), |out, on| boolean(out, *on == 1), &0)?;
    fields.tokens(Sample::advantage, float64, 0.0)?;
    fields.tokens(Sample::logprob, float32, 0.0)?;
    fields.positions()?;
    lengths(fields.out, &seq_lens)?;
    fields.tokens(|sample, i| sample.temperatures.get(i), |out, divisor| float64(out, *divisor), &1.0)?;
    fields.tokens(|_, _| Some(env_name), text, "")?;
    lengths(fields.out, &seq_lens)?;
    (0..ABSENT).try_for_each(|_| msgpack::write_nil(fields.out))
}

/// The fields of a micro-batch. A list is written directly from the samples, and then its padding.
struct Fields<'a> {
    out: &'a mut Vec<u8>,
    batch: &'a MicroBatch,
    /// The number of padding tokens after the last sample. They are not trained.
    filling: usize,
}

impl<'a> Fields<'a> {
    /// Writes a list with one value per token.
    fn tokens<T: Copy>(
        &mut self,
        value: impl Fn(&'a Sample, usize) -> Option<T>,
        write: impl Fn(&mut Vec<u8>, T) -> io::Result<()>,
        filling: T,
    ) -> io::Result<()> {
        array(self.out, length(self.batch.tokens + self.filling)?)?;
        for sample in &self.batch.samples {
            (0..sample.kept).filter_map(|i| value(sample, i)).try_for_each(|value| write(self.out, value))?;
        }
        (0..self.filling).try_for_each(|_| write(self.out, filling))
    }

    fn positions(&mut self) -> io::Result<()> {
        array(self.out, length(self.batch.tokens + self.filling)?)?;
        let lengths = self.batch.samples.iter().map(|sample| sample.kept).chain([self.filling]);
        lengths.flat_map(|length| 0..length).try_for_each(|position| unsigned(self.out, position))
    }

    /// Returns the number of tokens of each sample. The padding belongs to the last one.
    fn seq_lens(&self) -> Vec<usize> {
        let mut lengths: Vec<_> = self.batch.samples.iter().map(|sample| sample.kept).collect();
        lengths.iter_mut().next_back().into_iter().for_each(|last| *last += self.filling);
        lengths
    }
}

impl Sample {
    fn is_trained(&self, index: usize) -> Option<bool> {
        self.row.loss_mask.get(index).map(|&mask| mask == 1)
    }

    fn advantage(&self, index: usize) -> Option<f64> {
        Some(if self.is_trained(index)? { self.advantage } else { 0.0 })
    }

    fn logprob(&self, index: usize) -> Option<f32> {
        Some(if self.is_trained(index)? { *self.row.logprobs.get(index)? } else { 0.0 })
    }
}

fn lengths(out: &mut Vec<u8>, lengths: &[usize]) -> io::Result<()> {
    array(out, length(lengths.len())?)?;
    lengths.iter().try_for_each(|&length| unsigned(out, length))
}

fn length(length: usize) -> io::Result<u32> {
    u32::try_from(length).map_err(io::Error::other)
}

fn array(out: &mut Vec<u8>, length: u32) -> io::Result<()> {
    msgpack::write_array_len(out, length)?;
    Ok(())
}

fn sint(out: &mut Vec<u8>, value: i64) -> io::Result<()> {
    msgpack::write_sint(out, value)?;
    Ok(())
}

fn unsigned(out: &mut Vec<u8>, value: usize) -> io::Result<()> {
    msgpack::write_uint(out, u64::try_from(value).map_err(io::Error::other)?)?;
    Ok(())
}

fn boolean(out: &mut Vec<u8>, value: bool) -> io::Result<()> {
    msgpack::write_bool(out, value)
}

fn float64(out: &mut Vec<u8>, value: f64) -> io::Result<()> {
    msgpack::write_f64(out, value)?;
    Ok(())
}

fn float32(out: &mut Vec<u8>, value: f32) -> io::Result<()> {
    msgpack::write_f32(out, value)?;
    Ok(())
}

fn text(out: &mut Vec<u8>, value: &str) -> io::Result<()> {
    msgpack::write_str(out, value)?;
    Ok(())
}
