//! Trials of real parts: the terminal agent in Docker, Claude Code and a forked conversation, each on vLLM.

use rolltap_proxy::store::Archive;
use rolltap_rollout::row::RolloutRow;
use rolltap_testing::eventually;
use serde_json::json;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use super::browser::{Browser, ENTER, RIGHT};
use super::keyboard::assert_shown;
use super::loading::refusals;
use super::program::Server;
use crate::claude_code::claude_code;
use crate::conversation::{Conversation, Echo, Manner, Wire};
use crate::docker_job::PATTERN;
use crate::exact_prefix::scene::saying;
use crate::harness::{Stage, long_vllm, testbed, vllm};
use crate::program::{Job, both_outputs};

#[test]
#[ignore = "needs Chromium, vLLM and Docker: run ./scripts/test"]
fn the_pages_of_a_real_job_show_the_words_and_tokens_of_its_model() {
    let job = Job::new("viewed");
    let sampling = json!({
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

    browser.open(&view.page(&format!("{trial}/screens")));
    browser.until(
        "document.querySelector('#screens').dataset.total > 0 && !document.querySelector('#player').hidden",
    );
    let screen = browser.text("document.querySelector('#screens').textContent");
    assert!(screen.contains("echo 'Hello") && screen.contains("call "), "{screen}");
    assert_eq!(refusals(&browser), [""; 0]);
}

/// The proxy of a test works in the background while the browser is driven.
fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Returns the path of a trial's page. The job of a data directory has the name of that directory.
fn trial_page(stage: &Stage, row: &RolloutRow) -> String {
    let job = stage.data().file_name().unwrap().to_str().unwrap();
    format!("/jobs/{job}/trials/{}", row.trial_id)
}

/// Opens the page of a trial, and goes by keys alone to the second token of the last answer of a branch.
fn walk(browser: &Browser, view: &Server, stage: &Stage, row: &RolloutRow) {
    let trial = trial_page(stage, row);
    let branch = format!("{trial}/branches/{}", row.branch_index);
    browser.open(&view.page(&trial));
    let is_marked = format!("document.activeElement?.getAttribute('href') === '{branch}'");
    let rows = browser.value("document.querySelectorAll('table.list tbody tr').length").as_u64().unwrap();
    assert!((0..rows).any(|_| {
        browser.press("j", 1);
        browser.value(&is_marked) == true
    }));
    browser.press(ENTER, 1);
    browser.arrives_at(&branch);
    for span in &row.calls {
        browser.press("n", 1);
        browser.until(&format!("document.querySelector('#tokens i.at')?.id === 't{}'", span.start));
    }
    let last = row.calls.last().unwrap();
    let at = last.start as usize;
    assert_shown(browser, row, at);
    if last.end - last.start > 1 {
        browser.press(RIGHT, 1);
        assert_shown(browser, row, at + 1);
    }
}

#[test]
#[ignore = "needs Chromium, vLLM and Claude Code: run ./scripts/test"]
fn a_token_of_claude_code_is_reached_by_keys_alone() {
    let runtime = runtime();
    let (stage, rows) = runtime.block_on(async {
        let stage = Stage::before(long_vllm()).await;
        let trial = stage.open().await;
        let home = TempDir::new().unwrap();
        let options = ["--model", "long", "--max-turns", "3"];
        claude_code(&stage, &trial, home.path(), "Say something.", "64", &options).await;
        let rows = stage.rollout(&trial).await;
        (stage, rows)
    });
    assert!(!rows.is_empty());
    let view = Server::view(stage.data());
    let browser = Browser::start();
    // The prompts of Claude Code are longer than the first window of tokens, so the walk loads others.
    for row in &rows {
        walk(&browser, &view, &stage, row);
    }
    assert_eq!(refusals(&browser), [""; 0]);
}

#[test]
#[ignore = "needs Chromium and vLLM: run ./scripts/test"]
fn a_token_of_each_branch_of_a_forked_trial_is_reached_by_keys_alone() {
    let runtime = runtime();
    let (stage, rows) = runtime.block_on(async {
        let stage = Stage::with_tokenizer(vllm(), testbed("ROLLTAP_TESTBED_MODEL")).await;
        let trial = stage.open().await;
        let manner = Manner { wire: Wire::Chat, stream: false, echo: Echo::Whole, tools: false };
        let mut one = Conversation::new(&stage, &trial, "tiny", manner, "Today is the 21st.");
        let asked = saying("[a-z]{4} [a-z]{4}");
        one.add_user_message("Speak.");
        one.ask(&asked).await;
        let mut other = one.clone();
        one.add_user_message("This way.");
        one.ask(&asked).await;
        other.add_user_message("That way.");
        other.ask(&asked).await;
        let rows = stage.rollout(&trial).await;
        // The first spliced prompt is audited after its answer.
        let is_audited = async || {
            !Archive::open(stage.data()).unwrap().trial(&trial.trial_id).unwrap().0.notes().is_empty()
        };
        eventually("vLLM has rendered the first spliced prompt", is_audited).await;
        (stage, rows)
    });
    let causes: Vec<_> = rows.iter().map(|row| row.branch_cause.as_str()).collect();
    assert_eq!(causes, ["first_call", "fork"]);
    let view = Server::view(stage.data());
    let browser = Browser::start();
    for row in &rows {
        walk(&browser, &view, &stage, row);
    }
    let trial = trial_page(&stage, &rows[0]);
    browser.open(&view.page(&format!("{trial}/branches/0")));
    let page = browser.text("document.querySelector('main').textContent");
    assert!(page.contains("audited: the server renders the same ids"), "{page}");
    assert!(
        browser.value("document.querySelectorAll('#tokens .spliced[data-audit=equal]').length") == 2,
        "{page}"
    );
    browser.open(&view.page(&trial));
    assert_eq!(browser.value("document.querySelectorAll('.tree circle').length"), 3);
    let drawn = browser.text("document.querySelector('.tree').textContent");
    assert!(drawn.contains("0: first_call") && drawn.contains("1: fork"), "{drawn}");
    assert_eq!(refusals(&browser), [""; 0]);
}
