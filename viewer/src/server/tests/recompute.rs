//! Tests of the differences of recomputed logprobs.

use super::*;

/// The trial `one` with this report beside it.
async fn with_report(report: &str) -> (String, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let (rows, file) = (dir.path().join("rows.jsonl"), dir.path().join("report.jsonl"));
    write_jsonl(&rows, &[rollout_row("one", "task", Some(1.0), 4)]);
    std::fs::write(&file, report).unwrap();
    let collection = Collection::open(&[rows]).unwrap().with_recompute(&file).unwrap();
    let server = Server::bind(collection, None, 0).await.unwrap();
    let url = server.url();
    tokio::spawn(server.serve(std::future::pending()));
    (url, dir)
}

async fn page(url: &str, path: &str) -> String {
    get(format!("{url}jobs/rows.jsonl/trials/one{path}")).await.unwrap().text().await.unwrap()
}

fn line(trial: &str) -> Value {
    json!({
        "schema_version": "recompute/1", "trial_id": trial, "branch_index": 0, "policy_versions": ["17"], "model": "m",
        "weights": "step-17", "token_bound": 1.0, "mean_bound": 0.1, "refused": null,
        "positions": [2, 3, 4, 5], "captured": [-0.5, -0.5, -0.5, -0.25], "recomputed": [-0.5, -0.75, null, 0.0],
    })
}

#[tokio::test]
async fn the_differences_of_a_branch_are_shown_per_token_and_in_sum() {
    let mut within = line("one");
    within["recomputed"] = json!([-0.5, -0.75, -0.5, 0.0]);
    let (url, _dir) = with_report(&format!("{}\n{within}\n", line("two"))).await;
    let branch = page(&url, "/branches/0").await;
    for expected in [
        "data-i=\"3\" data-l=\"-0.5\" data-d=\"3\" data-r=\"-0.75\">3 </i>",
        "<dt>Tokens compared</dt><dd>3</dd>",
        "2.50e-1 at <a href=\"/jobs/rows.jsonl/trials/one/branches/0?at=3#t3\">token 3</a>",
        "weights step-17",
        "value=\"difference\"",
        "1 tokens of the report have another logprob here",
        "held",
    ] {
        assert!(branch.contains(expected), "{expected}: {branch}");
    }
    assert!(!page(&url, "").await.contains("recomputed logprobs differ"));
}

#[tokio::test]
async fn a_branch_beyond_the_bounds_is_marked_on_the_page_of_its_trial() {
    let (url, _dir) = with_report(&line("one").to_string()).await;
    assert!(page(&url, "").await.contains("recomputed logprobs differ"));
    let branch = page(&url, "/branches/0").await;
    assert!(branch.contains("exceeded") && branch.contains("data-r=\"no number\""), "{branch}");
}

#[tokio::test]
async fn damaged_lines_are_named_and_the_rest_is_shown() {
    let mut other = line("one");
    other["schema_version"] = HOSTILE.into();
    let mut refused = line("one");
    refused["refused"] = HOSTILE.into();
    for list in ["positions", "captured", "recomputed"] {
        refused[list] = json!([]);
    }
    let (url, _dir) = with_report(&format!("{{\"half\n{other}\n{refused}\n")).await;
    let branch = page(&url, "/branches/0").await;
    assert!(branch.contains("line 1: no line of a recomputation"), "{branch}");
    assert!(branch.contains("line 2: expected a line of schema"), "{branch}");
    assert!(branch.contains("The server refused this branch: &lt;script&gt;"), "{branch}");
    assert!(!branch.contains("<script>alert") && !branch.contains("<img"), "{branch}");
}

#[test]
fn a_report_that_does_not_exist_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let rows = dir.path().join("rows.jsonl");
    write_jsonl(&rows, &[rollout_row("one", "task", Some(1.0), 4)]);
    let error = Collection::open(&[rows]).unwrap().with_recompute(&dir.path().join("none")).unwrap_err();
    assert!(error.to_string().ends_with("none does not exist"), "{error}");
}
