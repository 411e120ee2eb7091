//! An agent of Gemini's dialect: whole answers, events, or an array. Its calls are recorded like any other.

use reqwest::StatusCode;
use rolltap_proxy::api::TrialOpened;
use rolltap_rollout::call::{CallStatus, Dialect};
use serde_json::{Value, json};

use crate::harness::Stage;

const WEATHER: &str = r#"content = "Let me see."
reasoning = "They want weather."
tool_calls = [{ name = "weather", arguments = { city = "Köln", days = 2 } }, { name = "clock", arguments = "{}" }]"#;

fn request(extra: Value) -> Value {
    let declarations = json!([
        {"name": "weather", "parameters": {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}}}, {"name": "clock"},
    ]);
    let mut body = json!({
        "contents": [{"role": "user", "parts": [{"text": "Weather?"}]}],
        "tools": [{"functionDeclarations": declarations}],
    });
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

async fn post(
    stage: &Stage,
    trial: &TrialOpened,
    method: &str,
    body: &Value,
) -> (StatusCode, String, String) {
    let url = format!("{}/v1beta/models/sim:{method}", trial.base_urls.gemini);
    let answer = stage.http.post(url).json(body).send().await.unwrap();
    let content_type = answer.headers()["content-type"].to_str().unwrap().to_owned();
    (answer.status(), content_type, answer.text().await.unwrap())
}

/// Returns the turn that a client makes of these answers.
fn turn(answers: &[Value]) -> Value {
    let parts = answers
        .iter()
        .flat_map(|answer| answer["candidates"][0]["content"]["parts"].as_array().unwrap().clone());
    json!({"role": "model", "parts": parts.collect::<Vec<_>>()})
}

fn calls_of(turn: &Value) -> Vec<(Value, Value)> {
    let calls = turn["parts"].as_array().unwrap().iter().filter_map(|part| part.get("functionCall"));
    calls.map(|call| (call["name"].clone(), call["args"].clone())).collect()
}

#[tokio::test]
async fn every_delivery_has_the_same_content_and_is_recorded() {
    let stage = Stage::saying(WEATHER).await;
    let trial = stage.open(json!({})).await;
    let (_, content_type, whole) = post(&stage, &trial, "generateContent", &request(json!({}))).await;
    assert!(content_type.starts_with("application/json"), "{content_type}");
    let whole: Value = serde_json::from_str(&whole).unwrap();
    let (_, content_type, events) =
        post(&stage, &trial, "streamGenerateContent?alt=sse", &request(json!({}))).await;
    assert!(content_type.starts_with("text/event-stream"), "{content_type}");
    let events: Vec<Value> = events
        .split_terminator("\n\n")
        .map(|event| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap())
        .collect();
    let (_, content_type, array) = post(&stage, &trial, "streamGenerateContent", &request(json!({}))).await;
    assert!(content_type.starts_with("application/json"), "{content_type}");
    let array: Vec<Value> = serde_json::from_str(&array).unwrap();

    assert_eq!(whole["modelVersion"], "sim");
    let expected = [(json!("weather"), json!({"city": "Köln", "days": 2})), (json!("clock"), json!({}))];
    for answers in [&[whole][..], &events, &array] {
        assert_eq!(calls_of(&turn(answers)), expected);
        let last = answers.last().unwrap();
        assert_eq!(last["candidates"][0]["finishReason"], "STOP");
        assert!(last["usageMetadata"]["promptTokenCount"].as_u64().unwrap() > 0);
    }
    let calls = stage.calls(&trial).await;
    assert_eq!(calls.len(), 3);
    for call in &calls {
        assert_eq!((call.status, &call.flaws[..]), (CallStatus::Complete, &[][..]));
        assert_eq!(call.dialect, Dialect::GenerateContent);
        assert_eq!(call.choices[0].token_ids.len(), call.choices[0].logprobs.len());
    }
}

#[tokio::test]
async fn a_conversation_that_goes_on_extends_its_tokens() {
    let stage = Stage::saying(WEATHER).await;
    let trial = stage.open(json!({})).await;
    let mut contents = vec![json!({"role": "user", "parts": [{"text": "Weather?"}]})];
    for _ in 0..3 {
        let body = request(json!({"contents": contents}));
        let (_, _, array) = post(&stage, &trial, "streamGenerateContent", &body).await;
        let answers: Vec<Value> = serde_json::from_str(&array).unwrap();
        // Each chunk is a turn of its own, as in the official client.
        contents.extend(answers.iter().map(|answer| answer["candidates"][0]["content"].clone()));
        let results = calls_of(&turn(&answers)).into_iter();
        let results = results
            .map(|(name, _)| json!({"functionResponse": {"name": name, "response": {"output": "sun"}}}));
        contents.push(json!({"role": "user", "parts": results.collect::<Vec<_>>()}));
    }
    let calls = stage.calls(&trial).await;
    assert_eq!(calls.len(), 3);
    stage.seal(&trial).await;
    let [row] = &stage.rollout(&trial).await[..] else { panic!("one branch") };
    assert_eq!(row.token_ids.len(), calls[2].prompt_token_ids.len() + calls[2].choices[0].token_ids.len());
}

#[tokio::test]
async fn tokens_are_counted_without_a_record() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({})).await;
    let (status, _, counted) = post(&stage, &trial, "countTokens", &request(json!({}))).await;
    let (_, _, answer) = post(&stage, &trial, "generateContent", &request(json!({}))).await;
    assert_eq!(status, StatusCode::OK);
    let counted: Value = serde_json::from_str(&counted).unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(counted["totalTokens"], answer["usageMetadata"]["promptTokenCount"]);
    assert_eq!(stage.calls(&trial).await.len(), 1);
}

#[tokio::test]
async fn errors_are_in_googles_words() {
    let stage = Stage::saying("error = { status = 503, message = \"busy\" }").await;
    let trial = stage.open(json!({})).await;
    let long = request(json!({"contents": [{"parts": [{"text": "word ".repeat(100_000)}]}]}));
    for (body, status, name, part) in [
        (request(json!({})), 503, "UNAVAILABLE", "busy"),
        (request(json!({"cachedContent": "x"})), 400, "INVALID_ARGUMENT", "cachedContent"),
        (long, 400, "INVALID_ARGUMENT", "exceeds the maximum number of tokens allowed ("),
    ] {
        for method in ["generateContent", "streamGenerateContent?alt=sse"] {
            let (code, _, error) = post(&stage, &trial, method, &body).await;
            let error: Value = serde_json::from_str(&error).unwrap();
            assert_eq!((code.as_u16(), &error["error"]["status"]), (status, &json!(name)));
            assert!(error["error"]["message"].as_str().unwrap().contains(part), "{error}");
        }
    }
    let url = stage.agent("/v1beta/models/sim:generateContent");
    let nobody = stage.http.post(url).json(&request(json!({}))).send().await.unwrap();
    assert_eq!(nobody.json::<Value>().await.unwrap()["error"]["status"], "UNAUTHENTICATED");
}
