//! The differences of recomputed logprobs, which stand in the directory of a job.

use rolltap_rollout::row::RolloutRow;
use serde_json::{Value, json};

use super::accessibility::audit;
use super::browser::{Browser, RIGHT};
use super::program::{Demo, Server};

/// Returns the indices of the trained tokens of a row.
fn trained(row: &RolloutRow) -> Vec<usize> {
    (0..row.loss_mask.len()).filter(|at| row.loss_mask[*at] == 1).collect()
}

/// Returns the line of a report in which the recomputed logprob of the token at `position` is lower by `difference`.
pub(crate) fn report_of(row: &RolloutRow, position: usize, difference: f32) -> Value {
    let positions = trained(row);
    let captured: Vec<f32> = positions.iter().map(|at| row.logprobs[*at]).collect();
    let lowered = |at: &usize| row.logprobs[*at] - if *at == position { difference } else { 0.0 };
    let recomputed: Vec<f32> = positions.iter().map(lowered).collect();
    json!({
        "schema_version": "recompute/1", "trial_id": row.trial_id, "branch_index": row.branch_index,
        "policy_versions": ["0"], "model": "m", "weights": null, "token_bound": 1.0, "mean_bound": 0.1, "refused": null,
        "positions": positions, "captured": captured, "recomputed": recomputed,
    })
}

#[test]
#[ignore = "needs Chromium: run ./scripts/test"]
fn the_differences_of_a_job_are_found_coloured_and_read_by_keys() {
    let demo = Demo::run();
    let rows = demo.rows();
    let row = &rows[0];
    let positions = trained(row);
    let line = report_of(row, positions[1], 2.0);
    std::fs::write(demo.dir().join("recompute.jsonl"), format!("{line}\n")).unwrap();
    let view = Server::view(demo.jobs());
    let browser = Browser::start();
    let trial = format!("/jobs/demo/trials/{}", row.trial_id);
    browser.open(&view.page(&trial));
    assert!(
        browser.text("document.querySelector('main').textContent").contains("recomputed logprobs differ")
    );

    let branch = format!("{trial}/branches/0");
    browser.open(&view.page(&branch));
    // The last colouring is that of differences.
    browser.press("c", 5);
    assert_eq!(browser.text("document.querySelector('#tokens').dataset.colour"), "difference");
    assert_eq!(browser.value("getComputedStyle(document.querySelector('.of-difference')).display"), "inline");
    assert_eq!(audit(&browser, "difference"), [""; 0]);

    browser
        .value("[...document.querySelectorAll('a')].find((link) => /^token/.test(link.textContent)).click()");
    browser.until(&format!("document.querySelector('#tokens i.at')?.id === 't{}'", positions[1]));
    let facts = browser.text("document.querySelector('#token').textContent");
    assert!(facts.contains("difference -2.00"), "{facts}");
    browser.press(RIGHT, 1);
    browser.until("document.querySelector('#token').textContent.includes('difference 0.00')");
}
