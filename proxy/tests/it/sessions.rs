//! The session ids of upstream requests, and the announced end of sessions.

use rolltap_proxy::api::TrialOpened;
use rolltap_proxy::{SessionHeaders, Settings};
use rolltap_testing::eventually;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::conversation::{assistant, user};
use crate::harness::{Stage, request, settings, simulator};
use crate::raw_upstream::RawUpstream;

/// The answer of [`RawUpstream`], as an agent sends it back.
const ANSWER: &str = "x.";

/// Starts a proxy in front of an upstream. `change` edits the settings.
async fn stage(change: impl Fn(&mut Settings)) -> (Stage, RawUpstream) {
    let (upstream, data) = (RawUpstream::start(Vec::new()).await, TempDir::new().unwrap());
    let stage = start(&upstream, data, &change).await;
    (stage, upstream)
}

async fn start(upstream: &RawUpstream, data: TempDir, change: &impl Fn(&mut Settings)) -> Stage {
    let mut settings = settings(&upstream.url, &data);
    change(&mut settings);
    let proxy = rolltap_proxy::start(settings).await.unwrap();
    Stage { upstream: simulator(None).await, proxy, data, http: rolltap_testing::http_client() }
}

async fn say(stage: &Stage, trial: &TrialOpened, messages: &[Value]) {
    let body = request(json!({"messages": messages, "stream": true}));
    let answer = stage.chat(trial, &body).await;
    assert_eq!(answer.status(), 200);
    answer.text().await.unwrap();
}

/// Returns the values of a header in the calls so far, without the trial's name.
fn sessions(upstream: &RawUpstream, header: &str, trial: &TrialOpened) -> Vec<Option<String>> {
    let prefix = format!("{header}: {}", trial.trial_id);
    let of_head = |head: &String| head.lines().find_map(|line| line.strip_prefix(&prefix).map(str::to_owned));
    upstream.heads().iter().filter(|head| head.contains("/v1/")).map(of_head).collect()
}

/// Returns the number of the first call with the same session, for each call.
fn firsts(sessions: &[Option<String>]) -> Vec<usize> {
    let first = |session| sessions.iter().position(|other| other == session).unwrap();
    sessions.iter().map(first).collect()
}

#[tokio::test]
async fn each_conversation_of_a_trial_has_one_session() {
    let (stage, upstream) = stage(|_| {}).await;
    let trial = stage.open(json!({})).await;
    let first = [user("task"), assistant(ANSWER), user("next")];
    say(&stage, &trial, &first[..1]).await;
    say(&stage, &trial, &first).await;
    // Another task is that of a sub-agent.
    say(&stage, &trial, &[json!({"role": "system", "content": "s"}), user("other task")]).await;
    // An edited answer and a changed system message belong to the conversation all the same.
    let edited = [json!({"role": "system", "content": "s"}), user("task"), assistant("edited"), user("next")];
    say(&stage, &trial, &edited).await;
    let completion = json!({"model": "sim", "prompt": "p", "max_tokens": 2}).to_string();
    stage.post(&trial, "/v1/completions", completion).await;
    let found = sessions(&upstream, "x-session-id", &trial);
    assert_eq!(firsts(&found), [0, 0, 2, 0, 4], "{found:?}");
    assert!(found[0].as_ref().unwrap().starts_with('~'), "{found:?}");
    assert_eq!(found[4].as_deref(), Some(""), "a completion has the session of its trial");

    let other = stage.open(json!({})).await;
    say(&stage, &other, &first[..1]).await;
    assert_eq!(sessions(&upstream, "x-session-id", &other).last().unwrap(), &found[0]);
}

#[tokio::test]
async fn a_restarted_proxy_continues_the_sessions_of_a_trial() {
    let (stage, upstream) = stage(|_| {}).await;
    let trial = stage.open(json!({})).await;
    say(&stage, &trial, &[user("task")]).await;
    say(&stage, &trial, &[user("other")]).await;
    let Stage { proxy, data, .. } = stage;
    proxy.shutdown(rolltap_testing::limit(5)).await.unwrap();
    let stage = start(&upstream, data, &|_| {}).await;
    say(&stage, &stage.here(&trial), &[user("other"), assistant(ANSWER), user("next")]).await;
    let found = sessions(&upstream, "x-session-id", &trial);
    assert_eq!(firsts(&found), [0, 1, 1], "{found:?}");
}

#[tokio::test]
async fn the_headers_are_those_that_are_named_or_none() {
    let named = |names: &[&str]| {
        SessionHeaders::named(&names.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap()
    };
    for (headers, is_sent) in [(named(&["X-Routing-Key"]), true), (named(&["none"]), false)] {
        let (stage, upstream) = stage(|settings| settings.pool.session_headers = headers.clone()).await;
        let trial = stage.open(json!({})).await;
        say(&stage, &trial, &[user("task")]).await;
        assert_eq!(sessions(&upstream, "x-routing-key", &trial)[0].is_some(), is_sent);
        assert!(!upstream.heads()[0].contains("x-session-id"), "{:?}", upstream.heads());
        stage.seal(&trial).await;
    }
}

#[tokio::test]
async fn the_end_of_each_session_is_announced_after_the_seal() {
    let (stage, upstream) = stage(|_| {}).await;
    let trial = stage.open(json!({})).await;
    for task in ["task", "other"] {
        say(&stage, &trial, &[user(task)]).await;
    }
    assert_eq!(upstream.heads().len(), 2, "no session ends before the trial");
    stage.seal(&trial).await;
    let ends = || -> Vec<String> {
        upstream.heads().iter().skip(2).filter_map(|head| head.lines().next().map(str::to_owned)).collect()
    };
    eventually("both sessions are ended", async || ends().len() == 2).await;
    let used = sessions(&upstream, "x-session-id", &trial);
    let path = |session| format!("POST /finish_session?session_id={}{session} http/1.1", trial.trial_id);
    let (mut ended, mut expected) = (ends(), used.into_iter().flatten().map(path).collect::<Vec<_>>());
    ended.sort();
    expected.sort();
    assert_eq!(ended, expected);
}
