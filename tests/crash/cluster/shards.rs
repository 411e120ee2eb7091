//! A cluster of several shards answers as one proxy does, at each of its nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use reqwest::{Method, StatusCode};
use rolltap_sim as sim;
use rolltap_testing::{NatsServers, limit};
use serde_json::{Value, json};

use super::super::proxy::Place;
use super::feed;
use super::network::Reach;
use super::nodes::{Nodes, Size};

const SIZE: Size = Size { nodes: 3, shards: 2 };

/// A cluster, and a client of all its nodes in turn.
struct Bench {
    nodes: Nodes,
    http: reqwest::Client,
    turn: usize,
    _servers: NatsServers,
    _upstream: sim::RunningSim,
}

impl Bench {
    async fn start(dir: &Path) -> Self {
        let upstream = sim::start(sim::Settings::default()).await.unwrap();
        let url = format!("http://{}", upstream.addr());
        let servers = NatsServers::start(1);
        let more = ["--cluster-replicas", "1"];
        let nodes = Nodes::start(dir, &url, SIZE, &more, |_| Reach::direct(&servers, None)).await;
        let http = rolltap_testing::client_builder().timeout(limit(60)).build().unwrap();
        Self { nodes, http, turn: 0, _servers: servers, _upstream: upstream }
    }

    /// Returns the next node.
    fn place(&mut self) -> Place {
        self.turn += 1;
        self.nodes.place(self.turn % SIZE.nodes)
    }

    /// Sends a request to the next node.
    async fn send(&mut self, method: Method, path: &str, body: &Value) -> (StatusCode, String) {
        let url = format!("{}{path}", self.place().admin);
        let request = self.http.request(method, url);
        let request = if body.is_null() { request } else { request.json(body) };
        let answer = request.send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    }

    /// Sends a request that must succeed, and returns its JSON.
    async fn ask(&mut self, method: Method, path: &str, body: Value) -> Value {
        let (status, text) = self.send(method, path, &body).await;
        assert!(status.is_success(), "{path}: {status}: {text}");
        serde_json::from_str(&text).unwrap()
    }

    async fn get(&mut self, path: &str) -> Value {
        self.ask(Method::GET, path, Value::Null).await
    }

    /// Makes a call with the key of a trial.
    async fn call(&mut self, key: &str) -> Value {
        let url = format!("{}/t/{key}/v1/chat/completions", self.place().agents);
        let body =
            json!({"model": "sim", "max_tokens": 4, "messages": [{"role": "user", "content": "hello"}]});
        let answer = self.http.post(url).json(&body).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        answer.json().await.unwrap()
    }

    /// Opens the trial `GROUP-SAMPLE`, makes a call, and ends it with a reward.
    async fn run_trial(&mut self, group: &str, sample: u64) {
        let id = format!("{group}-{sample}");
        let opened = self.open(&id, group, sample).await;
        self.call(opened["key"].as_str().unwrap()).await;
        self.ask(Method::POST, &format!("/v1/trials/{id}/seal"), Value::Null).await;
        self.ask(Method::PUT, &format!("/v1/trials/{id}/reward"), json!({"reward": 1.0})).await;
    }

    async fn open(&mut self, id: &str, group: &str, sample: u64) -> Value {
        let asked = json!({
            "task_id": "t", "trial_id": id, "group_id": group, "group_size": 2, "sample_index": sample,
        });
        self.ask(Method::POST, "/v1/trials", asked).await
    }

    /// Reads the feed at the next node.
    async fn feed(&mut self, query: &str) -> Vec<Value> {
        let place = self.place();
        feed::lines(&self.http, &place, query).await
    }

    /// The number of trials that each shard has, as its holder counts them.
    async fn trials_by_shard(&mut self) -> Vec<usize> {
        let mut counts = Vec::new();
        for shard in 0..SIZE.shards {
            let url = format!("{}/v1/trials", self.place().admin);
            // A request that a node forwards goes to this shard alone.
            let request = self.http.get(url).header("x-rolltap-forwarded", shard);
            let answer = request.send().await.unwrap();
            if answer.status().is_success() {
                counts.push(answer.json::<Vec<Value>>().await.unwrap().len());
            }
        }
        counts
    }
}

fn ids(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|item| item["trial_id"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs NATS: run ./scripts/test"]
async fn each_node_answers_for_all_shards() {
    let dir = tempfile::tempdir().unwrap();
    let mut bench = Bench::start(dir.path()).await;
    let groups: Vec<String> = (0..8).map(|number| format!("group {number}")).collect();
    let named = |group: &str| group.replace(' ', "-");
    for sample in 0..2 {
        for group in &groups {
            bench.run_trial(&named(group), sample).await;
        }
    }

    // Trials: one list over the pages, and each trial at each node.
    let mut listed: Vec<String> = Vec::new();
    let mut path = "/v1/trials?limit=5".to_owned();
    loop {
        let url = format!("{}{path}", bench.place().admin);
        let answer = bench.http.get(url).send().await.unwrap();
        let next = answer.headers().get("link").map(|link| link.to_str().unwrap().to_owned());
        let page: Value = answer.json().await.unwrap();
        listed.extend(ids(&page).iter().map(|id| (*id).to_owned()));
        let Some(next) = next else { break };
        path = next.split(['<', '>']).nth(1).unwrap().to_owned();
    }
    let mut expected: Vec<String> = groups
        .iter()
        .flat_map(|group| (0..2).map(move |sample| format!("{}-{sample}", named(group))))
        .collect();
    expected.sort();
    assert_eq!(listed, expected);
    for id in &expected {
        assert_eq!(bench.get(&format!("/v1/trials/{id}")).await["reward"], 1.0);
    }
    assert_eq!(bench.send(Method::GET, "/v1/trials/none", &Value::Null).await.0, StatusCode::NOT_FOUND);
    assert_eq!(bench.send(Method::HEAD, "/v1/trials/none", &Value::Null).await.0, StatusCode::NOT_FOUND);
    assert_eq!(bench.send(Method::HEAD, "/v1/trials/group-0-0", &Value::Null).await.0, StatusCode::OK);
    // A name is taken for all groups, whatever their shards.
    for number in 0..8 {
        let asked = json!({"task_id": "t", "trial_id": "group-0-0", "group_id": format!("other {number}")});
        let (status, text) = bench.send(Method::POST, "/v1/trials", &asked).await;
        assert_eq!(status, StatusCode::CONFLICT, "{text}");
    }

    // A repeated opening gets the same key at each node.
    let secret = "0123456789abcdef".repeat(4);
    let again = json!({"task_id": "t", "trial_id": "again", "group_id": "again", "idempotency_key": secret});
    let first = bench.ask(Method::POST, "/v1/trials", again.clone()).await;
    for _ in 0..SIZE.nodes {
        assert_eq!(bench.ask(Method::POST, "/v1/trials", again.clone()).await, first);
    }
    bench.call(first["key"].as_str().unwrap()).await;

    // Groups are closed, and lie on both shards.
    let all = bench.get("/v1/groups").await;
    assert_eq!(all.as_array().unwrap().len(), 9);
    for group in &groups {
        let status = bench.get(&format!("/v1/groups/{}", named(group))).await;
        assert_eq!((&status["trials"], &status["closed"]["cause"]), (&json!(2), &json!("size")));
    }
    let causes = bench.get("/v1/causes").await;
    assert_eq!(causes[0]["branches"], 17, "{causes}");

    the_feed_is_one(&mut bench, &expected).await;
    weights_and_upstreams_are_those_of_all_shards(&mut bench).await;
    a_pause_survives_a_takeover(&mut bench).await;
    bench.nodes.stop_all().await;
}

/// Checks the feed, of which each trial is in one line.
async fn the_feed_is_one(bench: &mut Bench, expected: &[String]) {
    let all = bench.feed("").await;
    let named: BTreeSet<&str> = all.iter().map(|line| line["trial_id"].as_str().unwrap()).collect();
    assert_eq!((all.len(), named.len()), (16, 16));
    assert!(all.is_sorted_by_key(|line| line["completed_at"].as_str().unwrap().to_owned()));
    let places: Vec<Place> = (0..SIZE.nodes).map(|number| bench.nodes.place(number)).collect();
    assert_eq!(feed::trials(&bench.http, &places).await.len(), 16);

    // Any cursor continues with the lines after it, also within a group.
    let closed = bench.feed("closed_groups=true").await;
    assert_eq!(closed.len(), 16);
    for (number, line) in closed.iter().enumerate() {
        assert_eq!(line["group_remaining"], u64::from(number % 2 == 0), "a group comes in one piece");
        if number % 2 == 1 {
            assert_eq!(line["group_id"], closed[number - 1]["group_id"]);
        }
        let cursor = line["cursor"].as_str().unwrap();
        let rest = bench.feed(&format!("closed_groups=true&after={cursor}")).await;
        assert_eq!(rest, closed[number + 1..]);
    }

    let end = all.last().unwrap()["cursor"].as_str().unwrap().to_owned();
    assert!(bench.feed(&format!("after={end}&wait=0.1")).await.is_empty());
    for (wrong, status) in [
        ("after=17", StatusCode::BAD_REQUEST),
        ("after=1.2.3", StatusCode::BAD_REQUEST),
        ("after=99999.0", StatusCode::BAD_REQUEST),
        ("after=1-1.", StatusCode::BAD_REQUEST),
        ("limit=0", StatusCode::BAD_REQUEST),
        ("unknown=1", StatusCode::BAD_REQUEST),
        ("reward_version=none", StatusCode::NOT_FOUND),
    ] {
        let (answered, text) = bench.send(Method::GET, &format!("/v1/rollouts?{wrong}"), &Value::Null).await;
        assert_eq!(answered, status, "{wrong}: {text}");
    }

    // A reading that waits gets the next trial, whichever shard has it.
    let mut end = end;
    for group in ["later-0", "later-1", "later-2", "later-3"] {
        let place = bench.place();
        let (http, query) = (bench.http.clone(), format!("wait=60&after={end}"));
        let waiting = tokio::spawn(async move { feed::lines(&http, &place, &query).await });
        bench.run_trial(group, 0).await;
        let lines = waiting.await.unwrap();
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!(line["trial_id"], format!("{group}-0"));
        end = line["cursor"].as_str().unwrap().to_owned();
    }
    let counts = bench.trials_by_shard().await;
    assert!(counts.iter().all(|count| *count > 0 && *count < expected.len()), "{counts:?}");
}

/// Kills a holder while calls are held.
async fn a_pause_survives_a_takeover(bench: &mut Bench) {
    bench.ask(Method::POST, "/v1/policy/pause", json!({"wait": true})).await;
    let holder = bench.nodes.holders(None).await[0];
    bench.nodes.kill(holder).await;
    bench.nodes.holders(None).await;
    bench.nodes.restart_ended().await;
    assert_eq!(bench.get("/v1/policy").await["paused"], true);
    bench.ask(Method::POST, "/v1/policy/resume", Value::Null).await;
    assert_eq!(bench.get("/v1/policy").await["paused"], false);
    for group in 0..4 {
        bench.run_trial(&format!("resumed-{group}"), 0).await;
    }
}

/// Checks the requests that change all shards.
async fn weights_and_upstreams_are_those_of_all_shards(bench: &mut Bench) {
    for label in ["step-1", "step-2", "step-1"] {
        bench.ask(Method::POST, "/v1/policy", json!({"version": label})).await;
        let policy = bench.get("/v1/policy").await;
        assert_eq!(policy["label"], label);
    }
    let paused = bench.ask(Method::POST, "/v1/policy/pause", json!({"wait": true})).await;
    assert_eq!((&paused["paused"], &paused["in_flight"]), (&json!(true), &json!(0)));
    let mut held = Vec::new();
    for number in 0..6 {
        let id = format!("held-{number}");
        let key = bench.open(&id, &id, 0).await["key"].as_str().unwrap().to_owned();
        let (http, place) = (bench.http.clone(), bench.place());
        held.push(tokio::spawn(async move {
            let body =
                json!({"model": "sim", "max_tokens": 4, "messages": [{"role": "user", "content": "hello"}]});
            let url = format!("{}/t/{key}/v1/chat/completions", place.agents);
            http.post(url).json(&body).send().await.unwrap().status()
        }));
    }
    // Calls of both shards are held.
    let deadline = std::time::Instant::now() + limit(30);
    while bench.get("/v1/policy").await["held"] != 6 {
        assert!(std::time::Instant::now() < deadline, "{}", bench.get("/v1/policy").await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let resumed = bench.ask(Method::POST, "/v1/policy/resume", Value::Null).await;
    assert_eq!(resumed["paused"], false);
    for call in held {
        assert_eq!(call.await.unwrap(), StatusCode::OK);
    }

    let added = bench.ask(Method::POST, "/v1/upstreams", json!({"url": "http://127.0.0.1:1"})).await;
    let listed = bench.get("/v1/upstreams").await;
    let trials: BTreeMap<&str, u64> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|upstream| (upstream["url"].as_str().unwrap(), upstream["trials"].as_u64().unwrap()))
        .collect();
    assert_eq!(trials.len(), 2, "{listed}");
    let id = added["id"].as_u64().unwrap();
    assert!(listed.as_array().unwrap().iter().any(|upstream| upstream["id"] == id));
    bench.ask(Method::DELETE, &format!("/v1/upstreams/{id}"), Value::Null).await;
    let (status, text) = bench.send(Method::DELETE, "/v1/upstreams/1", &Value::Null).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{text}");
}
