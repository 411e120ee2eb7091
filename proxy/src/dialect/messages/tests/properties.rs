//! For any input: no panic, valid streams, and a stream with the same content as the whole answer.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::{count_answer, count_request};
use super::{assembled, back, events, request, streamed, translate, whole};
use crate::dialect::adapter::Translator;

/// Generates values that resemble the parts of a request.
fn like_a_body() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "text",
        "image",
        "document",
        "thinking",
        "tool_use",
        "tool_result",
        "user",
        "assistant",
        "system",
        "custom",
        "auto",
        "any",
        "tool",
        "none",
        "enabled",
        "disabled",
        "url",
        "base64",
        "x-anthropic-billing-header: a",
        "é\n\"",
    ]);
    let key = prop::sample::select(vec![
        "type",
        "role",
        "content",
        "text",
        "source",
        "data",
        "url",
        "id",
        "name",
        "input",
        "tool_use_id",
        "thinking",
        "input_schema",
        "budget_tokens",
        "effort",
        "edits",
        "format",
        "schema",
    ]);
    let leaf = prop_oneof![
        word.prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null)
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map(key.clone(), inner, 0..6).prop_map(|map| map
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect::<serde_json::Map<_, _>>()
                .into()),
        ]
    })
}

#[derive(Clone, Debug)]
struct Reply {
    reasoning: String,
    content: String,
    calls: Vec<Value>,
    finish_reason: &'static str,
}

fn reply() -> impl Strategy<Value = Reply> {
    let finish = prop::sample::select(vec!["stop", "length", "tool_calls"]);
    let arguments = prop::collection::hash_map("[a-z]{1,3}", "\\PC{0,5}", 0..3).prop_map(|map| json!(map));
    ("\\PC{0,9}", "\\PC{0,9}", prop::collection::vec(arguments, 0..3), finish).prop_map(
        |(reasoning, content, calls, finish_reason)| Reply { reasoning, content, calls, finish_reason },
    )
}

impl Reply {
    fn whole(&self) -> Value {
        let call = |(at, arguments): (usize, &Value)| json!({"id": format!("c{at}"), "function": {"name": "f", "arguments": arguments.to_string()}});
        let calls: Vec<_> = self.calls.iter().enumerate().map(call).collect();
        json!({"id": "chatcmpl-1", "usage": {"prompt_tokens": 1, "completion_tokens": 2}, "choices": [{"finish_reason": self.finish_reason,
            "message": {"reasoning": self.reasoning, "content": self.content, "tool_calls": calls}}]})
    }

    /// Returns the same answer in pieces of this many characters.
    fn chunks(&self, size: usize) -> Vec<Value> {
        let chunk = |delta: Value| json!({"id": "chatcmpl-1", "choices": [{"delta": delta}]});
        let pieces = |text: &str| -> Vec<String> {
            text.chars().collect::<Vec<_>>().chunks(size).map(|piece| piece.iter().collect()).collect()
        };
        let mut chunks = vec![chunk(json!({"content": ""}))];
        chunks.extend(pieces(&self.reasoning).iter().map(|text| chunk(json!({"reasoning": text}))));
        chunks.extend(pieces(&self.content).iter().map(|text| chunk(json!({"content": text}))));
        for (at, arguments) in self.calls.iter().enumerate() {
            let part = |id: Option<String>, text: &str| {
                chunk(
                    json!({"tool_calls": [{"index": at, "id": id, "function": {"name": id.as_ref().map(|_| "f"), "arguments": text}}]}),
                )
            };
            chunks.push(part(Some(format!("c{at}")), ""));
            chunks.extend(pieces(&arguments.to_string()).iter().map(|text| part(None, text)));
        }
        chunks.push(json!({"choices": [{"delta": {}, "finish_reason": self.finish_reason}]}));
        chunks.push(json!({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}));
        chunks
    }
}

fn any_chunk() -> impl Strategy<Value = Value> {
    let text = || prop::option::of("[a\n]{0,2}");
    let call = (0u32..3, text(), text()).prop_map(|(index, id, arguments)| {
        json!({"index": index, "id": id, "function": {"name": id, "arguments": arguments}})
    });
    let calls = prop::option::of(prop::collection::vec(call, 0..3));
    let finish = prop::option::of(prop::sample::select(vec!["stop", "length", "abort", "odd"]));
    (0u32..2, text(), text(), calls, finish).prop_map(|(index, reasoning, content, calls, finish)| {
        json!({"choices": [{"index": index, "finish_reason": finish,
            "delta": {"reasoning": reasoning, "content": content, "tool_calls": calls}}]})
    })
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in ".*") {
        translate(&text).ok();
        count_request(&text).ok();
        count_answer(text.as_bytes());
    }

    #[test]
    fn arbitrary_members_never_panic(
        key in prop::sample::select(vec!["messages", "system", "tools", "tool_choice", "thinking", "output_config", "context_management", "stop_sequences"]),
        value in like_a_body(),
    ) {
        let body = request(json!({key: value})).to_string();
        translate(&body).ok();
        count_request(&body).ok();
    }

    #[test]
    fn arbitrary_blocks_never_panic(blocks in prop::collection::vec(like_a_body(), 0..4), role in prop::sample::select(vec!["user", "assistant", "system"])) {
        translate(&request(json!({"messages": [{"role": role, "content": blocks}, {"role": "user", "content": "x"}]})).to_string()).ok();
    }

    #[test]
    fn a_stream_equals_the_whole_answer_however_it_is_cut(said in reply(), size in 1usize..6) {
        let expected = whole(&mut back(json!({})), &said.whole());
        let got = assembled(&streamed(&mut back(json!({})), &said.chunks(size)));
        prop_assert_eq!(got, expected);
    }

    #[test]
    fn any_chunks_make_a_sound_stream(chunks in prop::collection::vec(any_chunk(), 0..9)) {
        let mut out = Vec::new();
        let mut back = back(json!({}));
        for chunk in &chunks {
            back.chunk(&serde_json::from_str(&chunk.to_string()).unwrap(), &mut out);
        }
        back.end(&mut out);
        let events = events(&out);
        match events.last() {
            None => prop_assert!(chunks.is_empty()),
            Some(last) if last["type"] == "error" => {}
            Some(_) => { assembled(&events); }
        }
    }

    #[test]
    fn more_turns_leave_the_earlier_messages_as_they_were(turns in prop::collection::vec("\\PC{0,5}", 1..5), more in "\\PC{0,5}") {
        let history = |texts: &[String]| -> Vec<Value> {
            texts.iter().enumerate().map(|(at, text)| json!({"role": if at % 2 == 0 { "user" } else { "assistant" }, "content": text})).collect()
        };
        let earlier = super::messages(history(&turns).into());
        let mut longer = turns.clone();
        longer.push(more);
        let later = super::messages(history(&longer).into());
        prop_assert!(later.as_array().unwrap().starts_with(earlier.as_array().unwrap()));
    }
}
