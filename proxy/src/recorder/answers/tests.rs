use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::dialect::chat::answer::ChatAdapter;
use crate::recorder::{CallStart, Recorder};

/// Assembles the message of one choice from its parts.
fn put_together<'a>(parts: impl IntoIterator<Item = &'a str>) -> Option<Value> {
    let mut answers = Answers::default();
    parts.into_iter().for_each(|part| answers.part(0, part));
    finished(answers.finish()).pop().and_then(|(_, message)| message)
}

/// Returns the recorder's messages for a recorded answer: the body of a whole one, or of a stream.
fn messages_of(body: &str) -> Vec<(u32, Option<Value>)> {
    let mut recorder = Recorder::begin(CallStart::of_test());
    recorder.keeps_answers();
    let mut adapter = ChatAdapter::default();
    match body.strip_prefix("data: ") {
        Some(events) => events.split("\n\ndata: ").for_each(|data| {
            adapter.event(data.trim_end(), &mut recorder);
        }),
        None => drop(adapter.whole(body, &mut recorder)),
    }
    finished(recorder.take_answers())
}

/// Parses messages. Their texts must be as serde writes them.
fn finished(messages: Vec<(u32, Option<String>)>) -> Vec<(u32, Option<Value>)> {
    let parsed = |text: String| {
        let message: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(message.to_string(), text);
        message
    };
    messages.into_iter().map(|(choice, text)| (choice, text.map(parsed))).collect()
}

/// Removes the calls' ids, which vLLM draws anew for each answer.
fn without_ids(mut kept: Vec<(u32, Option<Value>)>) -> Vec<(u32, Option<Value>)> {
    let messages = kept.iter_mut().filter_map(|(_, message)| message.as_mut());
    let calls = messages.filter_map(|message| message.get_mut("tool_calls")?.as_array_mut()).flatten();
    for call in calls {
        let id = call.as_object_mut().and_then(|call| call.remove("id"));
        assert!(id.is_some_and(|id| id.as_str().unwrap().starts_with("chatcmpl-tool-")));
    }
    kept
}

macro_rules! recorded {
    ($name:literal) => {
        include_str!(concat!("../../../tests/fixtures/vllm/", $name))
    };
}

/// Returns the body of a recorded exchange.
fn body_of(exchange: &str) -> String {
    let exchange: Value = serde_json::from_str(exchange).unwrap();
    match &exchange["response"]["body"] {
        Value::String(body) => body.clone(),
        body => body.to_string(),
    }
}

#[test]
fn a_recorded_stream_equals_the_recorded_whole_answer() {
    for (stream, whole) in [
        (recorded!("chat_stream_tokids_logprobs.sse"), recorded!("chat_token_ids_logprobs.body.json").into()),
        (recorded!("chat_stream_plain.sse"), recorded!("chat_plain.body.json").into()),
        (recorded!("chat_stream_n2.sse"), body_of(recorded!("chat_n2.json"))),
        (recorded!("content_stream_plain.sse"), body_of(recorded!("content_plain.json"))),
        (recorded!("content_stream_tokids.sse"), body_of(recorded!("content_tokids.json"))),
        (recorded!("tools_auto_stream_tokids.sse"), body_of(recorded!("tools_auto_tokids.json"))),
        (recorded!("tools_auto_stream_plain.sse"), body_of(recorded!("tools_auto_tokids.json"))),
        (recorded!("stop_str_inc0_stream.sse"), body_of(recorded!("stop_str_inc0.json"))),
        (recorded!("utf8_stream_plain.sse"), recorded!("utf8_stream_tokids.sse").into()),
    ] {
        let said = without_ids(messages_of(stream));
        assert!(!said.is_empty() && said.iter().all(|(_, message)| message.is_some()));
        assert_eq!(said, without_ids(messages_of(&whole)));
    }
}

#[test]
fn a_recorded_tool_call_is_as_a_client_sends_it_back() {
    let expected = json!({"role": "assistant", "content": "ok", "tool_calls": [{
        "id": "chatcmpl-tool-9068b141442b0830", "type": "function",
        "function": {"name": "get_weather", "arguments": "{\"city\": \"mbletere\"}"},
    }]});
    assert_eq!(messages_of(&body_of(recorded!("tools_auto_tokids.json"))), [(0, Some(expected))]);
    let kept = messages_of(recorded!("utf8_stream_tokids.sse"));
    let content = kept[0].1.as_ref().map(|message| &message["content"]);
    assert!(content.and_then(Value::as_str).is_some_and(|text| text.starts_with("日本語🎉 é")));
}

#[test]
fn nothing_is_stored_unless_requested() {
    let mut recorder = Recorder::begin(CallStart::of_test());
    ChatAdapter::default().whole(recorded!("chat_plain.body.json"), &mut recorder);
    assert_eq!(recorder.take_answers(), []);
}

#[test]
fn a_chunk_that_cannot_be_read_makes_every_choice_unknown() {
    let chunk = r#"{"choices":[{"index":0,"delta":{"content":"a"}},{"index":1,"delta":{"content":"b"}}]}"#;
    let kept =
        messages_of(&format!("data: {chunk}\n\ndata: {{\"choices\":[{{\"delta\":\n\ndata: {chunk}\n\n"));
    assert_eq!(kept, [(0, None), (1, None)]);
}

#[test]
fn what_is_no_message_is_none_and_others_stay() {
    for part in [
        "7",
        "{",
        r#"{"content":["a"]}"#,
        r#"{"content":"a"#,
        r#"{"content":"\ud83d"}"#,
        r#"{"content":"\x"}"#,
        "{\"content\":\"\n\"}",
        r#"{"reasoning":1}"#,
        r#"{"tool_calls":{}}"#,
        r#"{"tool_calls":["a"]}"#,
        r#"{"tool_calls":[{"index":-1}]}"#,
        r#"{"tool_calls":[{"function":{"arguments":{}}}]}"#,
        r#"{"role":1}"#,
    ] {
        let mut answers = Answers::default();
        answers.part(1, r#"{"content":"b"}"#);
        answers.part(0, r#"{"content":"a"}"#);
        answers.part(0, part);
        answers.part(0, "{}");
        let b = json!({"role": "assistant", "content": "b"});
        assert_eq!(finished(answers.finish()), [(0, None), (1, Some(b))], "{part}");
    }
}

#[test]
fn a_call_that_changes_its_name_is_none() {
    let first = r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":""}}]}"#;
    assert!(put_together([first, first]).is_some());
    for other in
        [r#"{"id":"b"}"#, r#"{"function":{"name":"g"}}"#, r#"{"type":"custom"},{"index":0,"type":"x"}"#]
    {
        assert_eq!(put_together([first, &format!("{{\"tool_calls\":[{other}]}}")]), None, "{other}");
    }
}

#[test]
fn halves_of_a_character_come_together() {
    let said = put_together([r#"{"content":"a\ud83d"}"#, r#"{"content":""}"#, r#"{"content":"\ude00b"}"#]);
    assert_eq!(said, Some(json!({"role": "assistant", "content": "a😀b"})));
}

/// The choices that a test draws: an endless sequence that differs in each round.
struct Tape(Vec<u8>, usize);

impl Tape {
    fn below(&mut self, bound: usize) -> usize {
        self.1 += 1;
        (usize::from(self.0[self.1 % self.0.len()]) + self.1 / self.0.len()) % bound
    }
}

/// Returns the text of a JSON string without its quotes, in any spelling. It is cut anywhere except within an escape.
fn pieces(text: &str, tape: &mut Tape) -> Vec<String> {
    let mut pieces = vec![String::new()];
    for character in text.chars() {
        let quoted = Value::from(character.to_string()).to_string();
        let atoms: Vec<String> = match tape.below(3) {
            0 => character.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect(),
            _ => vec![quoted[1..quoted.len() - 1].to_owned()],
        };
        for atom in atoms {
            if tape.below(2) == 0 {
                pieces.push(String::new());
            }
            pieces.last_mut().unwrap().push_str(&atom);
        }
    }
    pieces
}

/// Returns the deltas of a message. Each channel is in order, and a delta has parts of one channel or of several.
fn deltas(message: &Value, tape: &mut Tape) -> Vec<String> {
    let mut channels = Vec::new();
    for (member, older) in [("content", "content"), ("reasoning", "reasoning_content")] {
        let name = if tape.below(4) == 0 { older } else { member };
        let pieces = pieces(message[member].as_str().unwrap_or_default(), tape).into_iter();
        channels.push((false, pieces.map(|piece| format!(r#""{name}":"{piece}""#)).collect::<Vec<_>>()));
    }
    for (index, call) in message["tool_calls"].as_array().into_iter().flatten().enumerate() {
        let (id, name) = (&call["id"], &call["function"]["name"]);
        let first =
            format!(r#"{{"index":{index},"id":{id},"type":"function","function":{{"name":{name}}}}}"#);
        // The later parts have vLLM's form, some with one member more.
        let more = ["", r#","name":null"#][tape.below(2)];
        let arguments = pieces(call["function"]["arguments"].as_str().unwrap(), tape).into_iter();
        let later = arguments
            .map(|piece| format!(r#"{{"index":{index},"function":{{"arguments":"{piece}"{more}}}}}"#));
        channels.push((true, std::iter::once(first).chain(later).collect()));
    }
    channels.iter_mut().for_each(|(_, pieces)| pieces.reverse());
    let mut deltas = vec![r#"{"role":"assistant","content":""}"#.to_owned()];
    while channels.iter().any(|(_, pieces)| !pieces.is_empty()) {
        let (mut members, mut calls) = (Vec::new(), Vec::new());
        for (is_call, pieces) in &mut channels {
            if tape.below(3) < 2 {
                if *is_call { &mut calls } else { &mut members }.extend(pieces.pop());
            }
        }
        if !calls.is_empty() {
            members.push(format!(r#""tool_calls":[{}]"#, calls.join(", ")));
        }
        // Some deltas have a different form with the same meaning.
        match tape.below(6) {
            0 => members.push(r#""r\u006fle":"assistant""#.to_owned()),
            1 => members.push(r#""audio":{"content":"no"},"refusal":null"#.to_owned()),
            _ => {}
        }
        deltas.push(format!("{{{}}}", members.join(" ,\n")));
    }
    deltas
}

fn text() -> impl Strategy<Value = String> {
    let special =
        prop::sample::select(vec!['\0', '"', '\\', '\n', '😀', '\u{ffff}', '\u{7f}', 'u', '{', 'é']);
    let characters = prop_oneof![any::<char>(), special];
    prop::collection::vec(characters, 0..10).prop_map(|text| text.into_iter().collect())
}

/// Generates a message in the form of a request. `null` and absent members equal empty ones.
fn message() -> impl Strategy<Value = Value> {
    let call = (text(), text(), text()).prop_map(|(id, name, arguments)| {
        json!({"id": format!("i{id}"), "type": "function", "function": {"name": format!("f{name}"), "arguments": arguments}})
    });
    (text(), text(), prop::collection::vec(call, 0..4)).prop_map(|(content, reasoning, calls)| {
        let mut message =
            json!({"role": "assistant", "content": Some(content).filter(|text| !text.is_empty())});
        if !reasoning.is_empty() {
            message["reasoning"] = reasoning.into();
        }
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        message
    })
}

proptest! {
    #[test]
    fn messages_cut_into_deltas_are_those_messages(
        messages in prop::collection::vec(message(), 1..4),
        tape in prop::collection::vec(any::<u8>(), 16..64),
    ) {
        let mut tape = Tape(tape, 0);
        let mut coming: Vec<_> = messages.iter().map(|message| deltas(message, &mut tape).into_iter()).collect();
        let mut answers = Answers::default();
        while coming.iter().any(|deltas| deltas.len() > 0) {
            let which = tape.below(coming.len());
            if let Some(delta) = coming[which].next() {
                answers.part(which as u32, &delta);
            }
            for (which, deltas) in coming.iter_mut().enumerate() {
                deltas.next().into_iter().for_each(|delta| answers.part(which as u32, &delta));
            }
        }
        let expected: Vec<_> = (0..).zip(messages.into_iter().map(Some)).collect();
        prop_assert_eq!(finished(answers.finish()), expected);
    }

    #[test]
    fn a_whole_message_is_that_message(message in message(), pretty in any::<bool>()) {
        let mut said = json!({"role": "assistant", "content": null, "refusal": null, "audio": null,
                              "function_call": null, "reasoning": null, "reasoning_content": null});
        said.as_object_mut().unwrap().extend(message.as_object().unwrap().clone());
        let text = if pretty { serde_json::to_string_pretty(&said).unwrap() } else { said.to_string() };
        prop_assert_eq!(put_together([text.as_str()]), Some(message));
    }

    #[test]
    fn arbitrary_parts_never_panic(
        parts in prop::collection::vec(r#"\{"(content|reasoning|tool_calls)":["\[\]{}:,a-z0-9\\é]{0,20}\}?"#, 0..4),
        other in ".{0,20}",
    ) {
        let mut answers = Answers::default();
        parts.iter().for_each(|part| answers.part(0, part));
        answers.part(1, &other);
        finished(answers.finish());
    }

    #[test]
    fn by_hand_and_by_serde_find_the_same(message in message(), pretty in any::<bool>()) {
        let text = if pretty { serde_json::to_string_pretty(&message).unwrap() } else { message.to_string() };
        // A key with an escape takes the path through serde.
        let unusual = format!(r#"{{"\u0061":1,{}"#, text.strip_prefix('{').unwrap());
        let names = ["content", "role", "tool_calls", "none"];
        let found = members(&text, names);
        prop_assert!(found.is_some());
        prop_assert_eq!(found, members(&unusual, names));
    }
}
