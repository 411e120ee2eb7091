//! The drawings on the page of a trial.

use super::browser::{Browser, ENTER, TAB};
use super::captures::Captures;
use super::loading::refusals;
use super::program::Server;
use super::rows::{RowsFile, forked};

/// The centre of each circle of the tree, as `x y`.
const CENTRES: &str = "[...document.querySelectorAll('.tree circle')].map((circle) => { \
    const box = circle.getBoundingClientRect(); return `${box.x} ${box.y}`; })";

#[test]
#[ignore = "needs Chromium: run ./scripts/test"]
fn the_tree_of_a_trial_leads_to_its_branches_and_calls() {
    let rows = RowsFile::of(&forked("forked", "task"));
    let view = Server::view(&rows.path());
    let browser = Browser::start();
    let trial = "/jobs/rows.jsonl/trials/forked";
    browser.open(&view.page(trial));
    browser.resize(390, 844);
    let centres: Vec<String> = serde_json::from_value(browser.value(CENTRES)).unwrap();
    assert!(matches!(&*centres, [one, two] if one != two), "{centres:?}");
    let text = browser.text("document.querySelector('svg.tree').textContent");
    assert!(text.contains("0: first_call") && text.contains("1: fork"), "{text}");
    let widths =
        browser.value("[document.documentElement.scrollWidth, document.documentElement.clientWidth]");
    assert_eq!(widths[0], widths[1], "the tree does not scroll by itself");

    // Tab passes the names of the branches, and no circle.
    browser.value("document.querySelector('.tree').parentElement.focus()");
    browser.press(TAB, 2);
    browser.press(ENTER, 1);
    browser.arrives_at(&format!("{trial}/branches/1"));
    browser.open(&view.page(trial));
    let second = "document.querySelectorAll('.tree circle')[1].parentElement";
    browser.value(&format!(
        "{second}.dispatchEvent(new MouseEvent('click', {{bubbles: true, cancelable: true}}))"
    ));
    browser.until("document.querySelector('#tokens i.at')?.id === location.hash.slice(1)");
    assert_eq!(browser.text("location.pathname"), format!("{trial}/branches/1"));
    assert_eq!(refusals(&browser), [""; 0]);
}

#[test]
#[ignore = "needs Chromium: run ./scripts/test"]
fn the_timeline_marks_repeated_requests_pauses_and_versions() {
    let captures = Captures::answering("an answer");
    let trial = captures.record_calls("task", "the same question", 3);
    let view = Server::view(&captures.data());
    let browser = Browser::start();
    browser.open(&view.page(&format!("/jobs/data/trials/{trial}")));
    let marks = browser.text("document.querySelector('svg.timeline').textContent");
    assert_eq!(marks.matches('↻').count(), 2, "{marks}");
    assert!(marks.contains("version 1") && marks.contains("version 2"), "{marks}");
    assert_eq!(browser.value("document.querySelectorAll('.timeline line.version').length"), 2);
    assert_eq!(browser.value("document.querySelectorAll('.timeline rect.pause').length"), 2);
    let page = browser.text("document.querySelector('main').textContent");
    assert!(page.contains("The trainer paused 2 times"), "{page}");
    assert!(page.contains("repeats the request of an earlier call") && page.contains(", repeats "), "{page}");
    assert_eq!(refusals(&browser), [""; 0]);
}
