//! Locates the parts of a chat answer or chunk that are recorded or edited.
//!
//! The text is scanned once by hand, in vLLM's plain form. Serde reads texts of other forms with the same meaning. A
//! property test ensures that both give the same result.

use std::borrow::Cow;
use std::ops::Range;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::chunk_head::ChunkHead;
use crate::recorder::lists::{LogprobList, plain_logprobs, read_logprobs};
use crate::wire::json_scan::Cursor;

/// A whole answer or one chunk, as slices of the text. A member that is `null` becomes `None`.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ChatAnswer<'a> {
    pub(super) model: Option<&'a str>,
    pub(super) prompt_token_ids: Option<&'a str>,
    pub(super) error: Option<&'a str>,
    /// The first choice. Nearly every answer has only one, so the list allocates no memory.
    first: Option<ChatChoice<'a>>,
    more: Vec<ChatChoice<'a>>,
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct ChatChoice<'a> {
    pub(super) index: u32,
    /// The message part, in chunks.
    pub(super) delta: Option<&'a str>,
    /// The message, in whole answers.
    pub(super) message: Option<&'a str>,
    pub(super) logprobs: Option<&'a str>,
    /// The range of this choice's logprobs in the list of all logprobs of the text.
    pub(super) logprobs_at: Range<usize>,
    pub(super) finish_reason: Option<Cow<'a, str>>,
    pub(super) stop_reason: Option<&'a str>,
    pub(super) token_ids: Option<&'a str>,
}

impl<'a> ChatAnswer<'a> {
    /// Reads a text, and puts its logprobs into `logprobs`, which must be empty. `head` is that of the stream's chunks, if the text
    /// is one of them. Returns `None` if the text is not of vLLM's form.
    pub(super) fn read(
        text: &'a str,
        head: Option<&mut ChunkHead>,
        logprobs: &mut LogprobList,
    ) -> Option<Self> {
        by_hand(text, head, logprobs).or_else(|| {
            // The first attempt may have stopped midway, after some logprobs.
            logprobs.clear();
            by_serde(text, logprobs)
        })
    }

    pub(super) fn choices(&self) -> impl Iterator<Item = &ChatChoice<'a>> {
        self.first.iter().chain(&self.more)
    }

    fn push(&mut self, choice: ChatChoice<'a>) {
        match self.first {
            None => self.first = Some(choice),
            Some(_) => self.more.push(choice),
        }
    }
}

/// Notes the value of a member. A repeated member is left to serde.
fn once<'a>(seen: &mut Option<Option<&'a str>>, cursor: &mut Cursor<'a>) -> Option<()> {
    seen.replace(cursor.non_null()?).is_none().then_some(())
}

fn by_hand<'a>(
    text: &'a str,
    head: Option<&mut ChunkHead>,
    logprobs: &mut LogprobList,
) -> Option<ChatAnswer<'a>> {
    // An earlier chunk began with the same text, so the scan continues after it.
    let known = head.as_ref().and_then(|head| head.known(text));
    let mut cursor = Cursor::from(text, known.map_or(0, |known| known.end));
    let mut answer = ChatAnswer::default();
    let mut model = known.and_then(|known| known.model).map(Some);
    let (mut prompt, mut error, mut choices_came, mut new_head) = (None, None, false, None);
    cursor.object_from(known.map(|_| "choices"), |cursor, key| match key {
        "model" => once(&mut model, cursor),
        "prompt_token_ids" => once(&mut prompt, cursor),
        "error" => once(&mut error, cursor),
        // A repeated member is left to serde, as in `once`.
        "choices" if std::mem::replace(&mut choices_came, true) => None,
        "choices" if cursor.null() => Some(()),
        "choices" => {
            new_head = (prompt.is_none() && error.is_none() && model != Some(None))
                .then(|| (cursor.position(), model));
            cursor.array(|cursor| {
                let choice = choice_by_hand(text, cursor, logprobs)?;
                answer.push(choice);
                Some(())
            })
        }
        _ => cursor.value().map(drop),
    })?;
    answer.model = model.flatten();
    answer.prompt_token_ids = prompt.flatten();
    answer.error = error.flatten();
    if !cursor.is_at_end() {
        return None;
    }
    if let (Some(head), None, Some((end, model))) = (head, known, new_head) {
        head.remember(text, end, model.flatten());
    }
    Some(answer)
}

fn choice_by_hand<'a>(
    text: &'a str,
    cursor: &mut Cursor<'a>,
    logprobs: &mut LogprobList,
) -> Option<ChatChoice<'a>> {
    let mut choice = ChatChoice { logprobs_at: logprobs.len()..logprobs.len(), ..ChatChoice::default() };
    let (mut index, mut delta, mut message, mut finish) = (None, None, None, None);
    let (mut stop, mut ids, mut logprobs_came) = (None, None, false);
    cursor.object(|cursor, key| match key {
        "index" => once(&mut index, cursor),
        "delta" => once(&mut delta, cursor),
        "message" => once(&mut message, cursor),
        "finish_reason" => once(&mut finish, cursor),
        "stop_reason" => once(&mut stop, cursor),
        "token_ids" => once(&mut ids, cursor),
        "logprobs" if std::mem::replace(&mut logprobs_came, true) => None,
        "logprobs" if cursor.null() => Some(()),
        "logprobs" => {
            let start = cursor.position();
            plain_logprobs(cursor, logprobs)?;
            // The position precedes the white space after the colon.
            choice.logprobs = text.get(start..cursor.position()).map(str::trim_start);
            Some(())
        }
        _ => cursor.value().map(drop),
    })?;
    // Serde rejects an index that is `null` or not a whole number, and so does this function.
    if let Some(index) = index {
        choice.index = index?.parse().ok()?;
    }
    choice.delta = delta.flatten();
    choice.message = message.flatten();
    choice.finish_reason = match finish.flatten() {
        Some(reason) => Some(Cow::Borrowed(Cursor::new(reason).plain_string()?)),
        None => None,
    };
    choice.stop_reason = stop.flatten();
    choice.token_ids = ids.flatten();
    choice.logprobs_at.end = logprobs.len();
    Some(choice)
}

#[derive(Deserialize)]
struct AnyAnswer<'a> {
    #[serde(borrow, default)]
    model: Option<&'a RawValue>,
    #[serde(borrow, default)]
    prompt_token_ids: Option<&'a RawValue>,
    #[serde(borrow, default)]
    choices: Option<Vec<AnyChoice<'a>>>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct AnyChoice<'a> {
    #[serde(default)]
    index: u32,
    #[serde(borrow, default)]
    delta: Option<&'a RawValue>,
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
    #[serde(borrow, default)]
    logprobs: Option<&'a RawValue>,
    #[serde(borrow, default)]
    finish_reason: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    stop_reason: Option<&'a RawValue>,
    #[serde(borrow, default)]
    token_ids: Option<&'a RawValue>,
}

fn by_serde<'a>(text: &'a str, logprobs: &mut LogprobList) -> Option<ChatAnswer<'a>> {
    let any: AnyAnswer<'a> = serde_json::from_str(text).ok()?;
    let mut answer = ChatAnswer {
        model: any.model.map(RawValue::get),
        prompt_token_ids: any.prompt_token_ids.map(RawValue::get),
        error: any.error.map(RawValue::get),
        ..ChatAnswer::default()
    };
    for choice in any.choices.into_iter().flatten() {
        let start = logprobs.len();
        if let Some(raw) = choice.logprobs {
            read_logprobs(raw.get(), logprobs).ok()?;
        }
        answer.push(ChatChoice {
            index: choice.index,
            delta: choice.delta.map(RawValue::get),
            message: choice.message.map(RawValue::get),
            logprobs: choice.logprobs.map(RawValue::get),
            logprobs_at: start..logprobs.len(),
            finish_reason: choice.finish_reason,
            stop_reason: choice.stop_reason.map(RawValue::get),
            token_ids: choice.token_ids.map(RawValue::get),
        });
    }
    Some(answer)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn both(text: &str) -> [Option<(ChatAnswer<'_>, LogprobList)>; 2] {
        [by_hand_alone, by_serde].map(|read| {
            let mut logprobs = LogprobList::new();
            read(text, &mut logprobs).map(|answer| (answer, logprobs))
        })
    }

    fn by_hand_alone<'a>(text: &'a str, logprobs: &mut LogprobList) -> Option<ChatAnswer<'a>> {
        by_hand(text, None, logprobs)
    }

    #[test]
    fn recorded_answers_are_of_the_plain_form() {
        let stream = include_str!("../../../../tests/fixtures/vllm/tools_auto_stream_tokids.sse");
        let events = stream.split("\n\n").filter_map(|event| event.strip_prefix("data: {"));
        let mut texts: Vec<_> = events.map(|rest| format!("{{{rest}")).collect();
        texts.push(
            include_str!("../../../../tests/fixtures/vllm/chat_token_ids_logprobs.body.json").to_owned(),
        );
        for text in &texts {
            let [by_hand, by_serde] = both(text);
            assert!(by_hand.is_some());
            assert_eq!(by_hand, by_serde);
        }
    }

    #[test]
    fn unusual_forms_are_left_to_serde() {
        for text in [
            r#"{"choices":[{"inde\u0078":1,"token_ids":[1]}]}"#,
            r#"{"choices":[{"finish_reason":"st\u006fp"}]}"#,
        ] {
            let [by_hand, by_serde] = both(text);
            assert!(by_hand.is_none() && by_serde.is_some(), "{text}");
        }
        for text in [r#"{"choices":[],"choices":[]}"#, r#"{"choices":[{"index":-1}]}"#, r#"{} x"#, "7"] {
            assert_eq!(both(text), [None, None], "{text}");
        }
    }

    fn entry() -> impl Strategy<Value = Value> {
        (".{0,4}", prop::option::of(any::<f32>()), prop::collection::vec(any::<u8>(), 0..3)).prop_map(
            |(token, logprob, bytes)| {
                json!({"token": token, "logprob": logprob.map(f64::from), "bytes": bytes, "top_logprobs": []})
            },
        )
    }

    /// Beginnings of chunks, of which some have more than a plain head.
    const HEADS: &[&str] = &[
        r#"{"id":"x","model":"m","choices":"#,
        r#"{"id":"y","model":"m","choices":"#,
        r#"{"id":"x","choices":"#,
        r#"{"choices":"#,
        r#"{"model":null,"choices":"#,
        r#"{"prompt_token_ids":[1],"model":"m","choices":"#,
        r#"{"prompt_token_ids":null,"choices":"#,
        r#"{"error":{"a":1},"choices":"#,
        r#"{"id":"x","model":"m","choices":[],"choices":"#,
    ];

    /// Ends of chunks, of which some repeat a member.
    const TAILS: &[&str] = &[
        "}",
        r#","prompt_token_ids":[1,2]}"#,
        r#","prompt_token_ids":null,"usage":{"a":1}}"#,
        r#","model":"n"}"#,
        r#","error":{"b":2}}"#,
        r#","choices":[]}"#,
        "} x",
        "",
    ];

    #[test]
    fn a_repeated_head_is_skipped() {
        let mut head = ChunkHead::default();
        let chunk = r#"{"id":"x","model":"m","choices":[]}"#;
        assert!(head.known(chunk).is_none());
        ChatAnswer::read(chunk, Some(&mut head), &mut LogprobList::new()).unwrap();
        let known = head.known(chunk).unwrap();
        assert_eq!((chunk.get(known.end..), known.model), (Some("[]}"), Some("\"m\"")));
        assert!(head.known(r#"{"id":"y","model":"m","choices":[]}"#).is_none());
    }

    fn choice() -> impl Strategy<Value = Value> {
        let logprobs = prop::option::of(prop::collection::vec(entry(), 0..4));
        let ids = prop::option::of(prop::collection::vec(any::<u32>(), 0..6));
        let reason = prop::option::of(prop::sample::select(&["stop", "length", "a\"b"][..]));
        let stop = prop_oneof![
            Just(Value::Null),
            any::<u32>().prop_map(Value::from),
            ".{0,5}".prop_map(Value::from)
        ];
        (0..3_u32, ".{0,9}", logprobs, ids, reason, stop, any::<bool>()).prop_map(
            |(index, text, logprobs, ids, finish, stop, whole)| {
                let part = if whole { "message" } else { "delta" };
                json!({"index": index, part: {"content": text, "token_ids": [7]}, "logprobs": logprobs.map(|list| json!({"content": list})),
                       "finish_reason": finish, "stop_reason": stop, "token_ids": ids})
            },
        )
    }

    proptest! {
        #[test]
        fn by_hand_is_as_by_serde(
            choices in prop::option::of(prop::collection::vec(choice(), 0..3)),
            prompt in prop::option::of(prop::collection::vec(any::<u32>(), 0..6)),
            model in ".{0,5}",
            pretty in any::<bool>(),
        ) {
            let answer = json!({"id": "x", "model": model, "choices": choices, "prompt_token_ids": prompt, "usage": {"error": 1}});
            let text = if pretty { serde_json::to_string_pretty(&answer).unwrap() } else { answer.to_string() };
            let [by_hand, by_serde] = both(&text);
            prop_assert!(by_serde.is_some());
            prop_assert!(by_hand.is_none() || by_hand == by_serde);
            prop_assert!(by_hand.is_some() || text.contains("a\\\"b"));
        }

        #[test]
        fn a_chunk_is_read_alike_after_others(
            chunks in prop::collection::vec(
                (prop::sample::select(HEADS), prop::option::of(prop::collection::vec(choice(), 0..2)), prop::sample::select(TAILS)),
                1..5,
            ),
        ) {
            let mut head = ChunkHead::default();
            for (start, choices, tail) in chunks {
                let text = format!("{start}{}{tail}", json!(choices));
                let (mut logprobs, mut after_others) = (LogprobList::new(), LogprobList::new());
                let alone = ChatAnswer::read(&text, None, &mut logprobs);
                prop_assert_eq!(&ChatAnswer::read(&text, Some(&mut head), &mut after_others), &alone);
                prop_assert_eq!(after_others, logprobs);
            }
        }

        #[test]
        fn arbitrary_text_never_panics(text in r#"[\{\}\[\]":, a-z0-9\\é]{0,40}"#) {
            let _ = both(&text);
        }

        #[test]
        fn a_cut_answer_is_no_answer(choice in choice(), at in any::<prop::sample::Index>()) {
            let text = json!({"choices": [choice], "prompt_token_ids": [1, 2]}).to_string();
            let cut: String = text.chars().take(at.index(text.chars().count())).collect();
            prop_assert_eq!(both(&cut), [None, None]);
        }
    }

    #[test]
    fn fuzz_chat_answer() {
        rolltap_testing::fuzz!("chat_answer", |text| {
            let Ok(text) = std::str::from_utf8(text) else { return };
            // The scan by hand checks skipped values only as far as their end, so it may accept more than serde.
            if let [Some(by_hand), Some(by_serde)] = both(text) {
                assert_eq!(by_hand, by_serde);
            }
        });
    }
}
