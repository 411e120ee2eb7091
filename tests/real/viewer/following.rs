//! Pages of a job that still runs.

use super::browser::Browser;
use super::captures::Captures;
use super::program::Server;
use super::rows::{RowsFile, row};

/// A page that is loaded again loses this mark.
const MARK: &str = "(window.mark = 'same page')";

fn shows(trial: &str) -> String {
    format!("window.mark === 'same page' && document.querySelector('#main').textContent.includes({trial:?})")
}

#[test]
#[ignore = "needs Chromium: run ./scripts/test"]
fn a_recorded_trial_appears_without_a_reload() {
    let captures = Captures::answering("Hello.");
    let first = captures.record("task", "Greet.");
    let view = Server::view(&captures.data());
    let browser = Browser::start();
    browser.open(&view.page("/jobs/data"));
    browser.value(MARK);
    browser.until(&shows(&first));
    for _ in 0..2 {
        let id = captures.record("task", "Greet.");
        browser.until(&shows(&id));
    }

    // A reader who walks through the rows keeps the place, and hears of the change.
    browser.press("j", 1);
    let id = captures.record("task", "Greet.");
    browser.until("document.querySelector('#announcement').textContent.includes('reload')");
    assert_eq!(browser.value(&shows(&id)), false);
    assert_eq!(browser.text("document.activeElement.textContent"), first);
}

#[test]
#[ignore = "needs Chromium: run ./scripts/test"]
fn more_tabs_follow_a_job_than_a_browser_has_connections_to_one_host() {
    // Chromium opens at most six.
    const TABS: usize = 8;
    let rows = RowsFile::of(&[row("one", "task", 3)]);
    let view = Server::view(&rows.path());
    let browser = Browser::start();
    for tab in 0..TABS {
        if tab > 0 {
            browser.open_tab();
        }
        browser.open(&view.page("/jobs/rows.jsonl"));
        browser.value(MARK);
        browser.until(&shows("one"));
    }
    rows.write(&[row("one", "task", 3), row("two", "task", 3)]);
    browser.until(&shows("two"));

    // A hidden tab follows again as soon as it is shown.
    browser.switch_to_first_tab();
    browser.until(&shows("two"));
}
