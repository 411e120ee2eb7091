//! The differences of recomputed logprobs, which stand in the directory of a job.

use serde_json::{Value, json};

use super::accessibility::audit;
use super::browser::{Browser, RIGHT};
use super::program::{Demo, Server};

#[test]
#[ignore = "needs Chromium: run ./scripts/test"]
fn the_differences_of_a_job_are_found_coloured_and_read_by_keys() {
    let demo = Demo::run();
    let rows = demo.rows();
    let row = &rows[0];
    let positions: Vec<usize> = (0..row.loss_mask.len()).filter(|at| row.loss_mask[*at] == 1).collect();
    let captured: Vec<f32> = positions.iter().map(|at| row.logprobs[*at]).collect();
    let mut recomputed = captured.clone();
    recomputed[1] -= 2.0;
    let line: Value = json!({
        "schema_version": "recompute/1", "trial_id": row.trial_id, "branch_index": 0, "policy_versions": ["0"],
        "model": "m", "weights": null, "token_bound": 1.0, "mean_bound": 0.1, "refused": null, "positions": positions,
        "captured": captured, "recomputed": recomputed,
    });
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
