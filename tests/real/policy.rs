//! Policy versions and the pause around weight updates, against vLLM with its development endpoints.

use reqwest::{Response, StatusCode};
use rolltap_proxy::api::PolicyStatus;
use rolltap_rollout::call::CallStatus;
use rolltap_rollout::check::{Captured, Options, check_trial};
use rolltap_rollout::row::RolloutRow;
use rolltap_testing::eventually;
use serde_json::{Value, json};

use crate::harness::Stage;

const CHAT: &str = "/chat/completions";

async fn status(stage: &Stage) -> PolicyStatus {
    stage.http.get(stage.admin("/v1/policy")).send().await.unwrap().json().await.unwrap()
}

async fn post(stage: &Stage, path: &str, body: Value) -> PolicyStatus {
    let response = stage.http.post(stage.admin(path)).json(&body).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK, "{path}");
    response.json().await.unwrap()
}

/// Returns a request with an answer that is long enough for an action meanwhile.
fn long() -> Value {
    json!({"model": "tiny", "messages": [{"role": "user", "content": "Go on"}], "stream": true,
        "max_tokens": 3000, "ignore_eos": true})
}

async fn some_chunks(response: &mut Response) {
    for _ in 0..20 {
        response.chunk().await.unwrap().unwrap();
    }
}

async fn set_vllm_version(stage: &Stage, version: &str) {
    let url = format!("{}/update_weight_version", stage.vllm);
    let answer = stage.http.post(url).json(&json!({"new_version": version})).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK, "{}", answer.text().await.unwrap());
}

/// This is one test, because the server has one version: one part must not change the version of another.
#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn policy_versions_and_pauses() {
    a_call_that_straddles_a_bump_has_both_versions_on_its_tokens().await;
    the_version_that_vllm_reports_is_learnt().await;
    a_pause_lets_calls_finish_holds_new_ones_and_lets_them_go().await;
}

async fn a_call_that_straddles_a_bump_has_both_versions_on_its_tokens() {
    let stage = Stage::set().await;
    post(&stage, "/v1/policy", json!({"version": "before"})).await;
    let trial = stage.open().await;
    let mut response = stage.post(&trial.base_urls.openai, CHAT, &long()).await;
    some_chunks(&mut response).await;
    post(&stage, "/v1/policy", json!({"version": "after"})).await;
    response.bytes().await.unwrap();

    let calls = stage.calls(&trial).await;
    let [call] = &calls[..] else { panic!("one call") };
    assert_eq!((call.status, call.straddles_versions), (CallStatus::Complete, true));
    assert_eq!(call.upstream.as_deref(), Some(stage.vllm.trim_end_matches('/')));
    let versions: Vec<_> = call.token_versions(&call.choices[0]).collect();
    let of = |version: i32| versions.iter().filter(|&&other| other == version).count();
    let before = call.policy_version;
    assert!(of(before) > 0 && of(before + 1) > 0 && of(before) + of(before + 1) == versions.len());

    let seal = stage.http.post(stage.admin(&format!("/v1/trials/{}/seal", trial.trial_id))).send();
    assert_eq!(seal.await.unwrap().status(), StatusCode::OK);
    let url = stage.admin(&format!("/v1/trials/{}/rollout", trial.trial_id));
    let text = stage.http.get(url).send().await.unwrap().text().await.unwrap();
    let row: RolloutRow = serde_json::from_str(text.trim()).unwrap();
    assert_eq!(row.version_labels.values().collect::<Vec<_>>(), ["before", "after"]);
    assert!(row.token_version.ends_with(&versions));
    let breaches = check_trial(&trial.trial_id, &[row], Some(&Captured::new(&calls)), Options::default());
    assert_eq!(breaches, []);
}

async fn the_version_that_vllm_reports_is_learnt() {
    let stage = Stage::set().await;
    eventually("vLLM reports a version", async || status(&stage).await.current.label.is_some()).await;
    let before = status(&stage).await.current;
    let label = format!("step-{}", std::process::id());
    set_vllm_version(&stage, &label).await;
    eventually("the change is learnt", async || {
        status(&stage).await.current.label.as_deref() == Some(&label)
    })
    .await;
    assert_eq!(status(&stage).await.current.version, before.version + 1);
    // Other tests share the server, so its label is restored.
    set_vllm_version(&stage, before.label.as_deref().unwrap_or("default")).await;
    eventually("what was there is known", async || status(&stage).await.current == before).await;
}

async fn a_pause_lets_calls_finish_holds_new_ones_and_lets_them_go() {
    let stage = Stage::set().await;
    let trial = stage.open().await;
    let mut under_way = stage.post(&trial.base_urls.openai, CHAT, &long()).await;
    some_chunks(&mut under_way).await;
    let wait = json!({"mode": "hold", "wait": true});
    let (paused, rest) = tokio::join!(post(&stage, "/v1/policy/pause", wait), under_way.bytes());
    assert!(rest.unwrap().ends_with(b"data: [DONE]\n\n"));
    assert_eq!((paused.paused, paused.in_flight), (true, 0));

    let short = json!({"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4});
    let (held, ()) = tokio::join!(stage.post(&trial.base_urls.openai, CHAT, &short), async {
        eventually("the call is held", async || status(&stage).await.held == 1).await;
        post(&stage, "/v1/policy", json!({"version": 1})).await;
        post(&stage, "/v1/policy/resume", json!({})).await;
    });
    assert_eq!(held.status(), StatusCode::OK);
    let calls = stage.calls(&trial).await;
    let versions: Vec<_> = calls.iter().map(|call| (call.policy_version, call.straddles_versions)).collect();
    assert_eq!(versions[1], (versions[0].0 + 1, false));
    assert!(!calls[0].straddles_versions, "it had ended when the weights changed");
}
