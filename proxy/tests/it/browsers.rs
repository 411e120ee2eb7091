//! Agents in web pages: the preflight requests of a browser, and the answers that it lets a page read.

use reqwest::{Method, Response, StatusCode};
use rolltap_proxy::api::TrialOpened;
use rolltap_proxy::{AllowedOrigins, Settings};
use serde_json::json;
use tempfile::TempDir;

use crate::harness::{self, Stage, request};

const PAGE: &str = "https://app.example";

async fn allowing(origins: &[&str]) -> Stage {
    let stage = Stage::random().await;
    let data = TempDir::new().unwrap();
    let origins: Vec<_> = origins.iter().map(|&origin| origin.to_owned()).collect();
    let settings = Settings {
        allowed_origins: AllowedOrigins::new(&origins).unwrap(),
        ..harness::settings(&format!("http://{}", stage.upstream.addr()), &data)
    };
    Stage { proxy: rolltap_proxy::start(settings).await.unwrap(), data, ..stage }
}

fn header<'a>(answer: &'a Response, name: &str) -> Option<&'a str> {
    answer.headers().get(name).map(|value| value.to_str().unwrap())
}

async fn preflight(stage: &Stage, trial: &TrialOpened, origin: &str) -> Response {
    stage
        .http
        .request(Method::OPTIONS, format!("{}/chat/completions", trial.base_urls.openai))
        .header("origin", origin)
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "authorization,content-type")
        .send()
        .await
        .unwrap()
}

#[tokio::test]
async fn a_page_of_an_allowed_origin_calls_and_reads_answers_and_refusals() {
    let stage = allowing(&[PAGE, "http://localhost:3000"]).await;
    let trial = stage.open(json!({})).await;
    let asked = preflight(&stage, &trial, PAGE).await;
    assert_eq!(asked.status(), StatusCode::OK);
    assert_eq!(header(&asked, "access-control-allow-origin"), Some(PAGE));
    assert_eq!(header(&asked, "access-control-allow-methods"), Some("GET,POST"));
    assert_eq!(header(&asked, "access-control-allow-headers"), Some("authorization,content-type"));
    for (body, status) in [(request(json!({})), 200), (json!("no request"), 400)] {
        let url = format!("{}/chat/completions", trial.base_urls.openai);
        let answer = stage.http.post(url).header("origin", PAGE).json(&body).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), status);
        assert_eq!(header(&answer, "access-control-allow-origin"), Some(PAGE));
    }
    assert_eq!(stage.status(&trial).await.calls.complete, 1, "a preflight is no call");
    let other = preflight(&stage, &trial, "https://other.example").await;
    assert_eq!(header(&other, "access-control-allow-origin"), None);
}

#[tokio::test]
async fn no_page_may_call_by_default_nor_ever_the_admin_plane() {
    let stage = allowing(&[]).await;
    let trial = stage.open(json!({})).await;
    let asked = preflight(&stage, &trial, PAGE).await;
    assert_eq!(asked.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(header(&asked, "access-control-allow-origin"), None);
    let stage = allowing(&["*"]).await;
    let asked = stage.http.get(stage.admin("/v1/trials")).header("origin", PAGE).send().await.unwrap();
    assert_eq!(header(&asked, "access-control-allow-origin"), None);
}
