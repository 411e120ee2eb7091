mod recompute;
mod records;

mod screens;
mod trial;

use std::path::PathBuf;

use rolltap_testing::{get, http_client, rollout_row, write_jsonl};
use serde_json::{Value, json};

use super::*;

/// Text of an agent that would run or change the page if it were markup.
const HOSTILE: &str = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&lt;\u{1b}[2J";

/// A running server over a file of rows.
struct Pages {
    url: String,
    _dir: tempfile::TempDir,
}

impl Pages {
    async fn of(rows: &[Value]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("rows.jsonl");
        write_jsonl(&file, rows);
        Self { url: serve(&[file]).await, _dir: dir }
    }

    async fn page(&self, path: &str) -> (u16, String) {
        let answer = get(format!("{}{path}", self.url.trim_end_matches('/'))).await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }
}

async fn serve(paths: &[PathBuf]) -> String {
    let server = Server::bind(Collection::open(paths).unwrap(), None, 0).await.unwrap();
    let url = server.url();
    tokio::spawn(server.serve(std::future::pending()));
    url
}

#[tokio::test]
async fn every_page_from_the_jobs_to_a_token() {
    let pages = Pages::of(&[
        rollout_row("one", "org/task", Some(1.0), 3),
        rollout_row("two", "org/task", Some(0.0), 4),
    ])
    .await;
    let (status, jobs) = pages.page("/").await;
    assert_eq!(status, 200);
    assert!(jobs.contains("href=\"/jobs/rows.jsonl\""), "{jobs}");
    let (_, job) = pages.page("/jobs/rows.jsonl").await;
    assert!(job.contains("Mean reward</dt><dd>0.5</dd>"), "{job}");
    let (_, group) = pages.page("/jobs/rows.jsonl/groups/org%2Ftask").await;
    assert!(group.contains("token 5") && group.contains("Advantage (rloo)"), "{group}");
    let (_, trial) = pages.page("/jobs/rows.jsonl/trials/one").await;
    assert!(trial.contains("first_call"), "{trial}");
    let (_, branch) = pages.page("/jobs/rows.jsonl/trials/one/branches/0").await;
    assert!(branch.contains("<i id=\"t2\" class=\"l2\" data-i=\"2\" data-l=\"-0.5\">2 </i>"), "{branch}");
}

#[tokio::test]
async fn hostile_text_is_text() {
    let mut hostile = rollout_row("one", HOSTILE, Some(1.0), 3);
    for field in ["branch_cause", "status", "stop_reason", "model", "failure_cause"] {
        hostile[field] = HOSTILE.into();
    }
    hostile["suspicious"] = json!([HOSTILE]);
    for field in ["call_id", "role", "finish_reason"] {
        hostile["calls"][0][field] = HOSTILE.into();
    }
    let pages = Pages::of(&[hostile.clone(), rollout_row("two", HOSTILE, Some(0.0), 4)]).await;
    let group: String = HOSTILE.bytes().map(|byte| format!("%{byte:02X}")).collect();
    for path in [
        "/".to_owned(),
        "/jobs/rows.jsonl".to_owned(),
        format!("/jobs/rows.jsonl?q={group}"),
        format!("/jobs/rows.jsonl?words={group}&role={group}"),
        format!("/jobs/rows.jsonl/groups/{group}"),
        "/jobs/rows.jsonl/trials/one".to_owned(),
        "/jobs/rows.jsonl/trials/one/branches/0".to_owned(),
        "/jobs/rows.jsonl/trials/one/branches/0/tokens".to_owned(),
        format!("/jobs/{group}"),
        format!("/jobs/rows.jsonl/trials/{group}"),
    ] {
        let (_, page) = pages.page(&path).await;
        assert!(!page.contains("<script>alert") && !page.contains("<img"), "{path}: {page}");
        assert!(!page.contains("\"'>"), "{path} leaves an attribute: {page}");
    }
}

#[tokio::test]
async fn pages_of_other_hosts_cannot_call_and_pages_load_nothing_from_others() {
    let pages = Pages::of(&[rollout_row("one", "task", Some(1.0), 3)]).await;
    let rebound = http_client().get(&pages.url).header("host", "evil.example").send().await.unwrap();
    assert_eq!(rebound.status(), 403);
    let page = http_client().get(&pages.url).header("origin", "http://evil.example").send().await.unwrap();
    assert_eq!(page.status(), 403);
    let answer = get(pages.url.clone()).await.unwrap();
    let policy = answer.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(answer.headers()["x-content-type-options"], "nosniff");
}

#[tokio::test]
async fn a_long_branch_comes_in_windows() {
    let pages = Pages::of(&[rollout_row("one", "task", Some(1.0), 200_000)]).await;
    let branch = "/jobs/rows.jsonl/trials/one/branches/0";
    let (_, page) = pages.page(branch).await;
    assert!(page.len() < 300_000, "a page has {} bytes", page.len());
    assert!(page.contains("data-next=\"/jobs/rows.jsonl/trials/one/branches/0/tokens?from=2000\""));
    let (_, last) = pages.page(&format!("{branch}/tokens?from=200000")).await;
    assert!(last.contains("id=\"t200001\"") && !last.contains("data-next"), "{last}");
    let (_, beyond) = pages.page(&format!("{branch}/tokens?from=18446744073709551615")).await;
    assert_eq!(beyond, "");
}

#[tokio::test]
async fn a_link_with_a_filter_shows_the_same_trials() {
    let rows: Vec<_> = (0..3)
        .map(|at| rollout_row(&format!("trial-{at}"), &format!("task-{at}"), Some(f64::from(at)), 2))
        .collect();
    let pages = Pages::of(&rows).await;
    let (_, page) = pages.page("/jobs/rows.jsonl?min=1&q=TRIAL-2").await;
    assert!(page.contains("/trials/trial-2") && !page.contains("/trials/trial-1"), "{page}");
    let (_, page) = pages.page("/jobs/rows.jsonl?min=one").await;
    assert!(page.contains("is no number") && page.contains("/trials/trial-0"), "{page}");
    let (status, page) = pages.page("/jobs/rows.jsonl?colour=red").await;
    assert_eq!(status, 400, "{page}");
}

#[tokio::test]
async fn damaged_rows_are_named_and_the_rest_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rows.jsonl");
    std::fs::write(&file, format!("{}\n{{\"half\": ", rollout_row("one", "task", Some(1.0), 3))).unwrap();
    let url = serve(&[file]).await;
    let page = get(format!("{url}jobs/rows.jsonl")).await.unwrap().text().await.unwrap();
    assert!(page.contains("line 2") && page.contains("/trials/one"), "{page}");
}

#[tokio::test]
async fn what_does_not_exist_is_named() {
    let pages = Pages::of(&[rollout_row("one", "task", Some(1.0), 3)]).await;
    for path in [
        "/x",
        "/jobs/other",
        "/jobs/rows.jsonl/trials/two",
        "/jobs/rows.jsonl/groups/none",
        "/jobs/rows.jsonl/trials/one/branches/7",
        "/jobs/rows.jsonl/trials/one/files/..%2F..%2Fetc%2Fpasswd",
        "/assets/0/style.css",
    ] {
        let (status, page) = pages.page(path).await;
        assert_eq!(status, 404, "{path}: {page}");
    }
}
