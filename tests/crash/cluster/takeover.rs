//! Another node takes over a conversation, and continues it token for token.

use std::time::{Duration, Instant};

use rolltap_rollout::call::Call;
use rolltap_rollout::continuation::Continuation;
use rolltap_testing::{NatsServers, limit, sample};
use serde_json::{Value, json};

use super::network::Reach;
use super::nodes::{Nodes, Size};

/// The goal for the time from the kill to the answer of the next call.
const GOAL_SECONDS: u64 = 10;

async fn say(http: &reqwest::Client, url: &str, key: &str, messages: &mut Vec<Value>, text: &str) {
    messages.push(json!({"role": "user", "content": text}));
    let body = json!({"model": "tiny", "messages": messages, "max_tokens": 12, "temperature": 0});
    let deadline = Instant::now() + limit(60);
    loop {
        let sent = http.post(format!("{url}/t/{key}/v1/chat/completions")).json(&body).send().await;
        if let Ok(answer) = sent
            && answer.status().is_success()
            && let Ok(answer) = answer.json::<Value>().await
        {
            messages.push(answer["choices"][0]["message"].clone());
            return;
        }
        assert!(Instant::now() < deadline, "no answer after a takeover");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs vLLM and NATS: run ./scripts/test"]
async fn the_next_turn_after_a_takeover_is_spliced_and_comes_in_time() {
    let set =
        |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run ./scripts/test"));
    let (vllm, model) = (set("ROLLTAP_TEST_VLLM"), set("ROLLTAP_TESTBED_MODEL"));
    let dir = tempfile::tempdir().unwrap();
    let servers = NatsServers::start(3);
    let size = Size { nodes: 2, shards: 1 };
    let reach = |_| Reach::direct(&servers, None);
    let mut nodes = Nodes::start(dir.path(), &vllm, size, &["--tokenizer", &model], reach).await;
    let http = rolltap_testing::client_builder().build().unwrap();
    let trial = http
        .post(format!("{}/v1/trials", nodes.place(1).admin))
        .json(&json!({"task_id": "takeover", "history": "sampled"}));
    let trial: Value = trial.send().await.unwrap().json().await.unwrap();
    let (id, key) = (trial["trial_id"].as_str().unwrap(), trial["key"].as_str().unwrap());
    let mut messages = Vec::new();
    say(&http, &nodes.place(0).agents, key, &mut messages, "Turn 0.").await;
    let kills = std::env::var("CRASH_ROUNDS").map_or(sample(2, 50), |text| text.parse().unwrap());
    let mut times: Vec<Duration> = Vec::new();
    for turn in 1..=kills {
        let holder = nodes.holders(None).await[0];
        let other = nodes.place(1 - holder);
        let began = Instant::now();
        nodes.kill(holder).await;
        say(&http, &other.agents, key, &mut messages, &format!("Turn {turn}.")).await;
        times.push(began.elapsed());
        nodes.restart_ended().await;
    }
    println!("from the kill to the answer: {times:?}");
    let url = format!("{}/v1/trials/{id}/calls", nodes.place(0).admin);
    let calls = http.get(url).send().await.unwrap().text().await.unwrap();
    let calls: Vec<Call> = calls.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let is_spliced = |call: &Call| matches!(call.continuation, Some(Continuation::Spliced { .. }));
    assert_eq!(
        calls.iter().filter(|call| is_spliced(call)).count() as u64,
        kills,
        "{:?}\n{}",
        calls.iter().map(|call| &call.continuation).collect::<Vec<_>>(),
        nodes.logs()
    );
    let slowest = times.iter().max().unwrap();
    assert!(*slowest < limit(GOAL_SECONDS), "{times:?}");
    nodes.stop_all().await;
}
