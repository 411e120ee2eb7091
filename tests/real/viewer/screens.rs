//! The player of a terminal's screens.

use rolltap_testing::write_jsonl;
use serde_json::json;
use tempfile::TempDir;

use super::browser::{Browser, ENTER, LEFT, RIGHT};
use super::loading::refusals;
use super::program::{Demo, Server};
use super::rows::row;
use crate::program::{both_outputs, rolltap};

/// The title of each screen that is shown.
const SHOWN: &str = "[...document.querySelectorAll('.screen')].filter((screen) => screen.checkVisibility()) \
    .map((screen) => screen.querySelector('h2').textContent.split(',')[0]).join()";

/// Waits until one screen is shown, and it is this one.
fn assert_shown(browser: &Browser, number: usize, all: usize) {
    browser.until(&format!("{SHOWN} === 'Screen {number} of {all}'"));
}

fn choose_speed(browser: &Browser, speed: &str) {
    browser.value(&format!(
        "(() => {{ const speeds = document.querySelector('#speed'); speeds.value = '{speed}'; \
         speeds.dispatchEvent(new Event('change')); return speeds.value; }})()"
    ));
}

#[test]
#[ignore = "needs Chromium: run ./scripts/test"]
fn the_screens_of_the_demo_are_played_by_keys() {
    let demo = Demo::run();
    let rows = demo.rows();
    let row = rows.iter().find(|row| row.task_id.ends_with("hello-file")).unwrap();
    let view = Server::view(demo.jobs());
    let browser = Browser::start();
    let trial = format!("/jobs/demo/trials/{}", row.trial_id);
    browser.open(&view.page(&trial));
    browser.value("document.querySelector('a[href$=\"/screens\"]').focus()");
    browser.press(ENTER, 1);
    browser.arrives_at(&format!("{trial}/screens"));
    let all = browser.text("document.querySelector('#screens').dataset.total").parse().unwrap();
    assert!(all > row.calls.len(), "the recording has a screen before the first step, and one per step");
    assert_shown(&browser, 1, all);
    let typed = "[...document.querySelectorAll('.screen')].find((screen) => screen.querySelector('.keys')).textContent";
    let typed = browser.text(typed);
    assert!(typed.contains("echo 'Hello") && typed.contains("Analysis: ") && typed.contains('⏎'), "{typed}");

    for (key, number) in [("n", 2), (RIGHT, 3), ("p", 2), (LEFT, 1), ("p", 1)] {
        browser.press(key, 1);
        assert_shown(&browser, number, all);
    }
    let speeds =
        browser.value("[...document.querySelectorAll('#speed option')].map((speed) => Number(speed.value))");
    assert_eq!(speeds, json!([0.5, 1, 2, 4, 8, 16, 32]));
    choose_speed(&browser, "32");
    browser.press(" ", 1);
    assert_shown(&browser, all, all);
    browser.until("document.querySelector('#play').textContent.startsWith('Play')");

    // The slider takes the arrows while it has the focus.
    browser.value("document.querySelector('#screen-slider').focus()");
    browser.press(LEFT, 1);
    assert_shown(&browser, all - 1, all);

    // The last screens are of the last two calls, which confirm that the task is complete.
    let call = &row.calls[row.calls.len() - 2];
    browser.value("[...document.querySelectorAll('.screen')].find((screen) => !screen.hidden).querySelector('.step a').click()");
    browser.until("document.querySelector('#tokens i.at')?.id === location.hash.slice(1)");
    assert_eq!(browser.text("location.hash"), format!("#t{}", call.start));
    assert_eq!(refusals(&browser), [""; 0]);

    let bundle = demo.jobs().join("bundle");
    let ended = rolltap(&["view", demo.dir().to_str().unwrap(), "--bundle", bundle.to_str().unwrap()]);
    assert!(ended.status.success(), "{}", both_outputs(&ended));
    let name = format!("{}-", row.trial_id);
    let trials = bundle.join("jobs").read_dir().unwrap().next().unwrap().unwrap().path().join("trials");
    let dir = trials.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let dir =
        dir.into_iter().find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(&name)).unwrap();
    browser.open(&format!("file://{}/screens/index.html", dir.display()));
    assert_shown(&browser, 1, all);
    browser.press("n", 1);
    assert_shown(&browser, 2, all);
}

#[test]
#[ignore = "needs Chromium: run ./scripts/test"]
fn a_recording_is_played_in_time_and_loaded_in_windows() {
    const SCREENS: usize = 100;
    let dir = TempDir::new().unwrap();
    let job = dir.path().join("job");
    let agent = job.join("one/agent");
    std::fs::create_dir_all(&agent).unwrap();
    std::fs::write(job.join("config.json"), "{}").unwrap();
    write_jsonl(&job.join("rollouts.jsonl"), &[row("one", "task", 3)]);
    // Each screen is full, so that a window has some of them only.
    let mut lines = vec![json!({"version": 2, "width": 160, "height": 40})];
    // The third screen stays for five hours, so the player cannot leave it during the test.
    let seconds = |screen| 10 * screen + if screen > 3 { 17_990 } else { 0 };
    lines.extend((1..=SCREENS).map(|screen| {
        json!([seconds(screen), "o", format!("\u{1b}[2J\u{1b}[H{screen} {}", "x".repeat(6_000))])
    }));
    write_jsonl(&agent.join("recording.cast"), &lines);
    let view = Server::view(&job);
    let browser = Browser::start();
    browser.open(&view.page("/jobs/job/trials/one/screens"));
    assert_shown(&browser, 1, SCREENS);
    let loaded = browser.value("document.querySelectorAll('.screen').length").as_u64().unwrap();
    assert!((2..SCREENS as u64).contains(&loaded), "{loaded} screens are loaded");

    choose_speed(&browser, "32");
    browser.press(" ", 1);
    assert_shown(&browser, 3, SCREENS);
    let waits = |milliseconds: u32| {
        browser.until(&format!("document.querySelector('#player').dataset.delay === '{milliseconds}'"));
    };
    waits(18_000_000 / 32);
    choose_speed(&browser, "0.5");
    waits(18_000_000 * 2);
    browser.press(" ", 1);
    browser.until("document.querySelector('#player').dataset.delay === undefined");
    assert_eq!(browser.text("document.querySelector('#play').textContent"), "Play (space)");
    assert_shown(&browser, 3, SCREENS);

    // The slider leads to the last screen, over all windows between.
    browser.value(&format!(
        "(() => {{ const slider = document.querySelector('#screen-slider'); slider.value = '{}'; \
         slider.dispatchEvent(new Event('input')); return slider.value; }})()",
        SCREENS - 1
    ));
    assert_shown(&browser, SCREENS, SCREENS);
    assert!(
        browser.text("document.querySelector('.screen:not([hidden]) pre').textContent").starts_with("100 x")
    );
    assert_eq!(refusals(&browser), [""; 0]);
}
