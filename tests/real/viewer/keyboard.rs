//! A walk without a mouse.

use rolltap_rollout::row::RolloutRow;

use super::browser::{Browser, ENTER, LEFT, RIGHT};
use super::program::{Demo, Server};
use super::rows::{RowsFile, row};
use crate::harness::testbed;

/// The parts of the details of a token.
const FACTS: &str = "document.querySelector('#token').textContent";

/// Returns the details that the page must show of a sampled token.
fn facts(row: &RolloutRow, at: usize) -> Vec<String> {
    let span = row.calls.iter().position(|span| (span.start as usize..span.end as usize).contains(&at));
    let call = &row.calls[span.unwrap()];
    let kind = match (row.trainable_mask[at], row.loss_mask[at]) {
        (0, _) => "masked",
        (_, 0) => "elsewhere",
        _ => "trained",
    };
    vec![
        format!("token {at}"),
        format!("id {}", row.token_ids[at]),
        format!("logprob {}", row.logprobs[at]),
        kind.to_owned(),
        format!("version {}", row.token_version[at]),
        format!("call {}, {} ({})", span.unwrap() + 1, call.role, call.call_id),
    ]
}

/// Checks the details of the marked token, and that no other element covers it.
pub(crate) fn assert_shown(browser: &Browser, row: &RolloutRow, at: usize) {
    browser.until(&format!("document.querySelector('#tokens i.at')?.id === 't{at}'"));
    let shown = browser.text(FACTS);
    let parts: Vec<&str> = shown.split("  ·  ").collect();
    for fact in facts(row, at) {
        assert!(parts.contains(&fact.as_str()), "{fact} is not in {shown}");
    }
    // Scrolling to the token is smooth.
    browser.until(
        "(() => { const token = document.querySelector('#tokens i.at'); const box = token.getClientRects()[0]; \
         return document.elementFromPoint(box.left + 1, box.top + box.height / 2) === token; })()",
    );
}

#[test]
#[ignore = "needs Chromium: run ./scripts/test"]
fn a_token_is_reached_from_the_list_of_jobs_by_keys_alone() {
    let demo = Demo::run();
    let view = Server::view(demo.jobs());
    let browser = Browser::start();
    browser.open(&view.page("/"));
    browser.press("j", 1);
    browser.press(ENTER, 1);
    browser.arrives_at("/jobs/demo");

    // The rows of the tasks come before those of the trials.
    let tasks = browser.value("document.querySelectorAll('td a, th a').length > 0 && [...document.querySelectorAll('table.list')][0].tBodies[0].rows.length");
    let tasks = usize::try_from(tasks.as_u64().unwrap()).unwrap();
    browser.press("j", tasks + 2);
    browser.press("k", 1);
    let trial = browser.text("document.activeElement.textContent");
    let rows = demo.rows();
    let row = rows.iter().find(|row| row.trial_id == trial).expect("j marks a trial");
    browser.press(ENTER, 1);
    browser.arrives_at(&format!("/jobs/demo/trials/{trial}"));

    browser.press("j", 1);
    browser.press(ENTER, 1);
    browser.arrives_at(&format!("/jobs/demo/trials/{trial}/branches/0"));
    let starts: Vec<usize> = row.calls.iter().map(|span| span.start as usize).collect();
    browser.press("n", 1);
    assert_shown(&browser, row, starts[0]);
    browser.press("n", 1);
    assert_shown(&browser, row, starts[1]);
    browser.press(RIGHT, 3);
    assert_shown(&browser, row, starts[1] + 3);
    browser.press(LEFT, 1);
    assert_shown(&browser, row, starts[1] + 2);
    browser.press("p", 2);
    assert_shown(&browser, row, starts[0]);

    let group = row.group_id.as_ref().unwrap().replace('/', "%2F");
    for page in
        [&format!("/jobs/demo/trials/{trial}"), &format!("/jobs/demo/groups/{group}"), "/jobs/demo", "/"]
    {
        browser.press("u", 1);
        browser.arrives_at(page);
    }
}

#[test]
#[ignore = "needs Chromium: run ./scripts/test"]
fn the_keys_find_the_reason_of_a_masked_token_in_a_record() {
    let demo = Demo::run();
    let view = Server::view(demo.jobs());
    let browser = Browser::start();
    let rows = demo.rows();
    let trial = format!("/jobs/demo/trials/{}", rows[0].trial_id);
    browser.open(&view.page(&trial));
    browser.value(
        "[...document.querySelectorAll('.formats a')].find((link) => link.textContent === 'labels').focus()",
    );
    browser.press(ENTER, 1);
    browser.arrives_at(&format!("{trial}/records/labels"));
    browser.press(RIGHT, 1);
    browser.until("document.querySelector('#tokens i.at')?.id === 't0'");
    assert_eq!(browser.value("document.querySelector('#tokens i.at').closest('s') !== null"), true);
    assert!(browser.text(FACTS).contains("masked  ·  prompt"), "{}", browser.text(FACTS));
    browser.press("n", 1);
    let start = rows[0].calls[0].start;
    browser.until(&format!("document.querySelector('#tokens i.at')?.id === 't{start}'"));
    assert_eq!(browser.value("document.querySelector('#tokens i.at').closest('s')"), serde_json::Value::Null);
    browser.press("u", 1);
    browser.arrives_at(&trial);
}

#[test]
#[ignore = "needs Chromium: run ./scripts/test"]
fn the_ids_of_tokens_stand_beside_their_texts() {
    let rows = RowsFile::of(&[row("one", "task", 3)]);
    let (file, model) = (rows.path().display().to_string(), testbed("ROLLTAP_TESTBED_MODEL"));
    let view = Server::start(&["view", "--port", "0", "--tokenizer", &model, &file], 1);
    let browser = Browser::start();
    browser.open(&view.page("/jobs/rows.jsonl/trials/one/branches/0"));
    let beside = || browser.text("getComputedStyle(document.querySelector('#t2'), '::after').content");
    let text = browser.text("document.querySelector('#t2').textContent");
    assert_eq!(beside(), "none");
    browser.press("i", 1);
    // The generated content is no part of the text, which a reader copies.
    let id = browser.text("document.querySelector('#t2').dataset.i");
    assert_eq!(
        (beside(), browser.text("document.querySelector('#t2').textContent")),
        (format!("\"{id}\""), text)
    );
    assert_eq!(browser.value("document.querySelector('#ids').checked"), true);
    browser.press("i", 1);
    assert_eq!(beside(), "none");
}

#[test]
#[ignore = "needs Chromium: run ./scripts/test"]
fn the_help_lists_the_keys_and_a_filter_takes_letters() {
    let demo = Demo::run();
    let view = Server::view(demo.jobs());
    let browser = Browser::start();
    browser.open(&view.page("/jobs/demo"));
    browser.press("?", 1);
    browser.until("document.querySelector('#help').open");
    browser.press(ENTER, 1);
    browser.until("!document.querySelector('#help').open");
    browser.press("/", 1);
    for letter in ["j", "u", "n", "k"] {
        browser.press(letter, 1);
    }
    assert_eq!(browser.text("document.querySelector('#filter').value"), "junk");
    browser.press(ENTER, 1);
    browser.until("location.search.includes('q=junk')");
    assert!(
        browser.text("document.querySelector('main').textContent").contains("No trial matches the filter.")
    );

    // A group's samples part somewhere. The key marks the link to that token.
    let group = demo.rows()[0].group_id.clone().unwrap().replace('/', "%2F");
    browser.open(&view.page(&format!("/jobs/demo/groups/{group}")));
    browser.press("d", 1);
    browser.press(ENTER, 1);
    browser.until("location.hash === '#' + document.querySelector('#tokens i.at')?.id");
}
