//! The spans of trials and calls at a collector, and calls while the collector does not take spans.

use axum::http::StatusCode;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode as SpanStatus;
use reqwest::{Client, Response};
use rolltap_proxy::api::TrialOpened;
use rolltap_proxy::traces::{TraceSettings, TraceTexts};
use rolltap_proxy::{RunningProxy, Settings};
use rolltap_testing::{TestAuthority, eventually, limit};
use serde_json::json;
use tempfile::TempDir;

use crate::collector::{Collector, named, texts};
use crate::harness::{request, settings};
use crate::raw_upstream::{RawUpstream, Script, whole};
use crate::tls::gateway;

const RUNNER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const AGENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// A proxy with traces, and clients of both planes.
struct Scene {
    upstream: RawUpstream,
    proxy: RunningProxy,
    http: Client,
    data: TempDir,
}

impl Scene {
    async fn with(endpoint: &str, scripts: Vec<Script>, change: impl FnOnce(&mut TraceTexts)) -> Self {
        let upstream = RawUpstream::start(scripts).await;
        let data = TempDir::new().unwrap();
        let mut texts = TraceTexts { endpoint: endpoint.to_owned(), ..TraceTexts::default() };
        change(&mut texts);
        let traces = Some(TraceSettings::read(texts).unwrap());
        let proxy =
            rolltap_proxy::start(Settings { traces, ..settings(&upstream.url, &data) }).await.unwrap();
        Self { upstream, proxy, http: rolltap_testing::http_client(), data }
    }

    fn admin(&self, path: &str) -> String {
        format!("http://{}{path}", self.proxy.admin_addr())
    }

    async fn open(&self, traceparent: Option<&str>) -> TrialOpened {
        let body = json!({"task_id": "org/task", "trial_id": "one", "group_id": "g", "agent": "coder", "history": "off"});
        let request = self.http.post(self.admin("/v1/trials")).json(&body);
        let request =
            traceparent.into_iter().fold(request, |request, text| request.header("traceparent", text));
        request.send().await.unwrap().json().await.unwrap()
    }

    async fn chat(&self, trial: &TrialOpened, headers: &[(&str, &str)]) -> Response {
        let url = format!("{}/chat/completions", trial.base_urls.openai);
        let call = self.http.post(url).json(&request(json!({"stream": true, "temperature": 0.5})));
        headers.iter().fold(call, |call, (name, value)| call.header(*name, *value)).send().await.unwrap()
    }

    /// Seals the trial, and stops the proxy, which sends the last spans.
    async fn end(self, trial: &TrialOpened) {
        let url = self.admin(&format!("/v1/trials/{}/seal", trial.trial_id));
        assert!(self.http.post(url).send().await.unwrap().status().is_success());
        self.proxy.shutdown(limit(5)).await.unwrap();
    }
}

/// Returns the trace and the span that a `traceparent` names.
fn ids(traceparent: &str) -> (Vec<u8>, Vec<u8>) {
    let bytes = |hex: &str| {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    };
    let mut parts = traceparent.split('-').skip(1);
    (bytes(parts.next().unwrap()), bytes(parts.next().unwrap()))
}

fn is_below(span: &Span, parent: &Span) -> bool {
    span.trace_id == parent.trace_id && span.parent_span_id == parent.span_id
}

#[tokio::test]
async fn a_call_has_its_phases_below_its_trial_and_the_trial_is_below_its_runner() {
    let collector = Collector::answering(StatusCode::OK).await;
    let scene = Scene::with(&collector.url, Vec::new(), |texts| {
        texts.headers = Some("x-key=of%20the%20collector".to_owned());
        texts.resource_attributes = Some("deployment.environment.name=test".to_owned());
    })
    .await;
    let trial = scene.open(Some(RUNNER)).await;
    assert!(scene.chat(&trial, &[]).await.text().await.unwrap().contains("[DONE]"));
    scene.end(&trial).await;

    let export = &collector.exports()[0];
    assert_eq!(export.path, "/v1/traces");
    assert_eq!(export.headers["x-key"], "of the collector");
    assert_eq!(export.headers["content-type"], "application/x-protobuf");
    let resource = collector.resource();
    assert_eq!(
        (resource["service.name"].as_str(), resource["deployment.environment.name"].as_str()),
        ("rolltap", "test")
    );

    let spans = collector.spans();
    let [capture, call] = ["capture", "chat sim"].map(|name| named(&spans, name));
    assert_eq!((capture.trace_id.clone(), capture.parent_span_id.clone()), ids(RUNNER));
    assert!(is_below(call, capture) && call.links.is_empty());
    let phases = ["queue", "prefill", "stream"].map(|name| named(&spans, name));
    assert!(phases.iter().all(|phase| is_below(phase, call)));
    let times = phases.map(|phase| (phase.start_time_unix_nano, phase.end_time_unix_nano));
    assert_eq!((times[0].0, times[2].1), (call.start_time_unix_nano, call.end_time_unix_nano));
    assert_eq!((times[0].1, times[1].1), (times[1].0, times[2].0));
    assert!(capture.start_time_unix_nano <= call.start_time_unix_nano);
    assert!(call.end_time_unix_nano <= capture.end_time_unix_nano);
    assert_eq!(spans.len(), 5);

    assert_eq!(call.kind, i32::from(SpanKind::Server));
    let of_call = texts(&call.attributes);
    for (key, value) in [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.provider.name", "vllm"),
        ("gen_ai.request.model", "sim"),
        ("gen_ai.response.model", "m"),
        ("gen_ai.request.stream", "true"),
        ("gen_ai.request.temperature", "0.5"),
        ("gen_ai.request.max_tokens", "16"),
        ("gen_ai.usage.input_tokens", "2"),
        ("gen_ai.usage.output_tokens", "2"),
        ("gen_ai.response.finish_reasons", "stop"),
        ("server.address", "127.0.0.1"),
        ("http.response.status_code", "200"),
        ("rolltap.trial.id", "one"),
        ("rolltap.call.status", "complete"),
        ("rolltap.call.role", "main"),
    ] {
        assert_eq!(of_call.get(key).map(String::as_str), Some(value), "{key} in {of_call:?}");
    }
    let of_trial = texts(&capture.attributes);
    for (key, value) in [
        ("rolltap.trial.id", "one"),
        ("rolltap.task.id", "org/task"),
        ("rolltap.group.id", "g"),
        ("gen_ai.agent.name", "coder"),
        ("rolltap.calls.complete", "1"),
        ("rolltap.tokens.completion", "2"),
    ] {
        assert_eq!(of_trial.get(key).map(String::as_str), Some(value), "{key} in {of_trial:?}");
    }
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/spans.md")).unwrap();
    let keys = spans.iter().flat_map(|span| &span.attributes).map(|pair| &pair.key);
    for key in keys {
        assert!(page.contains(&format!("`{key}`")), "{key} is not in docs/reference/spans.md");
    }
}

#[tokio::test]
async fn the_agents_trace_is_continued_and_reaches_the_upstream_unchanged() {
    let collector = Collector::answering(StatusCode::OK).await;
    let scene = Scene::with(&collector.url, Vec::new(), |_| {}).await;
    let trial = scene.open(None).await;
    let unsampled = AGENT.replace("-01", "-00");
    scene.chat(&trial, &[("traceparent", AGENT), ("tracestate", "vendor=1")]).await.text().await.unwrap();
    scene.chat(&trial, &[("traceparent", &unsampled)]).await.text().await.unwrap();
    scene.chat(&trial, &[("traceparent", "nonsense")]).await.text().await.unwrap();
    scene.chat(&trial, &[]).await.text().await.unwrap();
    let heads = scene.upstream.heads();
    let has = |head: usize, line: &str| heads[head].contains(line);
    assert!(has(0, &format!("traceparent: {AGENT}\r\n")) && has(0, "tracestate: vendor=1\r\n"), "{heads:?}");
    assert!(has(1, &unsampled) && has(2, "traceparent: nonsense\r\n") && !has(3, "traceparent"), "{heads:?}");
    scene.end(&trial).await;

    let spans = collector.spans();
    let capture = named(&spans, "capture");
    assert!(capture.parent_span_id.is_empty());
    let calls: Vec<_> = spans.iter().filter(|span| span.name == "chat sim").collect();
    let (trace, parent) = ids(AGENT);
    let of_agent: Vec<_> = calls.iter().filter(|call| call.trace_id == trace).collect();
    assert_eq!((calls.len(), of_agent.len()), (3, 1), "the agent records one of its two calls");
    let link = &of_agent[0].links[0];
    assert_eq!(of_agent[0].parent_span_id, parent);
    assert_eq!((&link.trace_id, &link.span_id), (&capture.trace_id, &capture.span_id));
    assert_eq!(calls.iter().filter(|call| is_below(call, capture)).count(), 2);
}

#[tokio::test]
async fn a_failed_call_has_its_kind_of_error_and_none_of_its_text() {
    let collector = Collector::answering(StatusCode::OK).await;
    let body = r#"{"error":{"message":"the prompt Hello is refused","type":"BadRequestError","code":400}}"#;
    let refusal = whole("400 Bad Request", "application/json", body);
    let scene = Scene::with(&collector.url, vec![refusal], |_| {}).await;
    let trial = scene.open(None).await;
    assert_eq!(scene.chat(&trial, &[]).await.status().as_u16(), 400);
    scene.end(&trial).await;
    let spans = collector.spans();
    let call = named(&spans, "chat sim");
    let status = call.status.as_ref().unwrap();
    assert_eq!((status.code, status.message.as_str()), (SpanStatus::Error.into(), ""));
    assert_eq!(texts(&call.attributes)["error.type"], "400");
    named(&spans, "answer");
    for export in collector.exports() {
        assert!(!String::from_utf8_lossy(&export.body).contains("Hello"));
    }
}

#[tokio::test]
async fn a_trial_is_in_the_same_trace_after_a_restart() {
    let collector = Collector::answering(StatusCode::OK).await;
    let scene = Scene::with(&collector.url, Vec::new(), |_| {}).await;
    let trial = scene.open(Some(RUNNER)).await;
    scene.chat(&trial, &[]).await.text().await.unwrap();
    let Scene { upstream, proxy, http, data } = scene;
    proxy.shutdown(limit(5)).await.unwrap();
    let texts = TraceTexts { endpoint: collector.url.clone(), ..TraceTexts::default() };
    let traces = Some(TraceSettings::read(texts).unwrap());
    let proxy = rolltap_proxy::start(Settings { traces, ..settings(&upstream.url, &data) }).await.unwrap();
    Scene { upstream, proxy, http, data }.end(&trial).await;
    let spans = collector.spans();
    assert!(is_below(named(&spans, "chat sim"), named(&spans, "capture")));
}

#[tokio::test]
async fn a_collector_that_refuses_or_hangs_or_is_gone_changes_nothing_for_agents() {
    let refusing = Collector::answering(StatusCode::BAD_REQUEST).await;
    let hanging = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let hanging_url = format!("http://{}", hanging.local_addr().unwrap());
    for endpoint in [refusing.url.clone(), hanging_url, format!("http://{gone}")] {
        let scene = Scene::with(&endpoint, Vec::new(), |_| {}).await;
        let trial = scene.open(None).await;
        let answer = scene.chat(&trial, &[]).await.text().await.unwrap();
        assert!(answer.ends_with("[DONE]\n\n"), "{answer}");
        if endpoint == refusing.url {
            let dropped = "rolltap_spans_dropped_total{reason=\"not_taken\"} 4";
            eventually("the drops are counted", async || {
                let metrics = scene.http.get(scene.admin("/metrics")).send().await.unwrap();
                metrics.text().await.unwrap().contains(dropped)
            })
            .await;
        }
        // The last spans are tried for a bounded time.
        tokio::time::timeout(limit(20), scene.end(&trial)).await.unwrap();
    }
}

#[tokio::test]
async fn spans_go_to_a_collector_with_a_private_authority() {
    let collector = Collector::answering(StatusCode::OK).await;
    let authority = TestAuthority::default();
    let address = collector.url.strip_prefix("http://").unwrap().parse().unwrap();
    let url = gateway(address, &authority.certificate("127.0.0.1")).await;
    let file = authority.file();
    let trusting = |texts: &mut TraceTexts| texts.certificate = Some(file.path().to_owned());
    let scene = Scene::with(url.trim_end_matches("/v1"), Vec::new(), trusting).await;
    let trial = scene.open(None).await;
    scene.chat(&trial, &[]).await.text().await.unwrap();
    scene.end(&trial).await;
    assert_eq!(collector.spans().len(), 5);
}
