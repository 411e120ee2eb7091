use super::*;

/// Returns the rows of a trial whose conversation forks behind its first call.
fn forked(trial: &str) -> [Value; 2] {
    let mut first = rollout_row(trial, "task", Some(1.0), 3);
    let mut second = rollout_row(trial, "task", Some(1.0), 6);
    first["num_branches"] = 2.into();
    for (name, value) in [
        ("branch_index", json!(1)),
        ("num_branches", json!(2)),
        ("branch_cause", json!("fork")),
        ("branch_reprefilled", json!(1234)),
    ] {
        second[name] = value;
    }
    let shared = first["calls"][0].clone();
    let mut own = shared.clone();
    own["call_id"] = "second-call".into();
    own["parent_call_id"] = shared["call_id"].clone();
    own["role"] = "sub_agent".into();
    second["calls"] = json!([shared, own]);
    [first, second]
}

#[tokio::test]
async fn the_tree_of_a_trial_has_each_branch_with_its_cause_and_each_call_once() {
    let pages = Pages::of(&forked("one")).await;
    let (_, trial) = pages.page("/jobs/rows.jsonl/trials/one").await;
    assert!(trial.contains("1: fork</text>"), "{trial}");
    assert!(trial.contains("1\u{202f}234 tokens prefilled again"), "{trial}");
    assert_eq!(trial.matches("<circle").count(), 2, "{trial}");
    assert!(trial.contains("<circle class=\"other\"") && trial.contains("branches/1?at=2#t2"), "{trial}");
}
