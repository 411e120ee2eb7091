//! The public URL with a path prefix, which a gateway forwards or removes.

use rolltap_proxy::Settings;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{self, Stage, of_each_dialect, request};

/// Returns a stage whose agents call `https://gateway.example/team/rolltap`.
async fn published() -> Stage {
    let (stage, data) = (Stage::random().await, TempDir::new().unwrap());
    let settings = Settings {
        public_url: Some("https://gateway.example/team/rolltap/".parse().unwrap()),
        ..harness::settings(&format!("http://{}", stage.upstream.addr()), &data)
    };
    Stage { proxy: rolltap_proxy::start(settings).await.unwrap(), data, ..stage }
}

#[tokio::test]
async fn a_path_with_the_prefix_is_the_path_without_it() {
    let stage = published().await;
    let trial = stage.open(json!({})).await;
    let base = format!("https://gateway.example/team/rolltap/t/{}", trial.key);
    assert_eq!(trial.base_urls.openai, format!("{base}/v1"));
    assert_eq!([&trial.base_urls.anthropic, &trial.base_urls.gemini], [&base, &base]);
    for (path, body) in of_each_dialect() {
        let mut statuses = Vec::new();
        for prefix in ["", "/team/rolltap"] {
            for address in [format!("{prefix}/t/{}{path}", trial.key), format!("{prefix}{path}")] {
                let call = stage.http.post(stage.agent(&address)).header("x-api-key", &trial.key).json(&body);
                let answer = call.send().await.unwrap();
                statuses.push(answer.status().as_u16());
                answer.bytes().await.unwrap();
            }
        }
        // The simulator has no completions.
        let expected = if path == "/v1/completions" { 404 } else { 200 };
        assert_eq!(statuses, [expected; 4], "{path}");
    }
}

#[tokio::test]
async fn nothing_but_calls_is_below_the_prefix() {
    let stage = published().await;
    let trial = stage.open(json!({})).await;
    let chat = request(json!({}));
    for path in [
        "/team/rolltap",
        "/team/rolltapx/v1/chat/completions",
        "/team/v1/chat/completions",
        "/team/rolltap/team/rolltap/v1/chat/completions",
        "/team/rolltap/v1/trials",
        "//team/rolltap/v1/chat/completions",
    ] {
        let call = stage.http.post(stage.agent(path)).header("x-api-key", &trial.key).json(&chat);
        assert_eq!(call.send().await.unwrap().status().as_u16(), 404, "{path}");
    }
    let refused = stage.http.post(stage.agent("/team/rolltap/v1/messages")).json(&chat).send().await.unwrap();
    assert_eq!(refused.status().as_u16(), 401);
    let error: Value = refused.json().await.unwrap();
    assert_eq!(error["type"], "error", "the error has the shape of the path's dialect: {error}");
}
