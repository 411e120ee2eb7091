use proptest::prelude::*;

use super::*;
use crate::dialect::gemini::signature::seal;

fn chat(body: Value) -> Value {
    Value::Object(translate(&body.to_string(), "m", Delivery::Whole).unwrap().chat)
}

fn messages_of(contents: Value) -> Value {
    chat(json!({"contents": contents}))["messages"].clone()
}

/// Returns the place and the message of the error.
fn refused(body: Value) -> (String, String) {
    let fault = translate(&body.to_string(), "m", Delivery::Whole).unwrap_err();
    (fault.param().unwrap_or_default().to_owned(), fault.to_string())
}

/// Returns a request of one word with the given fields replaced.
fn with(extra: Value) -> Value {
    let mut body = json!({"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

#[test]
fn a_request_becomes_a_chat_request() {
    let body = with(json!({
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "generationConfig": {"temperature": 0.5, "topK": 40.0, "maxOutputTokens": 9, "stopSequences": ["x"], "candidateCount": 2},
        "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}], "labels": {"a": "b"},
    }));
    let expected = json!({
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
        "temperature": 0.5, "top_k": 40, "max_tokens": 9, "stop": ["x"], "n": 2, "stream": false,
    });
    assert_eq!(chat(body), expected);
    for delivery in [Delivery::Events, Delivery::Array] {
        let streamed = translate(&with(json!({})).to_string(), "m", delivery).unwrap().chat;
        assert_eq!(streamed["stream_options"], json!({"include_usage": true}));
    }
}

#[test]
fn the_protobufs_own_spelling_is_read_too() {
    let camel = with(json!({
        "systemInstruction": {"parts": [{"text": "s"}]}, "generationConfig": {"topP": 1, "responseMimeType": "application/json"},
        "tools": [{"functionDeclarations": [{"name": "f"}]}], "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
    }));
    let snake = with(json!({
        "system_instruction": {"parts": [{"text": "s"}]}, "generation_config": {"top_p": 1, "response_mime_type": "application/json"},
        "tools": [{"function_declarations": [{"name": "f"}]}], "tool_config": {"function_calling_config": {"mode": "ANY"}},
    }));
    assert_eq!(chat(snake), chat(camel));
}

#[test]
fn a_turn_that_was_streamed_is_one_message() {
    let messages = messages_of(json!([
        {"role": "user", "parts": [{"text": "a"}, {"inlineData": {"mimeType": "image/png", "data": "-_8="}}]},
        {"role": "model", "parts": [{"text": "think", "thought": true}]},
        {"role": "model", "parts": [{"text": "Let me "}]},
        {"role": "model", "parts": [{"text": "see."}]},
        {"role": "model", "parts": [{"functionCall": {"name": "ls", "args": {"b": 1.5, "a": 2}}}]},
        {"role": "model", "parts": [{"text": ""}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "ls", "response": {"output": "x"}}}, {"text": "go on"}]},
    ]));
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,+/8="}});
    let function = json!({"name": "ls", "arguments": "{\"b\":1.5,\"a\":2}"});
    let expected = json!([
        {"role": "user", "content": [{"type": "text", "text": "a"}, image]},
        {"role": "assistant", "content": "Let me see.", "reasoning": "think",
         "tool_calls": [{"id": "call_0", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "call_0", "content": "{\"output\":\"x\"}"},
        {"role": "user", "content": "go on"},
    ]);
    assert_eq!(messages, expected);
}

#[test]
fn arguments_keep_their_bytes() {
    let body = r#"{"contents":[{"parts":[{"text":"a"}]},{"role":"model","parts":[{"functionCall":{"id":"i","name":"f",
        "args":{"b": 1.50, "a":12345678901234567890123}}}]}]}"#;
    let chat = translate(body, "m", Delivery::Whole).unwrap().chat;
    let call = &chat["messages"][1]["tool_calls"][0];
    assert_eq!(call["id"], "i");
    assert_eq!(call["function"]["arguments"], r#"{"b": 1.50, "a":12345678901234567890123}"#);
}

#[test]
fn responses_find_their_calls_by_id_or_by_name_in_order() {
    let call = |name: &str, id: Option<&str>| json!({"functionCall": {"name": name, "args": {}, "id": id}});
    let response =
        |name: &str, id: Option<&str>| json!({"functionResponse": {"name": name, "response": {}, "id": id}});
    let messages = messages_of(json!([
        {"parts": [{"text": "a"}]},
        {"role": "model", "parts": [call("f", None), call("g", Some("x")), call("f", None), call("f", Some("y"))]},
        {"role": "user", "parts": [response("f", Some("y")), response("f", None), response("g", None), response("f", None)]},
    ]));
    let ids: Vec<_> =
        messages.as_array().unwrap().iter().skip(2).map(|message| message["tool_call_id"].clone()).collect();
    assert_eq!(ids, ["y", "call_0", "x", "call_2"]);
    let (place, message) = refused(json!({"contents": [{"parts": [response("f", None)]}]}));
    assert_eq!(place, "contents[0].parts[0]");
    assert!(message.contains("answers no call"), "{message}");
}

#[test]
fn images_of_responses_come_behind_the_last_response() {
    let image = json!({"inlineData": {"mimeType": "image/png", "data": "AA=="}});
    let messages = messages_of(json!([
        {"parts": [{"text": "a"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "f"}}, {"functionCall": {"name": "f"}}]},
        {"parts": [{"functionResponse": {"name": "f", "response": {}, "parts": [image]}}, {"functionResponse": {"name": "f"}}]},
    ]));
    let roles: Vec<_> = messages.as_array().unwrap().iter().map(|message| message["role"].clone()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "tool", "user"]);
    assert_eq!(messages[4]["content"][0]["type"], "image_url");
}

#[test]
fn a_signature_brings_the_reasoning_back_also_where_thoughts_were_dropped() {
    let messages = messages_of(json!([
        {"parts": [{"text": "a"}]},
        {"role": "model", "parts": [
            {"text": "a summary", "thought": true},
            {"functionCall": {"name": "f"}, "thoughtSignature": seal("all of it")},
            {"functionCall": {"name": "g"}, "thoughtSignature": "skip_thought_signature_validator"}]},
    ]));
    assert_eq!(messages[1]["reasoning"], "all of it");
}

#[test]
fn tools_and_the_ways_of_calling_them() {
    let declarations = json!([
        {"name": "f", "description": "d", "parameters": {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}}},
        {"name": "g", "parametersJsonSchema": {"type": "object"}, "response": {"type": "STRING"}},
    ]);
    let with_mode = |config: Value| {
        chat(with(
            json!({"tools": [{"functionDeclarations": declarations}], "toolConfig": {"functionCallingConfig": config}}),
        ))
    };
    let chat = with_mode(json!({"mode": "AUTO"}));
    let f = json!({"type": "function", "function": {
        "name": "f", "description": "d", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}});
    assert_eq!(chat["tools"][0], f);
    assert_eq!(chat["tools"][1]["function"], json!({"name": "g", "parameters": {"type": "object"}}));
    assert_eq!(chat.get("tool_choice"), None);
    assert_eq!(with_mode(json!({"mode": "NONE"}))["tool_choice"], "none");
    let one = with_mode(json!({"mode": "ANY", "allowedFunctionNames": ["f"]}));
    assert_eq!((&one["tool_choice"], &one["tools"]), (&json!("required"), &json!([f])));
    let validated = with_mode(json!({"mode": "VALIDATED", "allowedFunctionNames": ["f"]}));
    assert_eq!((validated.get("tool_choice"), &validated["tools"]), (None, &json!([f])));
}

#[test]
fn output_formats() {
    let format = |config: Value| chat(with(json!({"generationConfig": config})));
    let json_only = format(json!({"responseMimeType": "application/json"}));
    assert_eq!(json_only["response_format"], json!({"type": "json_object"}));
    let schema =
        format(json!({"responseMimeType": "application/json", "responseSchema": {"type": "BOOLEAN"}}));
    assert_eq!(
        schema["response_format"]["json_schema"],
        json!({"name": "response", "schema": {"type": "boolean"}})
    );
    let choice = format(
        json!({"responseMimeType": "text/x.enum", "responseSchema": {"type": "STRING", "enum": ["a", "b"]}}),
    );
    assert_eq!(choice["structured_outputs"], json!({"choice": ["a", "b"]}));
}

#[test]
fn thinking() {
    let thinking = |config: Value| {
        let translated = translate(
            &with(json!({"generationConfig": {"thinkingConfig": config}})).to_string(),
            "m",
            Delivery::Whole,
        );
        let chat = translated.unwrap().chat;
        (chat.get("reasoning_effort").cloned(), chat.get("thinking_token_budget").cloned())
    };
    assert_eq!(thinking(json!({"thinkingBudget": -1, "includeThoughts": true})), (None, None));
    assert_eq!(thinking(json!({"thinkingBudget": 0})), (Some(json!("none")), None));
    assert_eq!(thinking(json!({"thinkingBudget": 64})), (None, None), "a bound is not forced");
    assert_eq!(thinking(json!({"thinkingLevel": "LOW"})), (Some(json!("low")), None));
}

#[test]
fn sampling_of_vllms_own_passes_through() {
    let chat = chat(with(
        json!({"min_p": 0.1, "chat_template_kwargs": {"enable_thinking": false}, "generationConfig": {"top_k": 5}}),
    ));
    assert_eq!((&chat["min_p"], &chat["top_k"]), (&json!(0.1), &json!(5)));
    assert_eq!(chat["chat_template_kwargs"], json!({"enable_thinking": false}));
}

#[test]
fn what_cannot_be_carried_over_is_refused_where_it_stands() {
    let config = |config: Value| with(json!({"generationConfig": config}));
    let part = |part: Value| json!({"contents": [{"parts": [part]}]});
    for (body, place) in [
        (json!({}), "contents"),
        (with(json!({"cachedContent": "cachedContents/1"})), "cachedContent"),
        (with(json!({"kv_transfer_params": {}})), "kvTransferParams"),
        (with(json!({"tools": [{"google_search": {}}]})), "tools[0].googleSearch"),
        (
            with(json!({"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}})),
            "toolConfig.functionCallingConfig.mode",
        ),
        (config(json!({"responseLogprobs": true})), "generationConfig.responseLogprobs"),
        (config(json!({"topK": 1.5})), "generationConfig.topK"),
        (config(json!({"responseModalities": ["AUDIO"]})), "generationConfig.responseModalities"),
        (config(json!({"mediaResolution": "MEDIA_RESOLUTION_LOW"})), "generationConfig.mediaResolution"),
        (config(json!({"responseMimeType": "text/html"})), "generationConfig.responseMimeType"),
        (config(json!({"wings": 2})), "generationConfig.wings"),
        (part(json!({"executableCode": {"code": "1"}})), "contents[0].parts[0].executableCode"),
        (
            part(json!({"inlineData": {"mimeType": "audio/wav", "data": ""}})),
            "contents[0].parts[0].inlineData.mimeType",
        ),
        (
            part(json!({"fileData": {"mimeType": "image/png", "fileUri": "gs://a/b"}})),
            "contents[0].parts[0].fileData.fileUri",
        ),
        (part(json!({"functionCall": {"name": "f"}})), "contents[0].parts[0]"),
        (part(json!({"text": "a", "fileData": null, "functionCall": {"name": "f"}})), "contents[0].parts[0]"),
        (part(json!({})), "contents[0].parts[0]"),
        (json!({"contents": [{"role": "system", "parts": []}]}), "contents[0].role"),
        (json!({"contents": [{"role": "user", "parts": []}]}), "contents[0]"),
    ] {
        let (at, message) = refused(body);
        assert_eq!(at, place, "{message}");
        assert!(message.contains(place), "{message}");
    }
}

#[test]
fn counting_takes_a_request_or_what_holds_one() {
    let request = with(json!({
        "tools": [{"functionDeclarations": [{"name": "f"}]}],
        "generationConfig": {"temperature": 1, "thinkingConfig": {"thinkingBudget": 0}},
    }));
    let counted = |body: &Value| Value::Object(count(&body.to_string(), "m").unwrap());
    let expected = json!({
        "model": "m", "messages": [{"role": "user", "content": "Hello"}],
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "chat_template_kwargs": {"enable_thinking": false, "reasoning_effort": "none"},
    });
    assert_eq!(counted(&request), expected);
    assert_eq!(counted(&json!({"generateContentRequest": request})), expected);
    assert_eq!(count_answer(br#"{"count":7,"tokens":[]}"#).unwrap(), br#"{"totalTokens":7}"#);
    assert_eq!(count_answer(b"no"), None);
}

fn any_json() -> impl Strategy<Value = Value> {
    let keys = prop::sample::select(vec![
        "contents",
        "parts",
        "role",
        "text",
        "thought",
        "thoughtSignature",
        "functionCall",
        "functionResponse",
        "name",
        "args",
        "response",
        "inlineData",
        "mimeType",
        "data",
        "tools",
        "functionDeclarations",
        "parameters",
        "type",
        "properties",
        "items",
        "generationConfig",
        "topK",
        "responseSchema",
        "systemInstruction",
        "thinkingConfig",
        "thinkingBudget",
        "id",
        "x",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        prop::sample::select(vec!["user", "model", "OBJECT", "image/png", "f", ""]).prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 40, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((keys.clone(), inner), 0..5)
                .prop_map(|pairs| pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ]
    })
}

proptest! {
    #[test]
    fn no_json_panics(contents in any_json(), other in any_json()) {
        for body in [json!({"contents": [contents]}), json!({"contents": contents, "tools": [other]}), with(json!({"generationConfig": other}))] {
            let _ = translate(&body.to_string(), "m", Delivery::Events);
            let _ = count(&body.to_string(), "m");
        }
    }

    #[test]
    fn no_text_panics(body in ".*") {
        let _ = translate(&body, "m", Delivery::Whole);
        count_answer(body.as_bytes());
    }

    /// A longer conversation is translated to a prompt that begins with the translation of the shorter one.
    #[test]
    fn a_conversation_that_goes_on_begins_the_same(turns in prop::collection::vec((any::<bool>(), "[a-z]{0,3}"), 1..8), more in "[a-z]{1,3}") {
        let mut contents = vec![json!({"role": "user", "parts": [{"text": "a"}]})];
        for (calls, text) in turns {
            let part = if calls { json!({"functionCall": {"name": "f", "args": {"t": text}}}) } else { json!({"text": text}) };
            contents.push(json!({"role": "model", "parts": [part]}));
            let part = if calls { json!({"functionResponse": {"name": "f", "response": {}}}) } else { json!({"text": "b"}) };
            contents.push(json!({"role": "user", "parts": [part]}));
        }
        let before = messages_of(contents.clone().into());
        contents.push(json!({"role": "model", "parts": [{"text": more}]}));
        let after = messages_of(contents.into());
        let before = before.as_array().unwrap();
        prop_assert_eq!(before.as_slice(), &after.as_array().unwrap()[..before.len()]);
    }
}
