//! The pictures of docs/tutorials/read-a-run.md, which `ROLLTAP_UPDATE_DOCS=1` writes anew.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::json;

use super::browser::{Browser, RIGHT};
use super::program::{Demo, Server};
use super::recompute::report_of;
use crate::harness::testbed;

/// Reads a PNG as base64, and writes it with few colours, as a file of a third of its size. Fails if it is still large.
const SHRINK: &str = "\
import base64, io, os, sys
from PIL import Image
image = Image.open(io.BytesIO(base64.b64decode(sys.stdin.read()))).convert('RGB')
image.quantize(48, dither=Image.Dither.NONE).save(sys.argv[1], optimize=True)
sys.exit(os.path.getsize(sys.argv[1]) > 60_000)
";

/// Takes a picture of the upper part of the window, 1280 pixels wide. Writes it only with `ROLLTAP_UPDATE_DOCS=1`.
fn picture(browser: &Browser, name: &str, height: u32) {
    let clip = json!({"x": 0, "y": browser.value("scrollY"), "width": 1280, "height": height, "scale": 1});
    let taken = browser.devtools("Page.captureScreenshot", json!({"format": "png", "clip": clip}));
    let png = taken["data"].as_str().unwrap();
    assert!(png.len() > 5_000, "{name}");
    if std::env::var_os("ROLLTAP_UPDATE_DOCS").is_none_or(|value| value != "1") {
        return;
    }
    let file = format!("{}/docs/images/view-{name}.png", env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(testbed("ROLLTAP_TESTBED_PYTHON"));
    let mut shrink = command.args(["-c", SHRINK, &file]).stdin(Stdio::piped()).spawn().unwrap();
    shrink.stdin.take().unwrap().write_all(png.as_bytes()).unwrap();
    assert!(shrink.wait().unwrap().success(), "{file} cannot be written, or is larger than 60 kB");
}

#[test]
#[ignore = "needs Chromium: run ./scripts/test"]
fn the_tutorial_has_a_picture_of_each_page() {
    let demo = Demo::run();
    let view = Server::view(demo.jobs());
    let browser = Browser::start();
    browser.resize(1280, 900);
    let rows = demo.rows();
    // A sample of this task that failed: the tutorial looks for the reason.
    let failed = |task: &str| rows.iter().find(|row| row.task_id.ends_with(task) && row.reward == Some(0.0));
    let row = failed("hello-file").unwrap();
    let group = row.group_id.as_ref().unwrap().replace('/', "%2F");
    let trial = format!("/jobs/demo/trials/{}", row.trial_id);
    let pages = [
        ("jobs", "/".to_owned(), 150),
        ("job", "/jobs/demo".to_owned(), 860),
        ("group", format!("/jobs/demo/groups/{group}"), 260),
        ("trial", trial.clone(), 760),
    ];
    for (name, page, height) in pages {
        browser.open(&view.page(&page));
        // The demo of a test is in a temporary directory.
        browser.value(
            "document.querySelectorAll('.path').forEach((path) => { path.textContent = 'jobs/demo'; })",
        );
        picture(&browser, name, height);
    }
    browser.open(&view.page(&format!("{trial}/screens")));
    browser.press("n", 2);
    browser.until("!document.querySelectorAll('.screen')[2].hidden");
    picture(&browser, "screens", 480);
    browser.open(&view.page(&format!("{trial}/branches/0")));
    // The details of a token are at the bottom of the window.
    browser.resize(1280, 500);
    let still = json!([{"name": "prefers-reduced-motion", "value": "reduce"}]);
    browser.devtools("Emulation.setEmulatedMedia", json!({"features": still}));
    browser.press("n", 1);
    browser.press(RIGHT, 8);
    let at = row.calls[0].start + 8;
    browser.until(&format!("document.querySelector('#tokens i.at')?.id === 't{at}'"));
    browser.value("document.querySelector('#tokens i.at').scrollIntoView({block: 'center'})");
    picture(&browser, "branch", 500);

    browser.open(&view.page(&format!("{trial}/records/trl")));
    browser.value("document.querySelector('s').scrollIntoView({block: 'center'})");
    picture(&browser, "record", 500);

    let position = row.loss_mask.iter().position(|bit| *bit == 1).unwrap();
    let report = report_of(row, position, 2.0);
    std::fs::write(demo.dir().join("recompute.jsonl"), format!("{report}\n")).unwrap();
    browser.open(&view.page(&format!("{trial}/branches/0")));
    browser.press("c", 5);
    browser.value("[...document.querySelectorAll('h2')].find(({textContent}) => textContent === 'Recompute').scrollIntoView()");
    picture(&browser, "recompute", 500);
}
