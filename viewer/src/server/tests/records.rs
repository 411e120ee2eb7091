//! Tests of the pages of a trial as a trainer sees it.

use rolltap_rollout::export::choices::Named;
use rolltap_rollout::export::format::Format;

use super::*;

/// A group of two samples. The first has two branches, of which the second repeats the answer of the first.
fn group() -> Vec<Value> {
    let mut first = rollout_row("one", "task", Some(1.0), 4);
    first["num_branches"] = 2.into();
    first["is_last_branch"] = false.into();
    let mut fork = rollout_row("one", "task", Some(1.0), 6);
    fork["branch_index"] = 1.into();
    fork["num_branches"] = 2.into();
    fork["branch_cause"] = "continued_again".into();
    fork["loss_mask"] = json!([0, 0, 0, 0, 0, 0, 1, 1]);
    fork["calls"][0]["end"] = 6.into();
    let mut second_call = fork["calls"][0].clone();
    second_call["call_id"] = "second".into();
    second_call["parent_call_id"] = "call-of-one".into();
    for (name, value) in [("prompt_len", 6), ("start", 6), ("end", 8)] {
        second_call[name] = value.into();
    }
    fork["calls"].as_array_mut().unwrap().push(second_call);
    let mut other = rollout_row("two", "task", Some(0.0), 3);
    other["sample_index"] = 1.into();
    vec![first, fork, other]
}

fn address(format: Format) -> String {
    format!("/jobs/rows.jsonl/trials/one/records/{}", format.name())
}

#[tokio::test]
async fn every_format_has_a_page_with_its_record_or_the_reason() {
    let pages = Pages::of(&group()).await;
    let (_, trial) = pages.page("/jobs/rows.jsonl/trials/one").await;
    for format in Format::ALL {
        assert!(trial.contains(&format!("href=\"{}\"", address(*format))), "{trial}");
        let (status, page) = pages.page(&address(*format)).await;
        assert_eq!(status, 200, "{page}");
        assert!(
            page.contains("<h2>Record</h2>") || page.contains("No record: "),
            "{}: {page}",
            format.name()
        );
    }
    let (status, _) = pages.page("/jobs/rows.jsonl/trials/one/records/csv").await;
    assert_eq!(status, 404);
}

#[tokio::test]
async fn masked_tokens_are_struck_through_with_the_reason() {
    let pages = Pages::of(&group()).await;
    let (_, page) = pages.page(&address(Format::Jsonl)).await;
    assert!(page.contains("[prompt] </small><s class=\"run prompt\""), "{page}");
    let trained = "<span class=\"run trained\" data-kind=\"trained\" data-call=\"1\"><i id=\"t2\"";
    assert!(page.contains(trained), "{page}");
    assert!(page.contains("&quot;trial_id&quot;: &quot;one&quot;"), "{page}");
    let (_, fork) = pages.page(&format!("{}?branch=1", address(Format::Jsonl))).await;
    assert!(fork.contains("[trained on branch 0] </small><s class=\"run masked\""), "{fork}");
    // This format takes the branch with the most trainable tokens.
    let (_, page) = pages.page(&address(Format::Openrlhf)).await;
    assert!(page.contains("[branch left out (--on-fork longest)]"), "{page}");
}

#[tokio::test]
async fn the_record_is_that_of_the_export() {
    let pages = Pages::of(&group()).await;
    let (_, page) = pages.page(&address(Format::Harbor)).await;
    assert!(page.contains("&quot;mask_ids&quot;: [0, 0, 1, 1, 1, 1, 1, 1]"), "{page}");
    let (_, page) = pages.page(&address(Format::Atropos)).await;
    assert!(page.contains("made of all trials of the group"), "{page}");
    let (_, page) = pages.page(&address(Format::PrimeRl)).await;
    assert!(page.contains("This format is binary"), "{page}");
}

#[tokio::test]
async fn a_trial_that_an_export_leaves_out_has_the_reason() {
    let mut rows = group();
    for row in &mut rows {
        row["group_size"] = 4.into();
    }
    let pages = Pages::of(&rows).await;
    let (_, page) = pages.page(&address(Format::Jsonl)).await;
    assert!(
        page.contains("left out: 1 trial of groups that are not whole (--open-groups takes them)"),
        "{page}"
    );

    let mut rows = group();
    for row in &mut rows[..2] {
        row["reward"] = Value::Null;
        row["reward_valid"] = false.into();
        row["failure_cause"] = HOSTILE.into();
    }
    let pages = Pages::of(&rows).await;
    let (_, page) = pages.page(&address(Format::Jsonl)).await;
    assert!(page.contains("[the trial failed: &lt;script&gt;alert(1)"), "{page}");
    assert!(!page.contains("<script>alert") && !page.contains("<img"), "{page}");
    let (_, page) = pages.page(&address(Format::Labels)).await;
    assert!(page.contains("No record: left out: 1 trial failed (--failed drop)."), "{page}");
    assert!(
        page.contains("[left out: 1 trial failed (--failed drop)] </small><s class=\"run masked\""),
        "{page}"
    );

    let mut rows = group();
    rows[2]["sample_index"] = 0.into();
    let pages = Pages::of(&rows).await;
    let (_, page) = pages.page(&address(Format::Jsonl)).await;
    assert!(page.contains("rolltap export fails: trials one and two are both attempt 0"), "{page}");
}

#[tokio::test]
async fn a_long_record_comes_in_windows() {
    let mut row = rollout_row("one", "task", Some(1.0), 200_000);
    row["group_size"] = 1.into();
    let pages = Pages::of(&[row]).await;
    let (_, page) = pages.page(&address(Format::Jsonl)).await;
    assert!(page.len() < 300_000, "a page has {} bytes", page.len());
    assert!(page.contains("of which only the beginning follows"), "{page}");
    let next = "/jobs/rows.jsonl/trials/one/records/jsonl/tokens?branch=0&from=198000";
    let (_, window) = pages.page(next).await;
    assert!(window.contains("id=\"t198000\"") && window.contains("from=200000"), "{window}");
}
