//! `rolltap check --recompute` with the wrong server or options. The right server is in the real tier.

use std::fs::File;
use std::path::Path;

use rolltap_rollout::export::formats::jsonl::JsonlWriter;

use super::program::{Ended, Running, run, unused_address};
use super::rollouts;

/// Writes the rows of a trial by model `trained`.
fn write_rows(dir: &Path) {
    let mut lines = JsonlWriter::new(File::create(dir.join("rollouts.jsonl")).unwrap());
    for mut row in rollouts::trial("trial-one", 0, Some(1.0), 1) {
        row.logprobs_mode = "raw_logprobs".to_owned();
        row.calls.iter_mut().for_each(|span| span.model = Some("trained".to_owned()));
        lines.write(&row).unwrap();
    }
    lines.finish().unwrap();
}

fn check(dir: &Path, options: &[&str]) -> Ended {
    run(dir, &[&["check", "rollouts.jsonl"], options].concat())
}

#[test]
fn a_server_that_is_not_fit_is_refused_with_the_option_that_helps() {
    let dir = tempfile::tempdir().unwrap();
    write_rows(dir.path());
    let mut sim = Running::start(dir.path(), &["sim", "--listen", "127.0.0.1:0"]);
    let url = sim.next_url();

    let ended = check(dir.path(), &["--recompute", &url]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
    let expected = format!(
        r#"error: {url} does not serve model "trained" of the rows but "sim": give --recompute-model "#
    );
    assert!(ended.stderr.starts_with(&expected), "{ended:?}");

    // The simulator has no completions of token ids.
    let ended = check(dir.path(), &["--recompute", &url, "--recompute-model", "sim"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.starts_with("error: trial trial-one, branch 0, "), "{ended:?}");
    assert!(
        ended.stderr.contains(&format!("caused by: POST {url}/v1/completions: answered 404: ")),
        "{ended:?}"
    );
    assert!(ended.stderr.ends_with("1 row checked, 0 breaches\n"), "{ended:?}");
}

#[test]
fn options_without_effect_and_an_absent_server_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    write_rows(dir.path());
    let url = unused_address();
    let refused: [(&[&str], &str); 7] = [
        (&["--recompute-bound", "0.5"], "--recompute <URL>"),
        (&["--recompute-any-version"], "--recompute <URL>"),
        (&["--recompute-rows", "5"], "--recompute <URL>"),
        (&["--recompute-report", "new.jsonl"], "--recompute <URL>"),
        (&["--recompute", &url, "--recompute-bound=-1"], "expected a number of nats, at least 0"),
        (
            &["--recompute", &url, "--recompute-version", "3", "--recompute-any-version"],
            "cannot be used with",
        ),
        (&["--recompute", &url], "/v1/models: no answer; is vLLM running at this address?"),
    ];
    for (options, why) in refused {
        let ended = check(dir.path(), options);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains(why), "{why}: {ended:?}");
    }
}
