//! The agent gets the answer that upstream would have sent it directly, and the record holds the tokens that upstream
//! sampled.

use rolltap_rollout::call::{Call, CallStatus};
use rolltap_rollout::token::TokenId;
use rolltap_testing::eventually;
use serde_json::{Value, json};

use crate::harness::{Stage, request};

/// Removes the fields that differ between any two requests.
fn comparable(mut body: Value) -> Value {
    for key in ["id", "created", "system_fingerprint"] {
        body.as_object_mut().unwrap().remove(key);
    }
    body
}

fn events(stream: &str) -> Vec<Value> {
    let data = stream.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
    data.map(
        |data| {
            if data == "[DONE]" { json!("[DONE]") } else { comparable(serde_json::from_str(data).unwrap()) }
        },
    )
    .collect()
}

fn ids(json: &Value) -> Vec<TokenId> {
    serde_json::from_value(json.clone()).unwrap()
}

/// Returns requests of every kind, each with a seed, so that the simulator answers the same with and without the proxy.
fn requests() -> Vec<Value> {
    [
        json!({}),
        json!({"n": 3}),
        json!({"logprobs": true, "top_logprobs": 2}),
        json!({"return_token_ids": true}),
        json!({"logprobs": true, "return_token_ids": true}),
        json!({"stop": ["e"]}),
        json!({"max_tokens": 1}),
        json!({"temperature": 0}),
    ]
    .into_iter()
    .map(|mut extra| {
        extra["seed"] = json!(7);
        request(extra)
    })
    .collect()
}

#[tokio::test]
async fn whole_answers_are_equal_with_and_without_us() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({})).await;
    for body in requests() {
        let direct = stage.http.post(stage.direct()).json(&body).send().await.unwrap();
        let ours = stage.chat(&trial, &body).await;
        assert_eq!(ours.status(), direct.status());
        assert_eq!(ours.headers()["content-type"], direct.headers()["content-type"]);
        let (ours, direct): (Value, Value) = (ours.json().await.unwrap(), direct.json().await.unwrap());
        assert_eq!(comparable(ours), comparable(direct), "{body}");
    }
}

#[tokio::test]
async fn streams_are_equal_with_and_without_us() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({})).await;
    for mut body in requests() {
        body["stream"] = json!(true);
        body["stream_options"] = json!({"include_usage": true});
        let direct = stage.http.post(stage.direct()).json(&body).send().await.unwrap();
        let ours = stage.chat(&trial, &body).await;
        assert_eq!(ours.headers()["content-type"], direct.headers()["content-type"]);
        let (ours, direct) = (ours.text().await.unwrap(), direct.text().await.unwrap());
        assert_eq!(events(&ours), events(&direct), "{body}");
    }
}

#[tokio::test]
async fn every_sampled_token_is_recorded_with_its_logprob() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({})).await;
    for stream in [false, true] {
        let body = request(json!({"n": 2, "seed": 3, "stream": stream}));
        assert!(stage.chat(&trial, &body).await.status().is_success());
    }
    let with_ids = request(json!({"n": 2, "seed": 3, "logprobs": true, "return_token_ids": true}));
    let sampled: Value =
        stage.http.post(stage.direct()).json(&with_ids).send().await.unwrap().json().await.unwrap();
    eventually("both calls are recorded", async || stage.calls(&trial).await.len() == 2).await;
    for call in stage.calls(&trial).await {
        assert_eq!((call.status, &call.flaws[..]), (CallStatus::Complete, &[][..]));
        assert_eq!(call.prompt_token_ids, ids(&sampled["prompt_token_ids"]));
        let choices = sampled["choices"].as_array().unwrap();
        assert_eq!(call.choices.len(), choices.len());
        for (kept, choice) in call.choices.iter().zip(choices) {
            assert_eq!(kept.token_ids, ids(&choice["token_ids"]));
            assert_eq!(kept.finish_reason.as_deref(), choice["finish_reason"].as_str());
            let logprobs: Vec<_> = choice["logprobs"]["content"]
                .as_array()
                .unwrap()
                .iter()
                .map(|e| e["logprob"].as_f64().unwrap() as f32)
                .collect();
            assert_eq!(kept.logprobs.iter().map(|l| l.unwrap().get()).collect::<Vec<_>>(), logprobs);
        }
    }
}

#[tokio::test]
async fn turns_become_one_branch_with_the_reward() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({"group_id": "g", "group_size": 2, "sample_index": 1})).await;
    let mut messages = vec![json!({"role": "user", "content": "Hello"})];
    for turn in 0..3 {
        let body = request(json!({"messages": messages}));
        let answer: Value = stage.chat(&trial, &body).await.json().await.unwrap();
        messages.push(json!({"role": "assistant", "content": answer["choices"][0]["message"]["content"]}));
        messages.push(json!({"role": "user", "content": format!("And then? {turn}")}));
    }
    stage.seal(&trial).await;
    let url = stage.admin(&format!("/v1/trials/{}/reward", trial.trial_id));
    let put = async |body: Value| stage.http.put(&url).json(&body).send().await.unwrap().status().as_u16();
    assert_eq!(put(json!({"rewards": {"reward": 0.5}})).await, 200);
    assert_eq!(put(json!({"rewards": {"reward": 0.5}})).await, 200, "the same again");
    assert_eq!(put(json!({"rewards": {"reward": 1.0}})).await, 409);

    let (rows, calls) = (stage.rollout(&trial).await, stage.calls(&trial).await);
    assert_eq!((calls.len(), rows.iter().map(|row| row.calls.len()).sum::<usize>()), (3, 3));
    assert!(rows.iter().all(|row| row.reward == Some(0.5) && row.sample_index == 1));
    for row in &rows {
        for span in &row.calls {
            let call: &Call = calls.iter().find(|call| call.call_id.as_str() == span.call_id).unwrap();
            let prompt: Vec<_> = call.prompt_token_ids.iter().map(|id| id.as_i32()).collect();
            assert_eq!(row.token_ids[..span.start as usize], prompt);
        }
    }
}

#[tokio::test]
async fn enforced_sampling_reaches_upstream() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({"sampling": {"max_tokens": 2, "ignore_eos": true}})).await;
    let answer: Value = stage.chat(&trial, &request(json!({"max_tokens": 50}))).await.json().await.unwrap();
    assert_eq!(answer["usage"]["completion_tokens"], 2);
    assert_eq!(stage.calls(&trial).await[0].sampling.params["max_tokens"], 2);
}

#[tokio::test]
async fn models_pass_and_unknown_paths_do_not() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({})).await;
    let get =
        async |path: &str| stage.http.get(format!("{}{path}", trial.base_urls.openai)).send().await.unwrap();
    let models: Value = get("/models").await.json().await.unwrap();
    assert_eq!(models["data"][0]["id"], "sim");
    for path in ["/../health", "/load_lora_adapter", "/models/../../tokenize"] {
        assert_eq!(get(path).await.status().as_u16(), 404, "{path}");
    }
    let wrong_method = get("/chat/completions").await;
    assert_eq!(wrong_method.status().as_u16(), 405);
}
