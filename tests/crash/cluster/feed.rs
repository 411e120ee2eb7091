//! Reads the feed of a cluster.

use serde_json::Value;

use super::super::proxy::Place;

/// The lines of one answer. It is small, so that a reading continues at other nodes and between shards.
const LIMIT: usize = 50;

/// Returns the lines of one answer, which must succeed. `query` has no `?`.
pub(super) async fn lines(http: &reqwest::Client, place: &Place, query: &str) -> Vec<Value> {
    let answer = http.get(format!("{}/v1/rollouts?{query}", place.admin)).send().await.unwrap();
    let (status, text) = (answer.status(), answer.text().await.unwrap());
    assert!(status.is_success(), "{status}: {text}");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Reads the feed to its end, each answer from another one of these nodes. Returns the names of the trials.
pub(super) async fn trials(http: &reqwest::Client, places: &[Place]) -> Vec<String> {
    let mut trials = Vec::new();
    let mut after = String::new();
    for place in places.iter().cycle() {
        let from = if after.is_empty() { String::new() } else { format!("&after={after}") };
        let page = lines(http, place, &format!("limit={LIMIT}{from}")).await;
        let Some(last) = page.last() else { break };
        after = last["cursor"].as_str().unwrap().to_owned();
        trials.extend(page.iter().map(|line| line["trial_id"].as_str().unwrap().to_owned()));
    }
    trials
}
