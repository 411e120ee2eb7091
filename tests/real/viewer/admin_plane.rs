//! The pages of a running proxy, in its admin plane.

use super::browser::Browser;
use super::captures::Captures;

const TOKEN: &str = "Zp4sVx7TqLm2Rw9Ky3Nc8Bd5Hf6Jg1Ae";
/// A page that is loaded again loses this mark.
const MARK: &str = "(window.mark = 'same page')";

#[test]
#[ignore = "needs Chromium: run ./scripts/test"]
fn a_browser_with_the_token_as_its_password_follows_a_running_proxy() {
    let captures = Captures::guarded_by(TOKEN);
    let first = captures.record("task", "Greet.");
    let browser = Browser::start();
    let pages = captures.pages();
    browser.open(&pages.replace("http://", &format!("http://anyone:{TOKEN}@")));
    browser.until("document.querySelector('h1') !== null");
    assert_eq!(browser.text("document.querySelector('table.list a').textContent"), "data");
    // The style sheet and the script need the token too. The browser sends it again by itself.
    browser.press("j", 1);
    assert_eq!(browser.text("document.activeElement.textContent"), "data");
    browser.open(&format!("{pages}/jobs/data"));
    browser.value(MARK);
    let shows = |trial: &str| {
        format!(
            "window.mark === 'same page' && document.querySelector('#main').textContent.includes({trial:?})"
        )
    };
    browser.until(&shows(&first));
    let second = captures.record("task", "Greet.");
    browser.until(&shows(&second));
    // The filter finds words of the calls.
    browser.open(&format!("{pages}/jobs/data?words=gReEt"));
    browser.value(MARK);
    browser.until(&shows(&first));
    browser.open(&format!("{pages}/jobs/data?words=farewell"));
    browser.until("document.querySelector('#main').textContent.includes('No trial matches')");
    browser.open(&format!("{pages}/jobs/data"));
    // The walk to the tokens stays below the path of the pages.
    browser.value(&format!(
        "[...document.querySelectorAll('a')].find(link => link.textContent === {first:?}).click()"
    ));
    browser.until(&format!("document.querySelector('h1').textContent === {first:?}"));
    let branch = format!("{pages}/jobs/data/trials/{first}/branches/0");
    browser.open(&branch);
    browser.press("n", 1);
    browser.until("document.querySelector('#token').textContent.includes('logprob')");
    let facts = browser.text("document.querySelector('#token').textContent");
    assert!(facts.contains("http://127.0.0.1:"), "the upstream of the call: {facts}");
}

#[test]
#[ignore = "needs Chromium: run ./scripts/test"]
fn a_page_that_is_opened_with_a_password_in_its_address_loads_further_parts() {
    let captures = Captures::guarded_by(TOKEN);
    let first = captures.record("task", "Greet.");
    let browser = Browser::start();
    let pages = captures.pages().replace("http://", &format!("http://anyone:{TOKEN}@"));
    browser.open(&format!("{pages}/jobs/data"));
    browser.value(MARK);
    let second = captures.record("task", "Greet.");
    for trial in [first, second] {
        browser.until(&format!(
            "window.mark === 'same page' && document.querySelector('#main').textContent.includes({trial:?})"
        ));
    }
}
