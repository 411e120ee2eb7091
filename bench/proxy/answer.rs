//! The bytes of the upstream's answers, in the form of vLLM's.

use std::fmt::Write as _;
use std::sync::LazyLock;

use bytes::Bytes;

use crate::clock::now_us;

/// The settings of an answer, which a request passes in the model's name.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Knobs {
    /// The number of prompt ids to report. With 0, it is a quarter of the request's bytes, as in a conversation.
    pub(crate) prompt: usize,
    /// The number of sampled tokens.
    pub(crate) tokens: usize,
    /// Microseconds between two tokens of a stream. If it is not 0, the text of each token is the time of its write.
    pub(crate) delay_us: u64,
    /// If true, the sampled ids are those that the next turn's prompt has in their place, as with a real model.
    /// Otherwise they are the same in each answer, and no prompt contains an earlier answer.
    pub(crate) continues: bool,
}

/// The largest number of prompt ids.
const MOST: usize = 65_536;

impl Knobs {
    pub(crate) fn as_model(&self) -> String {
        format!("{}-{}-{}-{}", self.prompt, self.tokens, self.delay_us, u8::from(self.continues))
    }

    /// Reads the settings of a request. Returns `None` if the request's model is not such a name.
    pub(crate) fn of_request(body: &[u8]) -> Option<Self> {
        let at = memchr::memmem::find(body, b"\"model\":\"")? + 9;
        let end = at + memchr::memchr(b'"', &body[at..])?;
        let numbers = std::str::from_utf8(&body[at..end]).ok()?.split('-').map(|number| number.parse().ok());
        let [prompt, tokens, delay_us, continues] = numbers.collect::<Option<Vec<u64>>>()?[..] else {
            return None;
        };
        Some(Self { prompt: prompt as usize, tokens: tokens as usize, delay_us, continues: continues == 1 })
    }
}

const WORDS: [&str; 12] =
    [" the", " return", "\\n", " value", " of", " _index", " list", " if", " not", " (self", ",", " error"];

const LOGPROBS: [&str; 5] =
    ["-0.3434734642505646", "-0.00012356207298580557", "-0.0", "-2.453125238418579", "-11.20703125"];

/// Returns the text of the token at that position of an answer, as it is inside a JSON string.
fn word(i: usize) -> &'static str {
    WORDS[i % WORDS.len()]
}

/// Returns the text of an answer of that many tokens, as it is inside a JSON string.
pub(crate) fn text(tokens: usize) -> String {
    (0..tokens).map(word).collect()
}

/// Returns an id of one to six digits, as in a large vocabulary.
fn id(i: usize) -> usize {
    i * 7919 % 151_936
}

/// Returns the logprob entry of the token at that position.
fn entry(i: usize) -> &'static str {
    static ALL: LazyLock<Vec<String>> = LazyLock::new(|| {
        let entry = |i: usize| {
            let (word, logprob) = (word(i), LOGPROBS[i % LOGPROBS.len()]);
            let bytes: Vec<_> = word.replace("\\n", "\n").bytes().map(|byte| byte.to_string()).collect();
            format!(
                r#"{{"token":"{word}","logprob":{logprob},"bytes":[{}],"top_logprobs":[]}}"#,
                bytes.join(",")
            )
        };
        (0..WORDS.len() * LOGPROBS.len()).map(entry).collect()
    });
    &ALL[i % ALL.len()]
}

/// Returns a list of the first ids, without its brackets.
fn prompt(length: usize) -> &'static str {
    static ALL: LazyLock<(String, Vec<usize>)> = LazyLock::new(|| {
        let (mut text, mut ends) = (String::new(), vec![0]);
        for i in 0..MOST {
            let comma = if i == 0 { "" } else { "," };
            write!(text, "{comma}{}", id(i)).unwrap();
            ends.push(text.len());
        }
        (text, ends)
    });
    &ALL.0[..ALL.1[length]]
}

/// The properties of one answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) knobs: Knobs,
    /// The number of prompt ids.
    prompt: usize,
    /// Distinguishes the answer from others.
    number: u64,
}

impl Answer {
    /// Returns `None` if the request's model does not have the settings.
    pub(crate) fn to_request(body: &[u8], number: u64) -> Option<Self> {
        let knobs = Knobs::of_request(body)?;
        let prompt = if knobs.prompt == 0 { body.len() / 4 } else { knobs.prompt };
        Some(Self { knobs, prompt: prompt.min(MOST), number })
    }

    /// Returns the position of the first sampled id in the sequence of all ids.
    fn first_id(&self) -> usize {
        if self.knobs.continues { self.prompt } else { 0 }
    }
}

/// Returns a whole answer.
pub(crate) fn whole(answer: &Answer) -> Bytes {
    let Answer { knobs, prompt: prompts, number } = *answer;
    let (tokens, first) = (knobs.tokens, answer.first_id());
    let entries: Vec<_> = (0..tokens).map(entry).collect();
    let ids: Vec<_> = (0..tokens).map(|i| id(first + i).to_string()).collect();
    format!(
        r#"{{"id":"chatcmpl-{number:032x}","object":"chat.completion","created":1763700000,"model":"{model}","choices":[{{"index":0,"message":{{"role":"assistant","content":"{content}","refusal":null,"annotations":null,"audio":null,"function_call":null,"reasoning":null}},"logprobs":{{"content":[{entries}]}},"finish_reason":"length","stop_reason":null,"token_ids":[{ids}],"routed_experts":null}}],"service_tier":null,"system_fingerprint":"vllm-0.32.0","usage":{{"prompt_tokens":{prompts},"total_tokens":{total},"completion_tokens":{tokens},"prompt_tokens_details":null}},"prompt_logprobs":null,"prompt_token_ids":[{prompt}],"prompt_text":null,"kv_transfer_params":null}}"#,
        model = knobs.as_model(),
        content = text(tokens),
        entries = entries.join(","),
        ids = ids.join(","),
        total = prompts + tokens,
        prompt = prompt(prompts),
    )
    .into()
}

/// The events of a streaming answer: the role with the prompt's ids, one event per token, the usage, and the end.
#[derive(Debug)]
pub(crate) struct Events {
    answer: Answer,
    /// The beginning of each event.
    begin: String,
    sent: usize,
}

impl Events {
    pub(crate) fn new(answer: Answer) -> Self {
        let (number, model) = (answer.number, answer.knobs.as_model());
        let begin = format!(
            r#"data: {{"id":"chatcmpl-{number:032x}","object":"chat.completion.chunk","created":1763700000,"model":"{model}","choices":"#
        );
        Self { answer, begin, sent: 0 }
    }

    /// Returns whether the next event has a token.
    pub(crate) fn is_token_next(&self) -> bool {
        (1..=self.answer.knobs.tokens).contains(&self.sent)
    }
}

impl Iterator for Events {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let Self { answer, begin, sent } = self;
        let Answer { knobs, prompt: prompts, .. } = *answer;
        let (at, last) = (*sent, knobs.tokens);
        *sent += 1;
        let event = match at {
            0 => format!(
                "{begin}[{{\"index\":0,\"delta\":{{\"role\":\"assistant\",\"content\":\"\"}},\"logprobs\":null,\"finish_reason\":null}}],\"prompt_token_ids\":[{}],\"prompt_text\":null}}\n\n",
                prompt(prompts)
            ),
            at if at <= last => {
                let mut event = String::with_capacity(begin.len() + 320);
                let finish = if at == last { "\"length\",\"stop_reason\":null" } else { "null" };
                write!(event, "{begin}[{{\"index\":0,\"delta\":{{\"content\":\"").unwrap();
                match knobs.delay_us {
                    0 => event.push_str(word(at - 1)),
                    _ => write!(event, " @{}", now_us()).unwrap(),
                }
                let (entry, id) = (entry(at - 1), id(answer.first_id() + at - 1));
                write!(event, "\"}},\"logprobs\":{{\"content\":[{entry}]}},\"finish_reason\":{finish},\"token_ids\":[{id}]}}]}}\n\n").unwrap();
                event
            }
            at if at == last + 1 => format!(
                "{begin}[],\"usage\":{{\"prompt_tokens\":{},\"total_tokens\":{},\"completion_tokens\":{last}}},\"system_fingerprint\":\"vllm-0.32.0\"}}\n\n",
                prompts,
                prompts + last
            ),
            at if at == last + 2 => "data: [DONE]\n\n".to_owned(),
            _ => return None,
        };
        Some(event.into())
    }
}
