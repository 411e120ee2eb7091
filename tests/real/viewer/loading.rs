//! The requests of pages: none to other hosts, and only for the part of a long branch that is in view.

use serde_json::Value;

use rolltap_testing::PROMPT;

use super::browser::Browser;
use super::program::{Demo, Server};
use super::rows::{RowsFile, row};

/// The paths of the pages of the demo: jobs, job, group, trial, file, branch, records.
pub(crate) fn pages(demo: &Demo) -> Vec<String> {
    let rows = demo.rows();
    let trial = format!("/jobs/demo/trials/{}", rows[0].trial_id);
    let group = rows[0].group_id.as_ref().unwrap().replace('/', "%2F");
    vec![
        "/".to_owned(),
        "/jobs/demo".to_owned(),
        "/jobs/demo?q=none".to_owned(),
        format!("/jobs/demo/groups/{group}"),
        trial.clone(),
        format!("{trial}/files/result.json"),
        format!("{trial}/branches/0"),
        format!("{trial}/screens"),
        format!("{trial}/records/messages"),
        format!("{trial}/records/jsonl"),
        "/jobs/none".to_owned(),
    ]
}

/// Returns the addresses that the browser has requested, since the last call.
fn requested(browser: &Browser) -> Vec<String> {
    let events = browser.log("performance");
    let events = events.iter().map(|event| serde_json::from_str::<Value>(event).unwrap());
    let sent = events.filter(|event| event["message"]["method"] == "Network.requestWillBeSent");
    sent.map(|event| event["message"]["params"]["request"]["url"].as_str().unwrap().to_owned()).collect()
}

/// Returns the messages about the content security policy, since the last call.
pub(crate) fn refusals(browser: &Browser) -> Vec<String> {
    let lines = browser.log("browser").into_iter();
    lines.filter(|line| line.contains("Content Security Policy")).collect()
}

#[test]
#[ignore = "needs Chromium: run ./scripts/test"]
fn pages_load_nothing_from_other_hosts_and_break_no_policy() {
    let demo = Demo::run();
    let view = Server::view(demo.jobs());
    let browser = Browser::start();
    // The page of a new tab is the browser's own.
    browser.open("about:blank");
    requested(&browser);
    for page in pages(&demo) {
        browser.open(&view.page(&page));
        let own = format!("{}/", view.urls[0]);
        let addresses = requested(&browser);
        assert!(addresses.contains(&view.page(&page)), "{page}: {addresses:?}");
        assert!(addresses.iter().all(|address| address.starts_with(&own)), "{page}: {addresses:?}");
        let mut messages = browser.log("browser");
        // The browser reports the status of the page itself.
        messages.retain(|message| !(page == "/jobs/none" && message.contains("/jobs/none - Failed to load")));
        assert_eq!(messages, [""; 0], "{page}");
    }
}

#[test]
#[ignore = "needs Chromium: run ./scripts/test"]
fn a_long_branch_is_loaded_while_the_reader_scrolls() {
    const LOADED: &str = "document.querySelectorAll('#tokens i').length";
    let rows = RowsFile::of(&[row("long", "task", 200_000 - PROMPT)]);
    let view = Server::view(&rows.path());
    let browser = Browser::start();
    browser.open(&view.page("/jobs/rows.jsonl/trials/long/branches/0"));
    let bytes =
        browser.value("performance.getEntries().reduce((sum, entry) => sum + (entry.transferSize ?? 0), 0)");
    let bytes = bytes.as_u64().unwrap();
    assert!((50_000..=300_000).contains(&bytes), "the page has transferred {bytes} bytes");
    assert_eq!(browser.value(LOADED), 2_000);

    browser.value("window.scrollTo({top: document.body.scrollHeight, behavior: 'instant'})");
    browser.until("document.getElementById('t3999') !== null");
    assert_eq!(browser.value("document.querySelectorAll('#tokens .more').length"), 1);
    assert_eq!(browser.text("document.getElementById('t2000').dataset.i"), "52000");

    // The end of the branch is one link away.
    browser.open(&view.page("/jobs/rows.jsonl/trials/long/branches/0?at=199999#t199999"));
    browser.until("document.querySelector('#tokens i.at')?.id === 't199999'");
    assert!(browser.value(LOADED).as_u64().unwrap() < 2_000);
    assert_eq!(browser.value("document.querySelectorAll('#tokens .more').length"), 0);
}
