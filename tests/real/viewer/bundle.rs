//! The pages of a static bundle, opened as files.

use tempfile::TempDir;

use super::browser::{Browser, ENTER};
use super::program::Demo;
use crate::program::{both_outputs, rolltap};

#[test]
#[ignore = "needs Chromium: run ./scripts/test"]
fn a_bundle_is_read_by_keys_without_a_server() {
    let (demo, dir) = (Demo::run(), TempDir::new().unwrap());
    let bundle = dir.path().join("bundle");
    let ended = rolltap(&["view", demo.jobs().to_str().unwrap(), "--bundle", bundle.to_str().unwrap()]);
    assert!(ended.status.success(), "{}", both_outputs(&ended));
    let browser = Browser::start();
    browser.open(&format!("file://{}/index.html", bundle.display()));
    browser.press("j", 1);
    browser.press(ENTER, 1);
    browser
        .until("document.querySelector('h1').textContent === 'demo' && document.readyState === 'complete'");
    // A bundle has no filter, so the rows of its tasks have no links.
    browser.press("j", 1);
    let trial = browser.text("document.activeElement.textContent");
    assert!(demo.rows().iter().any(|row| row.trial_id == trial), "{trial}");
    browser.press(ENTER, 1);
    browser.until(&format!(
        "document.querySelector('h1').textContent === '{trial}' && document.readyState === 'complete'"
    ));
    browser.press("j", 1);
    browser.press(ENTER, 1);
    browser.until("document.querySelector('#tokens') !== null && document.readyState === 'complete'");
    browser.press("n", 1);
    browser.until("document.querySelector('#token').textContent.includes('trained')");
    let errors = browser.log("browser");
    assert_eq!(errors, [""; 0]);
}
