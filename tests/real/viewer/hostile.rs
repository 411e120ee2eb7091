//! Text of agents, models and tasks that tries to become a part of the page.

use serde_json::{Value, json};

use super::browser::{Browser, ENTER};
use super::captures::Captures;
use super::loading::refusals;
use super::program::{Demo, Server};
use super::rows::{RowsFile, is_row, row};

/// Markup, event handlers, ends of attributes and elements, references, escape sequences, and text that runs backwards.
const HOSTILE: &str = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)><svg/onload=alert(1)></title></pre>\
                       <a href=javascript:alert(1)>&lt;b&gt; ${alert(1)} \u{1b}[2J\u{202e}";

/// Replaces every text of a row that a row may have there. The trial keeps its name, which is checked alone.
fn hostile_row(trial: &str) -> Value {
    let mut row = row(trial, "task", 3);
    for name in ["group_id", "environment", "failure_cause", "reward_version", "tokenizer_hash", "model"] {
        row[name] = HOSTILE.into();
    }
    row["suspicious"] = json!([HOSTILE]);
    row["rewards"] = json!({HOSTILE: 1.0});
    row["version_labels"] = json!({"0": HOSTILE});
    let texts = texts_of(&row, "");
    for pointer in texts.iter().filter(|pointer| *pointer != "/trial_id") {
        let mut changed = row.clone();
        *changed.pointer_mut(pointer).unwrap() = HOSTILE.into();
        if is_row(&changed) {
            row = changed;
        }
    }
    row
}

/// Returns the JSON pointers of all texts.
fn texts_of(value: &Value, at: &str) -> Vec<String> {
    match value {
        Value::String(_) => vec![at.to_owned()],
        Value::Array(items) => items
            .iter()
            .enumerate()
            .flat_map(|(index, item)| texts_of(item, &format!("{at}/{index}")))
            .collect(),
        Value::Object(fields) => fields
            .iter()
            .filter(|(name, _)| *name != HOSTILE)
            .flat_map(|(name, field)| texts_of(field, &format!("{at}/{name}")))
            .collect(),
        _ => Vec::new(),
    }
}

/// Checks that the page has the elements of its templates alone, and that no script of the text ran.
fn assert_harmless(browser: &Browser, page: &str) {
    assert!(!browser.has_alert(), "{page}");
    let foreign = browser.value(
        "[...document.querySelectorAll('script, img, iframe, base, object, embed, style, link, b')] \
         .map((element) => element.outerHTML).filter((html) => !html.includes('/assets/'))",
    );
    assert_eq!(foreign, json!([]), "{page}");
    let own = "document.querySelectorAll('head script[src*=\"/assets/\"]').length";
    assert_eq!(browser.value(own), 1, "{page}");
    let handlers = browser.value(
        "[...document.querySelectorAll('*')].flatMap((element) => element.getAttributeNames()) \
         .filter((name) => name.startsWith('on'))",
    );
    assert_eq!(handlers, json!([]), "{page}");
    let links = browser.value("[...document.links].every((link) => link.origin === location.origin)");
    assert_eq!(links, true, "{page}");
    assert_eq!(refusals(browser), [""; 0], "{page}");
}

/// Whether an expression of the page is or contains the hostile text, letter by letter.
fn contains(browser: &Browser, expression: &str) -> bool {
    browser.text(expression).contains(HOSTILE)
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[test]
#[ignore = "needs Chromium: run ./scripts/test"]
fn hostile_text_in_every_field_of_rows_stays_text() {
    let rows = RowsFile::of(&[hostile_row("one"), hostile_row(HOSTILE)]);
    let view = Server::view(&rows.path());
    let browser = Browser::start();
    let (job, name) = ("/jobs/rows.jsonl", encoded(HOSTILE));
    let pages = [
        (job.to_owned(), "main"),
        (format!("{job}?q={name}&group={name}&task={name}"), "main"),
        (format!("{job}/groups/{name}"), "title"),
        (format!("{job}/trials/one"), "main"),
        (format!("{job}/trials/{name}"), "title"),
        (format!("{job}/trials/{name}/branches/0"), "main"),
        (format!("/jobs/{name}"), "main"),
    ];
    for (page, place) in &pages {
        browser.open(&view.page(page));
        assert_harmless(&browser, page);
        let is_literal = contains(&browser, &format!("document.querySelector('{place}').textContent"));
        assert!(is_literal || page.starts_with("/jobs/%"), "{page} does not show the text in {place}");
    }

    for format in ["jsonl", "messages", "atropos"] {
        let page = format!("{job}/trials/{name}/records/{format}");
        browser.open(&view.page(&page));
        assert_harmless(&browser, &page);
    }

    // The script shows details of tokens, which contain the call's role and id.
    browser.open(&view.page(&format!("{job}/trials/one/branches/0")));
    browser.press("n", 1);
    browser.until("document.querySelector('#token').textContent.includes('call 1')");
    assert!(contains(&browser, "document.querySelector('#token').textContent"));
    assert_harmless(&browser, "the details of a token");

    // The link to a trial leads to the trial of this name.
    browser.open(&view.page(job));
    browser.press("j", 2);
    browser.press(ENTER, 1);
    browser.until("location.pathname.includes('/trials/') && document.readyState === 'complete'");
    let name = browser.text("decodeURIComponent(location.pathname.split('/').at(-1))");
    assert!(name == HOSTILE || name == "one", "{name}");
    assert_harmless(&browser, "the trial");
}

#[test]
#[ignore = "needs Chromium: run ./scripts/test"]
fn hostile_conversations_and_files_stay_text() {
    let captures = Captures::answering(HOSTILE);
    let trial = captures.record(&HOSTILE.replace('\u{1b}', ""), HOSTILE);
    let view = Server::view(&captures.data());
    let browser = Browser::start();
    let page = format!("/jobs/data/trials/{trial}");
    for page in [format!("{page}/branches/0"), page] {
        browser.open(&view.page(&page));
        assert_harmless(&browser, &page);
        assert!(browser.text("document.querySelector('main').textContent").contains("<img src=x"), "{page}");
    }

    let demo = Demo::run();
    let trial = demo.rows()[0].trial_id.clone();
    // A file name has no slash.
    let name = "<img src=x onerror=alert(1)>\"'&lt;.html";
    std::fs::write(demo.dir().join(&trial).join("agent").join(name), HOSTILE).unwrap();
    let view = Server::view(&demo.dir());
    let page = format!("/jobs/demo/trials/{trial}");
    browser.open(&view.page(&page));
    assert_harmless(&browser, &page);
    assert!(browser.text("document.querySelector('main').textContent").contains(name));
    let page = format!("{page}/files/{}", encoded(&format!("agent/{name}")));
    browser.open(&view.page(&page));
    assert_harmless(&browser, &page);
    assert!(contains(&browser, "document.querySelector('pre.file').textContent"));
    assert!(browser.text("document.title").contains(name));

    // Escape sequences of a recording are played, and those of a trajectory are shown as signs.
    let agent = demo.dir().join(&trial).join("agent");
    let step = json!({"source": "agent", "message": HOSTILE, "observation": {"results": [{"content": HOSTILE}]},
        "tool_calls": [{"arguments": {"keystrokes": HOSTILE}}], "timestamp": "2026-11-25T00:00:00Z"});
    let trajectory = json!({"agent": {"name": "terminal"}, "steps": [step]}).to_string();
    let shown = HOSTILE.replace('\u{1b}', "\u{241b}");
    let output = HOSTILE.replace("\u{1b}[2J\u{202e}", "\u{1b}[1m");
    let cast = format!("{}\n{}\n", json!({"version": 2, "width": 300}), json!([0.1, "o", output]));
    // The emulator leaves out blanks at the end of a line.
    let played = HOSTILE.replace(" \u{1b}[2J\u{202e}", "");
    std::fs::write(agent.join("trajectory.json"), trajectory).unwrap();
    std::fs::remove_file(agent.join("recording.cast")).unwrap();
    let page = format!("/jobs/demo/trials/{trial}/screens");
    for (recording, expected) in [(None, shown), (Some(cast), played)] {
        recording.into_iter().for_each(|cast| std::fs::write(agent.join("recording.cast"), cast).unwrap());
        browser.open(&view.page(&page));
        assert_harmless(&browser, &page);
        assert_eq!(browser.text("document.querySelector('pre.terminal').textContent"), expected);
    }
}
