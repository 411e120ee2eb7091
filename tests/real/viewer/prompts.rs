//! The sources of prompts, and prompts that depart from their conversations.

use super::accessibility::audit;
use super::browser::Browser;
use super::captures::Captures;
use super::program::{Demo, Server};

/// The sources of the prompts of a branch.
const SOURCES: &str =
    "[...document.querySelectorAll('table.list tbody tr')].map((row) => row.cells[6].textContent)";

#[test]
#[ignore = "needs Chromium: run ./scripts/test"]
fn spliced_prompts_are_marked_in_the_table_and_at_their_tokens() {
    let demo = Demo::run();
    let view = Server::view(demo.jobs());
    let browser = Browser::start();
    let row = &demo.rows()[0];
    browser.open(&view.page(&format!("/jobs/demo/trials/{}/branches/0", row.trial_id)));
    let sources: Vec<String> = serde_json::from_value(browser.value(SOURCES)).unwrap();
    assert!(sources[0].starts_with("rendered: new conversation"), "{sources:?}");
    assert!(sources[1..].iter().all(|source| source.starts_with("spliced ")), "{sources:?}");
    browser.press("n", 1);
    browser.until(
        "document.querySelector('#token').textContent.includes('spliced into the next prompt (rendered by the template: ')",
    );
    // No prompt follows the last answer.
    browser.press("n", row.calls.len() - 1);
    browser.until("document.querySelector('#tokens i.at')?.closest('.run').matches(':last-of-type')");
    assert_eq!(browser.value("document.querySelector('#token').textContent.includes('spliced')"), false);
}

#[test]
#[ignore = "needs Chromium: run ./scripts/test"]
fn a_prompt_that_departs_from_its_conversation_is_compared_with_it() {
    let captures = Captures::answering("an <b>answer</b>");
    let trial = captures.record_with_late_tool("task", "a message");
    let view = Server::view(&captures.data());
    let browser = Browser::start();
    browser.open(&view.page(&format!("/jobs/data/trials/{trial}/branches/1")));
    let sources: Vec<String> = serde_json::from_value(browser.value(SOURCES)).unwrap();
    assert_eq!(sources, ["rendered again: inputs_changed"]);
    let page = browser.text("document.querySelector('main').textContent");
    assert!(page.contains("has other tokens (inputs_changed): "), "{page}");
    // The equal and the inserted tokens are those of this prompt.
    let ids = |selector: &str| {
        let tokens = format!("[...document.querySelectorAll('{selector}')].map((token) => token.dataset.i)");
        serde_json::from_value::<Vec<String>>(browser.value(&tokens)).unwrap()
    };
    let (shown, prompt) = (ids(".diff > i, .diff ins i"), ids("#tokens .prompt i"));
    assert!(shown.len() >= 20 && !ids(".diff ins i").is_empty(), "{shown:?}");
    assert_eq!(shown, prompt[..shown.len()]);
    for width in [390, 1280] {
        browser.resize(width, 844);
        assert_eq!(
            browser.value("document.documentElement.scrollWidth <= document.documentElement.clientWidth"),
            true
        );
    }
    assert_eq!(audit(&browser, "a departure"), [""; 0]);
}
