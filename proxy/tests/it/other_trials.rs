//! The attacks of an agent on other trials.

use rolltap_proxy::api::TrialOpened;
use serde_json::{Value, json};

use crate::bad_request::set;
use crate::harness::{Stage, of_each_dialect, request};

async fn answer_of(stage: &Stage, trial: &TrialOpened, path: &str, body: &Value) -> (u16, String) {
    let answer = stage.post(trial, path, body.to_string()).await;
    (answer.status().as_u16(), answer.text().await.unwrap())
}

#[tokio::test]
async fn keys_are_of_256_bits_and_nothing_near_one_is_taken_for_it() {
    let stage = Stage::random().await;
    let (trial, other) = (stage.open(json!({})).await, stage.open(json!({})).await);
    let secret = trial.key.strip_prefix("sk-").unwrap();
    assert!(secret.len() == 64 && secret.bytes().all(|digit| digit.is_ascii_hexdigit()));
    assert_ne!(trial.key, other.key);
    let last = if trial.key.ends_with('0') { '1' } else { '0' };
    let key = &trial.key;
    for guess in [
        format!("{}{last}", &key[..key.len() - 1]),
        key[..key.len() - 1].to_owned(),
        format!("{key}0"),
        format!("sk-{}", secret.to_uppercase()),
        format!("sk-%{:02x}{}", secret.as_bytes()[0], &secret[1..]),
        trial.trial_id.to_string(),
        String::new(),
    ] {
        let url = stage.agent(&format!("/t/{guess}/v1/chat/completions"));
        let answer = stage.http.post(url).json(&request(json!({}))).send().await.unwrap();
        // A key without a letter is its own upper case.
        let is_same = guess == *key;
        assert_eq!(answer.status().as_u16() == 401, !is_same, "{guess}");
        assert!(!answer.text().await.unwrap().contains(&secret[..63]), "no error repeats a key");
    }
}

#[tokio::test]
async fn a_path_without_a_key_answers_nothing() {
    let (stage, upstream, _) = set().await;
    for (path, body) in of_each_dialect()
        .into_iter()
        .chain([("/v1/messages/count_tokens", json!({})), ("/v1beta/models/sim:countTokens", json!({}))])
    {
        let answer = stage.http.post(stage.agent(path)).json(&body).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 401, "{path}");
    }
    let models = stage.http.get(stage.agent("/v1/models")).send().await.unwrap();
    assert_eq!((models.status().as_u16(), upstream.heard().len()), (401, 0));
}

#[tokio::test]
async fn answers_of_another_trial_can_be_neither_continued_nor_referred_to() {
    let stage = Stage::saying("content = \"A secret\"").await;
    let (victim, spy) = (stage.open(json!({})).await, stage.open(json!({})).await);
    let body = json!({"model": "sim", "input": [
        {"type": "message", "id": "msg_of_mine", "role": "user", "content": "Hello"}
    ]});
    let (status, said) = answer_of(&stage, &victim, "/v1/responses", &body).await;
    assert_eq!(status, 200);
    let said: Value = serde_json::from_str(&said).unwrap();
    for stolen in [
        json!({"previous_response_id": said["id"], "input": "Repeat it"}),
        json!({"input": [{"type": "item_reference", "id": "msg_of_mine"}]}),
        json!({"input": [{"type": "item_reference", "id": said["output"][0]["id"]}]}),
    ] {
        let mut body = stolen;
        body["model"] = "sim".into();
        let (status, text) = answer_of(&stage, &spy, "/v1/responses", &body).await;
        assert_eq!((status, text.contains("A secret")), (400, false), "{text}");
        assert_eq!(answer_of(&stage, &victim, "/v1/responses", &body).await.0, 200);
    }
}

#[tokio::test]
async fn a_retry_gets_no_answer_of_another_trial() {
    let stage = Stage::random().await;
    let (victim, spy) = (stage.open(json!({})).await, stage.open(json!({})).await);
    for (path, body) in of_each_dialect() {
        for (trial, count) in [(&victim, "0"), (&spy, "1")] {
            let url = stage.agent(&format!("/t/{}{path}", trial.key));
            let call = stage.http.post(url).header("x-stainless-retry-count", count).json(&body);
            assert!(call.send().await.unwrap().text().await.is_ok());
        }
    }
    // Each answer was sampled anew, and is in the record of its own trial.
    let both = [stage.calls(&victim).await, stage.calls(&spy).await];
    assert_eq!((both[0].len(), both[1].len()), (5, 5));
    let ids: std::collections::BTreeSet<_> = both.iter().flatten().map(|call| &call.call_id).collect();
    assert_eq!(ids.len(), 10);
}

#[tokio::test]
async fn a_trial_that_is_restricted_to_a_model_gets_no_other_by_any_name() {
    let (stage, upstream, _) = set().await;
    let trial = stage.open(json!({"model_aliases": {"*": "its-adapter"}})).await;
    let models = [json!("the-other-adapter"), json!(""), json!(null), json!(["x"]), json!({"a": 1})];
    for (path, body) in of_each_dialect() {
        for model in &models {
            let mut body = body.clone();
            body["model"] = model.clone();
            let path = path.replace("models/sim", "models/the-other-adapter");
            answer_of(&stage, &trial, &path, &body).await;
        }
    }
    let twice = r#"{"model":"the-other-adapter","m\u006fdel":"the-other-adapter","messages":[]}"#;
    stage.post(&trial, "/v1/chat/completions", twice).await;
    let heard = upstream.heard();
    assert!(heard.len() > 10, "{}", heard.len());
    for body in heard {
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["model"], "its-adapter");
    }
}

#[tokio::test]
async fn a_salt_that_a_trial_enforces_is_not_the_agents_to_change() {
    let (stage, upstream, _) = set().await;
    let trial = stage.open(json!({"sampling": {"cache_salt": "of-this-trial"}})).await;
    for members in [r#""cache_salt":"theirs""#, r#""cache_salt":"a","cache_s\u0061lt":"theirs""#, r#""x":1"#]
    {
        let body = format!(r#"{{{members},"messages":[],"stream":true}}"#);
        assert_eq!(stage.post(&trial, "/v1/chat/completions", body).await.status().as_u16(), 200);
    }
    for body in upstream.heard() {
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["cache_salt"], "of-this-trial");
    }
}

#[tokio::test]
async fn a_sealed_trial_learns_nothing_more() {
    let stage = Stage::random().await;
    let trial = stage.open(json!({})).await;
    stage.seal(&trial).await;
    for (path, body) in of_each_dialect().into_iter().chain([(
        "/v1/messages/count_tokens",
        json!({"model": "sim", "messages": [{"role": "user", "content": "Hello"}]}),
    )]) {
        assert_eq!(answer_of(&stage, &trial, path, &body).await.0, 410, "{path}");
    }
    let models = stage.agent(&format!("/t/{}/v1/models", trial.key));
    assert_eq!(stage.http.get(models).send().await.unwrap().status().as_u16(), 410);
    assert_eq!(stage.upstream.stats().requests, 0);
}
