//! The feed as a trainer reads it: in order, from the reader's cursor, across restarts of either side.

use std::time::{Duration, Instant};

use rolltap_proxy::api::{RolloutLine, TrialOpened};
use rolltap_testing::limit;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{Stage, answer, request};

/// Makes a trial of one call, seals it and rewards it. Returns its id.
async fn ended(stage: &Stage, extra: Value) -> String {
    let trial = stage.open(extra).await;
    stage.chat(&trial, &request(json!({}))).await;
    end(stage, &trial).await;
    trial.trial_id.to_string()
}

async fn end(stage: &Stage, trial: &TrialOpened) {
    stage.seal(trial).await;
    assert_eq!(stage.reward(trial, json!({"reward": 1.0})).await.0, 200);
}

fn names(lines: &[RolloutLine]) -> Vec<String> {
    lines.iter().map(|line| line.trial_id.to_string()).collect()
}

#[tokio::test]
async fn trials_come_whole_in_order_of_completion_from_where_the_reader_stands() {
    let stage = Stage::random().await;
    let open: Vec<_> =
        [stage.open(json!({})).await, stage.open(json!({})).await, stage.open(json!({})).await].into();
    for trial in &open {
        stage.chat(trial, &request(json!({"n": 2}))).await;
    }
    let mut expected = Vec::new();
    for trial in open.iter().rev() {
        end(&stage, trial).await;
        expected.push(trial.trial_id.to_string());
    }
    let without_calls = stage.open(json!({})).await;
    end(&stage, &without_calls).await;
    expected.push(without_calls.trial_id.to_string());

    let all = stage.feed("").await;
    assert_eq!(names(&all), expected);
    for (line, trial) in all.iter().zip(open.iter().rev()) {
        assert_eq!(
            (line.rows(), line.rows().len()),
            (&*stage.rollout(trial).await, 2),
            "as the trial's own rollout"
        );
    }
    assert_eq!(
        (all[3].rows().len(), all[3].reward),
        (0, Some(1.0)),
        "a trial without samples is in the feed"
    );
    let mut read = Vec::new();
    let mut after = String::new();
    loop {
        let lines = stage.feed(&format!("?limit=2{after}")).await;
        let Some(last) = lines.last() else { break };
        after = format!("&after={}", last.cursor);
        read.extend(lines);
    }
    assert_eq!(read, all, "piece by piece");
}

#[tokio::test]
async fn a_reader_waits_for_new_lines_and_no_longer_than_requested() {
    let stage = Stage::random().await;
    let begun = Instant::now();
    assert!(stage.feed("?wait=0.2").await.is_empty());
    assert!(begun.elapsed() >= Duration::from_millis(200));
    let http = stage.http.clone();
    let url = stage.admin("/v1/rollouts?wait=600");
    let waiting = tokio::spawn(async move { http.get(url).send().await.unwrap().text().await.unwrap() });
    let superseded = stage.open(json!({"attempt": 0})).await;
    stage.open(json!({"attempt": 1})).await;
    end(&stage, &superseded).await;
    let trial = ended(&stage, json!({"task_id": "another"})).await;
    let lines = waiting.await.unwrap();
    let line: RolloutLine = serde_json::from_str(lines.trim_end()).unwrap();
    assert_eq!(line.trial_id.as_str(), trial, "an attempt that does not count is not waited for");
}

#[tokio::test]
async fn a_proxy_that_goes_down_answers_readers_that_wait() {
    let stage = Stage::random().await;
    let mut reader = TcpStream::connect(stage.proxy.admin_addr()).await.unwrap();
    // Both requests are sent at once: when the first is answered, the proxy has read the second.
    let requests = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\nGET /v1/rollouts?wait=600 HTTP/1.1\r\nhost: localhost\r\n\r\n";
    reader.write_all(requests.as_bytes()).await.unwrap();
    let mut first = vec![0; 3];
    while !first.ends_with(b"ok\n") {
        first.push(reader.read_u8().await.unwrap());
    }
    stage.proxy.shutdown(limit(5)).await.unwrap();
    let mut second = String::new();
    reader.read_to_string(&mut second).await.unwrap();
    assert!(
        second.starts_with("HTTP/1.1 200") && second.ends_with("\r\n\r\n0\r\n\r\n"),
        "whole and empty: {second}"
    );
}

#[tokio::test]
async fn the_reader_goes_on_in_the_next_process() {
    let stage = Stage::random().await;
    let mut expected = vec![ended(&stage, json!({})).await, ended(&stage, json!({})).await];
    let first = stage.feed("?limit=1").await.remove(0);
    let early = stage.open(json!({})).await;
    stage.reward(&early, json!({"reward": 0.25})).await;

    let stage = stage.restarted().await;
    assert_eq!(names(&stage.feed("").await), expected, "the order is what it was");
    expected.push(ended(&stage, json!({})).await);
    stage.seal(&early).await;
    expected.push(early.trial_id.to_string());
    let stage = stage.restarted().await;
    let rest = stage.feed(&format!("?after={}", first.cursor)).await;
    assert_eq!(names(&rest), expected[1..]);
    assert_eq!(rest[0].cursor, stage.feed("?limit=2").await[1].cursor);
}

#[tokio::test]
async fn groups_come_whole_in_the_order_in_which_they_closed() {
    let stage = Stage::random().await;
    let of = |group: &str, sample: u32| json!({"group_id": group, "group_size": 2, "sample_index": sample});
    let slow = ended(&stage, of("slow", 0)).await;
    let quick = [ended(&stage, of("quick", 0)).await, ended(&stage, of("quick", 1)).await];
    let alone = ended(&stage, json!({})).await;
    let lines = stage.feed("?closed_groups=true").await;
    assert_eq!(names(&lines), [quick[0].clone(), quick[1].clone(), alone.clone()]);
    let left: Vec<_> = lines.iter().map(|line| line.group_remaining).collect();
    assert_eq!(left, [Some(1), Some(0), None]);

    // The reader resumes in the middle of a group, across a restart.
    let stage = stage.restarted().await;
    let slow_too = ended(&stage, of("slow", 1)).await;
    let rest = stage.feed(&format!("?closed_groups=true&after={}", lines[0].cursor)).await;
    assert_eq!(names(&rest), [quick[1].clone(), alone, slow, slow_too]);
    assert!(rest.iter().all(|line| line.late != Some(true)));
}

#[tokio::test]
async fn superseded_attempts_come_only_where_they_are_asked_for() {
    let stage = Stage::random().await;
    let attempt = |attempt: u32| json!({"group_id": "g", "group_size": 1, "attempt": attempt});
    let failed = stage.open(attempt(0)).await;
    stage.chat(&failed, &request(json!({}))).await;
    let good = stage.open(attempt(1)).await;
    end(&stage, &failed).await;
    end(&stage, &good).await;
    let (failed, good) = (failed.trial_id.to_string(), good.trial_id.to_string());
    let stage = stage.restarted().await;
    for mode in ["?", "?closed_groups=true&"] {
        assert_eq!(names(&stage.feed(mode).await), std::slice::from_ref(&good));
        let all = stage.feed(&format!("{mode}superseded=true")).await;
        assert_eq!(names(&all), [failed.clone(), good.clone()]);
        assert!(all[0].superseded && all[0].rows().iter().all(|row| row.superseded) && !all[1].superseded);
    }
}

#[tokio::test]
async fn an_invalid_cursor_is_a_400_with_a_remedy() {
    let stage = Stage::random().await;
    ended(&stage, json!({})).await;
    let cursor = stage.feed("").await.remove(0).cursor;
    for (query, said) in [
        ("after=x", "leave it out to begin"),
        ("after=", "leave it out to begin"),
        ("after=99", "another data directory"),
        ("after=1-1", "closed_groups=true"),
        (&*format!("after={cursor}&closed_groups=true"), "without closed_groups"),
        ("limit=0", "limit"),
        ("wait=-1", "no number of seconds"),
        ("since=1", "since"),
    ] {
        let (status, body) = answer(stage.http.get(stage.admin(&format!("/v1/rollouts?{query}")))).await;
        let message = body["error"]["message"].as_str().unwrap();
        assert!(status == 400 && message.contains(said), "{query}: {status} {message}");
    }
}
