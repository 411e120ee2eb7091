//! The needs of readers without a mouse, and of readers who see colours or contrast differently.

use serde_json::json;

use super::browser::{Browser, TAB};
use super::loading::pages;
use super::program::{Demo, Server};
use super::rows::{RowsFile, forked, row};

/// Returns the defects of the page in both colour schemes.
pub(crate) fn audit(browser: &Browser, page: &str) -> Vec<String> {
    let mut defects = Vec::new();
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        let found = browser.value(include_str!("audit.js"));
        defects.extend(found.as_array().unwrap().iter().map(|defect| format!("{page}, {scheme}: {defect}")));
    }
    defects
}

#[test]
#[ignore = "needs Chromium: run ./scripts/test"]
fn every_page_has_names_landmarks_and_contrast() {
    let demo = Demo::run();
    let view = Server::view(demo.jobs());
    let browser = Browser::start();
    let mut defects = Vec::new();
    for page in pages(&demo) {
        browser.open(&view.page(&page));
        defects.extend(audit(&browser, &page));
    }

    // A superseded, failed and suspicious trial, and a token in each colouring.
    let mut failed = row("failed", "task", 40);
    failed["superseded"] = true.into();
    failed["failure_cause"] = "AgentTimeoutError".into();
    failed["suspicious"] = json!(["read the tests"]);
    failed["trainable_mask"] = vec![0; 42].into();
    failed["loss_mask"] = vec![0; 42].into();
    failed["advantage"] = json!(-0.5);
    let rows = [&[failed, row("other", "other", 3)][..], &forked("forked", "task")].concat();
    let rows = RowsFile::of(&rows);
    let view = Server::view(&rows.path());
    let trial = "/jobs/rows.jsonl/trials/failed";
    let forked = "/jobs/rows.jsonl/trials/forked";
    for page in
        ["/jobs/rows.jsonl", "/jobs/rows.jsonl/groups/task", forked, trial, &format!("{trial}/branches/0")]
    {
        browser.open(&view.page(page));
        defects.extend(audit(&browser, page));
    }
    for _ in 0..5 {
        browser.press("c", 1);
        let colour = browser.text("document.querySelector('#tokens').dataset.colour");
        defects.extend(audit(&browser, &colour));
    }
    browser.press("?", 1);
    defects.extend(audit(&browser, "the help"));
    assert_eq!(defects, [""; 0]);
}

#[test]
#[ignore = "needs Chromium: run ./scripts/test"]
fn the_focus_is_visible_at_every_stop() {
    const STOPS: usize = 80;
    let demo = Demo::run();
    let view = Server::view(demo.jobs());
    let browser = Browser::start();
    for page in pages(&demo) {
        browser.open(&view.page(&page));
        let mut stops = 0;
        for _ in 0..STOPS {
            browser.press(TAB, 1);
            let stop = browser.value(
                "(() => { const stop = document.activeElement; if (stop === document.body) return null; \
                 const style = getComputedStyle(stop); const box = stop.getBoundingClientRect(); \
                 return {html: stop.outerHTML.slice(0, 200), \
                 ring: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0, \
                 inside: box.right > 0 && box.bottom > 0}; })()",
            );
            if stop.is_null() {
                break;
            }
            stops += 1;
            assert_eq!((&stop["ring"], &stop["inside"]), (&json!(true), &json!(true)), "{page}: {stop}");
        }
        assert!(stops >= 3, "{page} has {stops} stops");
    }
}
