//! Reads an answer and checks that it is complete.

use memchr::{memchr, memmem};

use crate::answer::Knobs;
use crate::clock::now_us;

/// The part of an answer that has arrived.
#[derive(Debug)]
pub(crate) struct Reading {
    is_stream: bool,
    expected: usize,
    has_times: bool,
    /// The bytes of an answer that does not stream, or the beginning of the next line of a stream.
    unread: Vec<u8>,
    /// The tokens of a stream.
    pub(crate) tokens: usize,
    /// Whether the last event of a stream has arrived.
    is_done: bool,
}

impl Reading {
    pub(crate) fn new(knobs: &Knobs, is_stream: bool) -> Self {
        Self {
            is_stream,
            expected: knobs.tokens,
            has_times: knobs.delay_us > 0,
            unread: Vec::new(),
            tokens: 0,
            is_done: false,
        }
    }

    /// Takes a part. Calls `token` for each token of a stream, with its microseconds since upstream's write if it is
    /// paced and otherwise 0.
    pub(crate) fn take(&mut self, mut part: &[u8], mut token: impl FnMut(u64)) {
        let came = now_us();
        while let Some(end) = memchr(b'\n', part).filter(|_| self.is_stream) {
            if self.unread.is_empty() {
                self.line(&part[..end], came, &mut token);
            } else {
                self.unread.extend_from_slice(&part[..end]);
                let line = std::mem::take(&mut self.unread);
                self.line(&line, came, &mut token);
            }
            part = &part[end + 1..];
        }
        self.unread.extend_from_slice(part);
    }

    fn line(&mut self, line: &[u8], came: u64, token: &mut impl FnMut(u64)) {
        if memmem::find(line, b"\"logprob\":").is_some() {
            self.tokens += 1;
            let at = memmem::find(line, b"\" @").filter(|_| self.has_times);
            token(at.map_or(0, |at| came.saturating_sub(number(&line[at + 3..]))));
        }
        self.is_done |= line == b"data: [DONE]";
    }

    /// Returns the number of tokens. Fails if the answer is not complete.
    pub(crate) fn finish(self) -> Result<usize, String> {
        let tokens = match self.is_stream {
            true => self.tokens,
            false => memmem::find_iter(&self.unread, b"\"logprob\":").count(),
        };
        match tokens == self.expected && (self.is_done || !self.is_stream) {
            true => Ok(tokens),
            false => {
                Err(format!("{tokens} of {} tokens, end of the stream: {}", self.expected, self.is_done))
            }
        }
    }
}

fn number(text: &[u8]) -> u64 {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |number, &byte| number * 10 + u64::from(byte - b'0'))
}
