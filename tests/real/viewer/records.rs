//! The records of captured trials, beside the file that `rolltap export` writes.

use serde_json::Value;

use super::browser::Browser;
use super::program::{Demo, Server};
use crate::program::{both_outputs, rolltap};

/// Formats with a line per trial of one branch, with and without words.
const FORMATS: [&str; 6] = ["jsonl", "messages", "labels", "atif", "tinker", "verl"];

#[test]
#[ignore = "needs Chromium: run ./scripts/test"]
fn the_record_of_a_captured_trial_is_its_line_of_an_export() {
    let demo = Demo::run();
    let view = Server::view(demo.jobs());
    let browser = Browser::start();
    let trial = format!("/jobs/demo/trials/{}", demo.rows()[0].trial_id);
    let dir = demo.dir().display().to_string();
    for format in FORMATS {
        browser.open(&view.page(&format!("{trial}/records/{format}")));
        let record = browser.text("document.querySelector('pre').textContent");
        let record: Value = serde_json::from_str(&record).unwrap();
        let exported = rolltap(&["export", &dir, "--quiet", "--format", format, "--output", "-"]);
        assert!(exported.status.success(), "{}", both_outputs(&exported));
        let lines = String::from_utf8(exported.stdout).unwrap();
        let is_line = lines.lines().any(|line| serde_json::from_str::<Value>(line).unwrap() == record);
        assert!(is_line, "{format}: {record}");
    }
}
