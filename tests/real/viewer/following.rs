//! Pages of a job that still runs.

use std::process::{Command, Stdio};

use rolltap_testing::until;
use tempfile::TempDir;

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
fn a_job_is_shown_as_running_until_it_ends() {
    let (dir, upstream) = (TempDir::new().unwrap(), Server::start(&["sim", "--listen", "127.0.0.1:0"], 1));
    let task = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/tasks/count-errors");
    let jobs = dir.path().to_str().unwrap();
    // The agent ends when the test writes this file.
    let end = dir.path().join("end");
    let agent = format!("until [ -e '{}' ]; do sleep 0.05; done", end.display());
    let arguments = ["run", "-p", task, "-e", "local", "--upstream", &upstream.urls[0], "-a", "command"];
    let more = ["--agent-command", &agent, "--jobs-dir", jobs, "--job-name", "job", "-k", "1"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_rolltap"));
    command.args(arguments).args(more).stdout(Stdio::null()).stderr(Stdio::null());
    let mut job = command.spawn().unwrap();
    until("a trial is open", || {
        std::fs::read_dir(dir.path().join("job/data")).is_ok_and(|files| files.count() > 0)
    });
    let view = Server::view(&dir.path().join("job"));
    let browser = Browser::start();
    browser.open(&view.page("/jobs/job"));
    browser.value(MARK);
    const RUNNING: &str = "document.querySelector('p.facts .running') !== null";
    browser.until(RUNNING);
    std::fs::write(end, "").unwrap();
    assert!(job.wait().unwrap().code().is_some());
    browser.until(&format!("!({RUNNING}) && window.mark === 'same page'"));
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
