//! Admission of trials by the `/metrics` of a server: usable, missing, wrong, and never answered.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use rolltap_proxy::api::{KvCacheStatus, UpstreamStatus};
use rolltap_proxy::{PoolSettings, Settings};
use rolltap_rollout::ids::TrialId;
use rolltap_testing::eventually;
use tokio::net::TcpListener;

use crate::harness::{Stage, settings, simulator};

/// The KV cache of a server, as `/metrics` describes it: 48 blocks of 128 tokens.
const USABLE: &str = "vllm:cache_config_info{block_size=\"128\",num_gpu_blocks=\"48\"} 1.0\n\
    vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n";
/// The tokens of that cache.
const CAPACITY: u64 = 6144;
/// The number of open trials at a server whose cache is not known.
const FIXED: usize = 4;

/// What `/metrics` of a server answers.
#[derive(Clone, Copy)]
enum Metrics {
    Text(&'static str),
    NotFound,
    Never,
}

/// A proxy that admits trials, in front of one server.
struct Admitting {
    stage: Stage,
    metrics: Arc<Mutex<Metrics>>,
}

async fn metrics(State(answer): State<Arc<Mutex<Metrics>>>) -> Response {
    let answer = *answer.lock().unwrap();
    match answer {
        Metrics::Text(text) => text.into_response(),
        Metrics::NotFound => StatusCode::NOT_FOUND.into_response(),
        Metrics::Never => std::future::pending().await,
    }
}

impl Admitting {
    async fn start(first: Metrics) -> Self {
        let answer = Arc::new(Mutex::new(first));
        let router = Router::new()
            .route("/health", get(async || ""))
            .route("/metrics", get(metrics))
            .with_state(Arc::clone(&answer));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let (upstream, data) = (simulator(None).await, tempfile::tempdir().unwrap());
        let check_every = Duration::from_millis(20);
        let pool = PoolSettings { check_every, admits_trials: true, ..PoolSettings::default() };
        let settings = Settings { pool, ..settings(&url, &data) };
        let proxy = rolltap_proxy::start(settings).await.unwrap();
        let stage = Stage { upstream, proxy, data, http: rolltap_testing::http_client() };
        Self { stage, metrics: answer }
    }

    fn admit(&self, number: usize) -> bool {
        let admission = self.stage.proxy.trial_admission().unwrap();
        admission.admit(&TrialId::new(format!("t-{number}")).unwrap(), "task")
    }

    fn release(&self, number: usize) {
        let admission = self.stage.proxy.trial_admission().unwrap();
        admission.release(&TrialId::new(format!("t-{number}")).unwrap());
    }

    async fn cache(&self) -> KvCacheStatus {
        let answer = self.stage.http.get(self.stage.admin("/v1/upstreams")).send().await.unwrap();
        let [server]: [UpstreamStatus; 1] = answer.json::<Vec<_>>().await.unwrap().try_into().unwrap();
        server.kv_cache.unwrap()
    }
}

#[tokio::test]
async fn without_usable_metrics_a_fixed_number_of_trials_is_open() {
    for metrics in [
        Metrics::NotFound,
        Metrics::Never,
        Metrics::Text("<html>It works!</html>"),
        Metrics::Text("vllm:cache_config_info{block_size=\"128\",num_gpu_blocks=\"0\"} 1.0"),
        Metrics::Text("vllm:cache_config_info{block_size=\"128\",num_gpu_blocks=\"99999999999999999\"} 1.0"),
    ] {
        let proxy = Admitting::start(metrics).await;
        // No trial is admitted before the server has answered or has not answered in time.
        eventually("a trial is admitted", async || proxy.admit(0)).await;
        assert_eq!((1..10).filter(|number| proxy.admit(*number)).count(), FIXED - 1);
        let expected = KvCacheStatus {
            open_trials: FIXED as u64,
            capacity_tokens: None,
            limit_tokens: None,
            forecast_tokens: 0,
        };
        assert_eq!(proxy.cache().await, expected);
        proxy.release(0);
        assert_eq!((10..20).filter(|number| proxy.admit(*number)).count(), 1);
    }
}

#[tokio::test]
async fn a_cache_whose_metrics_cease_falls_back_to_the_fixed_number_and_keeps_its_trials() {
    let proxy = Admitting::start(Metrics::Text(USABLE)).await;
    eventually("a trial is admitted", async || proxy.admit(0)).await;
    let others = (1..10).filter(|number| proxy.admit(*number)).count() as u64;
    let before = proxy.cache().await;
    assert_eq!((before.open_trials, before.capacity_tokens), (others + 1, Some(CAPACITY)));
    assert!(before.forecast_tokens <= before.limit_tokens.unwrap(), "{before:?}");

    *proxy.metrics.lock().unwrap() = Metrics::NotFound;
    eventually("the cache is unknown", async || proxy.cache().await.capacity_tokens.is_none()).await;
    assert_eq!(proxy.cache().await.open_trials, before.open_trials);
    for number in 0..10 {
        proxy.release(number);
    }
    assert_eq!((20..30).filter(|number| proxy.admit(*number)).count(), FIXED);
}
