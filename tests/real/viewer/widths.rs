//! Pages on narrow windows, and in both colour schemes.

use serde_json::json;

use super::browser::Browser;
use super::loading::pages;
use super::program::{Demo, Server};
use super::rows::{RowsFile, row};

/// Checks that no part of the page is to the right of the window, in both schemes.
fn assert_fits(browser: &Browser, page: &str, width: u32) {
    browser.resize(width, 844);
    let mut backgrounds = Vec::new();
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        assert_eq!(browser.value(&format!("matchMedia('(prefers-color-scheme: {scheme})').matches")), true);
        backgrounds.push(browser.text("getComputedStyle(document.body).backgroundColor"));
        let widths =
            browser.value("[document.documentElement.scrollWidth, document.documentElement.clientWidth]");
        let wide = browser.value(
            "[...document.querySelectorAll('body *')].filter((element) => \
             element.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5 && !element.closest('table.list, .scrolls, .visually-hidden')) \
             .map((element) => element.outerHTML.slice(0, 120))",
        );
        assert_eq!(widths[0], widths[1], "{page}, {scheme}: {wide:#}");
        assert_eq!(wide, json!([]), "{page}, {scheme}");
    }
    assert_ne!(backgrounds[0], backgrounds[1], "{page}");
}

#[test]
#[ignore = "needs Chromium: run ./scripts/test"]
fn every_page_fits_a_telephone_and_a_screen_in_light_and_dark() {
    let demo = Demo::run();
    let view = Server::view(demo.jobs());
    let browser = Browser::start();
    for page in pages(&demo) {
        browser.open(&view.page(&page));
        for width in [390, 1280] {
            assert_fits(&browser, &page, width);
        }
    }

    // Names of tasks, models and failures can be long, and without a place to break.
    let long = "a".repeat(200);
    let mut wide = row(&long, &long, 40);
    for name in ["failure_cause", "branch_cause", "model", "status", "stop_reason"] {
        wide[name] = long.clone().into();
    }
    wide["suspicious"] = json!([long]);
    wide["rewards"] = json!({&long: 1.0});
    wide["calls"][0]["call_id"] = long.clone().into();
    wide["calls"][0]["role"] = long.clone().into();
    let rows = RowsFile::of(&[wide]);
    let view = Server::view(&rows.path());
    let trial = format!("/jobs/rows.jsonl/trials/{long}");
    for page in [
        "/jobs/rows.jsonl",
        &format!("/jobs/rows.jsonl?q={long}"),
        &format!("/jobs/rows.jsonl/groups/{long}"),
        &trial,
        &format!("{trial}/branches/0#t3"),
        &format!("{trial}/records/jsonl"),
        &format!("{trial}/records/verl"),
        &format!("/jobs/{long}"),
    ] {
        browser.open(&view.page(page));
        assert_fits(&browser, page, 390);
    }
}
