//! A job of real parts: vLLM, the terminal agent in Docker, and the texts of the model's own tokenizer.

use super::browser::Browser;
use super::loading::refusals;
use super::program::Server;
use crate::docker_job::PATTERN;
use crate::harness::{testbed, vllm};
use crate::program::{Job, both_outputs};

#[test]
#[ignore = "needs Chromium, vLLM and Docker: run ./scripts/test"]
fn the_pages_of_a_real_job_show_the_words_and_tokens_of_its_model() {
    let job = Job::new("viewed");
    let sampling = serde_json::json!({
        "structured_outputs": {"regex": PATTERN}, "chat_template_kwargs": {"enable_thinking": false},
        "max_tokens": 200, "temperature": 1,
    });
    let (task, upstream) =
        (concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tasks/hello-prebuilt"), format!("{}/v1", vllm()));
    let sampling = sampling.to_string();
    let arguments = ["-p", task, "-a", "terminal", "-e", "docker", "-k", "2", "--upstream", &upstream];
    let output = job.command(&[&arguments[..], &["--sampling", &sampling]].concat()).output().unwrap();
    assert!(output.status.success(), "{}", both_outputs(&output));

    let dir = job.dir();
    let tokenizer = testbed("ROLLTAP_TESTBED_MODEL");
    let view = Server::start(&["view", "--tokenizer", &tokenizer, dir.to_str().unwrap()], 1);
    let browser = Browser::start();
    let rows = job.rows();
    let row = &rows[0];
    let trial = format!("/jobs/{}/trials/{}", job.name, row.trial_id);
    browser.open(&view.page(&trial));
    let bars = browser.value("document.querySelectorAll('.timeline .complete').length");
    assert_eq!(bars, row.calls.len());
    let page = browser.text("document.querySelector('main').textContent");
    assert!(page.contains("keystrokes") && page.contains("verifier/"), "{page}");

    browser.open(&view.page(&format!("{trial}/branches/0")));
    browser.press("n", 1);
    let start = row.calls[0].start as usize;
    browser.until(&format!("document.querySelector('#tokens i.at')?.id === 't{start}'"));
    let ids =
        browser.value("[...document.querySelectorAll('#tokens i')].map((token) => Number(token.dataset.i))");
    let shown: Vec<i32> = serde_json::from_value(ids).unwrap();
    assert_eq!(shown, row.token_ids[..shown.len()]);
    let text = browser.text("document.querySelector('#tokens').textContent");
    assert!(text.contains(r#"{"analysis": ""#), "{text}");
    assert_eq!(refusals(&browser), [""; 0]);
}
