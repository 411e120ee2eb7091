//! Several simulators behind one proxy: the distribution of calls, and the handling of a failed simulator.

use std::time::Duration;

use reqwest::StatusCode;
use rolltap_proxy::api::{TrialOpened, UpstreamState, UpstreamStatus};
use rolltap_proxy::{PoolSettings, Settings};
use rolltap_rollout::call::{Call, CallStatus};
use rolltap_sim as sim;
use rolltap_testing::eventually;
use serde_json::{Value, json};

use crate::harness::{Stage, request, settings, simulator};

/// A proxy in front of several simulators. The stage's own upstream is not one of them.
struct Fleet {
    stage: Stage,
    sims: Vec<sim::RunningSim>,
}

fn often() -> PoolSettings {
    PoolSettings { check_every: Duration::from_millis(20), ..PoolSettings::default() }
}

/// Returns settings under which only calls detect a failure, because the checks are an hour apart.
fn never() -> PoolSettings {
    PoolSettings { check_every: Duration::from_secs(3600), ..PoolSettings::default() }
}

fn answering(answer: &str) -> String {
    format!("[[conversation]]\n[[conversation.turn]]\n[[conversation.turn.answer]]\n{answer}\n")
}

fn url(sim: &sim::RunningSim) -> String {
    format!("http://{}", sim.addr())
}

impl Fleet {
    async fn start(scripts: &[Option<&str>], pool: PoolSettings) -> Self {
        Self::patient(scripts, pool, Settings::DEFAULT_UPSTREAM_IDLE_TIMEOUT).await
    }

    /// Starts a fleet whose upstreams may be silent for this time.
    async fn patient(scripts: &[Option<&str>], pool: PoolSettings, upstream_idle_timeout: Duration) -> Self {
        let mut sims = Vec::new();
        for script in scripts {
            sims.push(simulator(*script).await);
        }
        let (upstream, data) = (simulator(None).await, tempfile::tempdir().unwrap());
        let upstreams = sims.iter().map(|sim| url(sim).parse().unwrap()).collect();
        let settings =
            Settings { upstreams, pool, upstream_idle_timeout, ..settings(&url(&upstream), &data) };
        let proxy = rolltap_proxy::start(settings).await.unwrap();
        Self { stage: Stage { upstream, proxy, data, http: rolltap_testing::http_client() }, sims }
    }

    async fn two(pool: PoolSettings) -> Self {
        Self::start(&[None, None], pool).await
    }

    /// Makes a call. Returns its status and the upstream that answered.
    async fn call(&self, trial: &TrialOpened) -> (StatusCode, Option<String>) {
        let before = self.stage.calls(trial).await.len();
        let status = self.stage.chat(trial, &request(json!({}))).await.status();
        (status, self.stage.calls(trial).await.swap_remove(before).upstream)
    }

    async fn served_by(&self, trial: &TrialOpened) -> String {
        let (status, upstream) = self.call(trial).await;
        assert_eq!(status, StatusCode::OK);
        upstream.unwrap()
    }

    async fn upstreams(&self) -> Vec<UpstreamStatus> {
        self.stage.http.get(self.stage.admin("/v1/upstreams")).send().await.unwrap().json().await.unwrap()
    }

    async fn state(&self, sim: &sim::RunningSim) -> Option<UpstreamState> {
        let url = url(sim);
        self.upstreams().await.into_iter().find(|upstream| upstream.url == url).map(|upstream| upstream.state)
    }

    async fn becomes(&self, sim: &sim::RunningSim, state: Option<UpstreamState>) {
        eventually("the upstream's state", async || self.state(sim).await == state).await;
    }

    /// Opens trials until one has its home at this simulator, and returns that trial.
    async fn trial_of(&self, sim: &sim::RunningSim) -> TrialOpened {
        for _ in 0..self.sims.len() + 1 {
            let trial = self.stage.open(json!({})).await;
            if self.served_by(&trial).await == url(sim) {
                return trial;
            }
        }
        panic!("no trial comes to it");
    }
}

async fn only_call(fleet: &Fleet, trial: &TrialOpened) -> Call {
    eventually("the call is recorded", async || fleet.stage.calls(trial).await.len() == 1).await;
    fleet.stage.calls(trial).await.remove(0)
}

#[tokio::test]
async fn trials_are_spread_and_each_stays_where_it_is() {
    let fleet = Fleet::start(&[None, None, None], often()).await;
    let mut homes = Vec::new();
    for _ in 0..6 {
        let trial = fleet.stage.open(json!({})).await;
        let home = fleet.served_by(&trial).await;
        for _ in 0..3 {
            assert_eq!(fleet.served_by(&trial).await, home);
        }
        homes.push((trial, home));
    }
    for upstream in fleet.upstreams().await {
        assert_eq!((upstream.trials, upstream.in_flight), (2, 0), "{}", upstream.url);
        assert_eq!(upstream.models, ["sim"]);
    }
    // A further upstream changes nothing for the existing trials.
    let body = json!({"url": url(&fleet.stage.upstream)});
    let added = fleet.stage.http.post(fleet.stage.admin("/v1/upstreams")).json(&body).send().await.unwrap();
    assert_eq!(added.status(), StatusCode::CREATED);
    for (trial, home) in &homes {
        assert_eq!(fleet.served_by(trial).await, *home);
    }
    let (trial, _) = homes.pop().unwrap();
    fleet.stage.seal(&trial).await;
    let trials: u64 = fleet.upstreams().await.iter().map(|upstream| upstream.trials).sum();
    assert_eq!(trials, 5, "a sealed trial stays nowhere");
}

#[tokio::test]
async fn a_new_trial_goes_where_the_fewest_calls_are_under_way() {
    let script = "[[conversation]]\nmatch = \"stall\"\n[[conversation.turn]]\n[[conversation.turn.answer]]\n\
                  content = \"one two\"\nstall_after = 1\n";
    let fleet = Fleet::start(&[Some(script), Some(script)], often()).await;
    let busy = fleet.stage.open(json!({})).await;
    let stalls = json!({"stream": true, "messages": [{"role": "user", "content": "stall"}]});
    let stalled = fleet.stage.chat(&busy, &request(stalls)).await;
    let first = fleet.upstreams().await.into_iter().find(|upstream| upstream.in_flight == 1).unwrap();
    for _ in 0..3 {
        let trial = fleet.stage.open(json!({})).await;
        assert_ne!(fleet.served_by(&trial).await, first.url);
    }
    drop(stalled);
    eventually("the call is let go", async || fleet.upstreams().await.iter().all(|u| u.in_flight == 0)).await;
    let trial = fleet.stage.open(json!({})).await;
    assert_eq!(fleet.served_by(&trial).await, first.url, "it has fewer trials");
}

#[tokio::test]
async fn an_upstream_that_falls_ill_gets_no_calls_until_it_is_well() {
    let fleet = Fleet::two(often()).await;
    let (ill, well) = (&fleet.sims[0], &fleet.sims[1]);
    let trial = fleet.trial_of(ill).await;
    ill.set_ill(true);
    fleet.becomes(ill, Some(UpstreamState::Ejected)).await;
    assert_eq!(fleet.served_by(&trial).await, url(well));
    ill.set_ill(false);
    fleet.becomes(ill, Some(UpstreamState::Healthy)).await;
    assert_eq!(fleet.served_by(&trial).await, url(well), "its prefix is cached there by now");
    fleet.trial_of(ill).await;
}

#[tokio::test]
async fn if_an_upstream_is_unreachable_another_is_called_at_once() {
    let mut fleet = Fleet::two(never()).await;
    let gone = fleet.sims.remove(0);
    let (trial, gone_url) = (fleet.trial_of(&gone).await, url(&gone));
    gone.shutdown().await;
    let other = url(&fleet.sims[0]);
    assert_eq!(fleet.served_by(&trial).await, other);
    let ejected = fleet.upstreams().await.into_iter().find(|upstream| upstream.url == gone_url).unwrap();
    assert_eq!(ejected.state, UpstreamState::Ejected);
    assert!(ejected.reason.is_some());
}

#[tokio::test]
async fn an_upstream_that_cannot_now_is_passed_over_and_stays_the_trials_own() {
    let fleet = Fleet::two(often()).await;
    let (own, other) = (&fleet.sims[0], &fleet.sims[1]);
    let trial = fleet.trial_of(own).await;
    own.set_refusing(true);
    assert_eq!(fleet.served_by(&trial).await, url(other));
    own.set_refusing(false);
    assert_eq!(fleet.served_by(&trial).await, url(own));
    own.set_refusing(true);
    other.set_refusing(true);
    let refused = fleet.stage.chat(&trial, &request(json!({}))).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(refused.text().await.unwrap().contains("not now"), "its own words");
}

#[tokio::test]
async fn a_connection_that_goes_before_the_answer_is_tried_once_elsewhere() {
    let cuts = answering("content = \"one two\"\nbreak_after = 0");
    let fleet = Fleet::start(&[Some(&cuts), None], never()).await;
    let trial = fleet.stage.open(json!({})).await;
    assert_eq!(fleet.served_by(&trial).await, url(&fleet.sims[1]));
    assert_eq!(fleet.sims[0].stats().requests, 1);

    let fleet = Fleet::start(&[Some(&cuts), Some(&cuts), Some(&cuts)], never()).await;
    let trial = fleet.stage.open(json!({})).await;
    let (status, upstream) = fleet.call(&trial).await;
    assert_eq!((status, upstream), (StatusCode::BAD_GATEWAY, None));
    let requests: u64 = fleet.sims.iter().map(|sim| sim.stats().requests).sum();
    assert_eq!(requests, 2, "what brings one down may bring down all");
}

#[tokio::test]
async fn after_the_first_bytes_no_other_upstream_is_called() {
    let breaks = answering("content = \"one two three four\"\nbreak_after = 2");
    let fleet = Fleet::start(&[Some(&breaks), None], never()).await;
    let trial = fleet.stage.open(json!({})).await;
    let response = fleet.stage.chat(&trial, &request(json!({"stream": true}))).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert!(response.bytes().await.is_err());
    let call = only_call(&fleet, &trial).await;
    assert_eq!((call.status, call.upstream), (CallStatus::Failed, Some(url(&fleet.sims[0]))));
    assert_eq!(fleet.sims[1].stats().requests, 0);
}

#[tokio::test]
async fn without_a_healthy_upstream_the_agent_gets_the_reason_of_each() {
    let fleet = Fleet::two(often()).await;
    let trial = fleet.stage.open(json!({})).await;
    for sim in &fleet.sims {
        sim.set_ill(true);
        fleet.becomes(sim, Some(UpstreamState::Ejected)).await;
    }
    let response = fleet.stage.chat(&trial, &request(json!({}))).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(response.headers().contains_key("retry-after"));
    let body: Value = response.json().await.unwrap();
    assert_eq!(body["error"]["code"], "no_upstream");
    let message = body["error"]["message"].as_str().unwrap().to_owned();
    for sim in &fleet.sims {
        assert!(message.contains(&format!("{} (its /health answers 503)", url(sim))), "{message}");
    }
    let call = only_call(&fleet, &trial).await;
    assert_eq!(call.status, CallStatus::Failed);
    assert!(call.error.unwrap().contains("/health"));
}

#[tokio::test]
async fn upstreams_come_and_go_at_run_time() {
    let fleet = Fleet::start(&[None], often()).await;
    let admin = fleet.stage.admin("/v1/upstreams");
    let slow = sim::Settings { token_delay: Duration::from_millis(30), ..sim::Settings::default() };
    let slow = sim::start(slow).await.unwrap();
    let add = fleet.stage.http.post(&admin).json(&json!({"url": format!("{}/v1", url(&slow))}));
    let added: UpstreamStatus = add.send().await.unwrap().json().await.unwrap();
    fleet.trial_of(&fleet.sims[0]).await;
    let trial = fleet.stage.open(json!({})).await;
    let mut response = fleet.stage.chat(&trial, &request(json!({"stream": true}))).await;
    response.chunk().await.unwrap().unwrap();

    let remove = fleet.stage.http.delete(format!("{admin}/{}", added.id)).send().await.unwrap();
    let draining: UpstreamStatus = remove.json().await.unwrap();
    assert_eq!((draining.state, draining.in_flight), (UpstreamState::Draining, 1));
    assert_eq!(fleet.served_by(&trial).await, url(&fleet.sims[0]));
    let rest = response.bytes().await.unwrap();
    assert!(rest.ends_with(b"data: [DONE]\n\n"), "a call under way finishes");
    fleet.becomes(&slow, None).await;
    let calls = fleet.stage.calls(&trial).await;
    assert_eq!(calls[0].upstream, Some(url(&slow)));
    assert!(calls.iter().all(|call| call.status == CallStatus::Complete));
}

#[tokio::test]
async fn the_fault_of_an_upstream_is_reported() {
    let fleet = Fleet::start(&[None], often()).await;
    let admin = fleet.stage.admin("/v1/upstreams");
    for (body, status, part) in [
        (json!({"url": "ws://h"}), 400, "neither http nor https"),
        (json!({"url": url(&fleet.sims[0])}), 409, "already"),
        (json!({"uri": "http://h"}), 422, "uri"),
    ] {
        let response = fleet.stage.http.post(&admin).json(&body).send().await.unwrap();
        assert_eq!(response.status().as_u16(), status, "{body}");
        let error: Value = response.json().await.unwrap();
        assert!(error["error"]["message"].as_str().unwrap().contains(part), "{error}");
    }
    let unknown = fleet.stage.http.delete(format!("{admin}/7")).send().await.unwrap();
    assert_eq!(unknown.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn an_upstream_that_does_not_begin_to_answer_is_given_up() {
    let stalls = answering("content = \"one two three\"\nstall_after = 0");
    let fleet = Fleet::patient(&[Some(&stalls)], often(), Duration::from_millis(300)).await;
    let trial = fleet.stage.open(json!({})).await;
    let response = fleet.stage.chat(&trial, &request(json!({}))).await;
    assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(response.json::<Value>().await.unwrap()["error"]["code"], "upstream_timeout");
    let call = only_call(&fleet, &trial).await;
    assert_eq!((call.status, call.http_status), (CallStatus::Failed, None));
    eventually("upstream stops", async || fleet.sims[0].stats().running == 0).await;
}
