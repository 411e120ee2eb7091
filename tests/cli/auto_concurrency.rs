//! `rolltap run -n auto`: trials open where their conversations fit into the KV cache of the upstream.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::program::{Ended, Running, json, run};

/// A conversation of four turns. Each adds 300 digits, which no other trial has. The answers are from the script.
const CONVERSES: &str = r#"url=${OPENAI_BASE_URL#http://}; host=${url%%/*}
digits() { for _ in {1..60}; do printf %05d $RANDOM; done; }
said='{"role": "user", "content": "'$ROLLTAP_INSTRUCTION'"}'
for turn in 1 2 3 4; do
  body='{"model": "sim", "max_tokens": 8, "messages": ['$said']}'
  exec 3<>"/dev/tcp/${host%:*}/${host#*:}"
  printf 'POST /%s/chat/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n' "${url#*/}" "$host" >&3
  printf 'Content-Length: %s\r\nConnection: close\r\n\r\n%s' "${#body}" "$body" >&3
  read -r _ status _ <&3; cat <&3 >/dev/null
  [ "$status" = 200 ] || exit 1
  said+=', {"role": "assistant", "content": "Next."}, {"role": "user", "content": "'$(digits)'"}'
  sleep 0.1
done"#;
/// The answer to each turn.
const SCRIPT: &str =
    "[[conversation]]\n[[conversation.turn]]\n[[conversation.turn.answer]]\ncontent = \"Next.\"\n";
/// Counts the running agents in the file `counts`, and waits until four have started.
const COUNTS: &str = "touch started/$$ running/$$; ls running | wc -l >> counts
    until [ $(ls started | wc -l) -ge 4 ]; do sleep 0.05; done
    sleep 0.2; ls running | wc -l >> counts; rm running/$$";

/// Makes a task whose instruction has 300 digits of its own.
fn task(dir: &Path, number: u32) {
    let mut state = number;
    let digits = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from_digit(state >> 24 & 7, 10).unwrap()
    });
    let instruction: String = digits.take(300).collect();
    for (file, text) in [
        ("instruction.md", instruction.as_str()),
        ("task.toml", "[environment]\ndocker_image = \"unused\"\n"),
        ("tests/test.sh", "#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n"),
    ] {
        let path = dir.join(format!("tasks/long-{number}/{file}"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

/// Runs the job `it` with this agent. Returns its result, and the simulator with its URL.
fn job(dir: &Path, sim: &[&str], command: &str, more: &[&str]) -> (Ended, Value, Running, String) {
    fs::write(dir.join("script.toml"), SCRIPT).unwrap();
    let mut sim =
        Running::start(dir, &[&["sim", "--listen", "127.0.0.1:0", "--script", "script.toml"], sim].concat());
    let url = sim.next_url();
    let command = format!("cd '{}'; {command}", dir.display());
    let job = ["run", "-p", "tasks", "-e", "local", "--job-name", "it", "--no-preflight", "--upstream", &url];
    let ended = run(dir, &[&job[..], &["-a", "command", "--agent-command", &command], more].concat());
    let result = json(&dir.join("jobs/it/result.json"));
    (ended, result, sim, url)
}

#[tokio::test]
async fn conversations_stay_in_a_small_cache_until_they_end() {
    let dir = tempfile::tempdir().unwrap();
    (0..16).for_each(|number| task(dir.path(), number));
    // The cache has 6,400 tokens, and a conversation grows to about 1,250.
    let (ended, result, _sim, url) = job(dir.path(), &["--kv-blocks", "401"], CONVERSES, &["-n", "auto:12"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(result["stats"]["n_completed_trials"], 16, "{result}");
    assert_eq!(result["stats"]["n_errored_trials"], 0, "{result}");
    let metrics = rolltap_testing::get(format!("{url}/metrics")).await.unwrap().text().await.unwrap();
    let count = |name: &str| -> f64 {
        let line = metrics.lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    let (hits, queries) = (count("vllm:prefix_cache_hits_total"), count("vllm:prefix_cache_queries_total"));
    // Of 300 + 600 + 900 + 1,200 prompt tokens, 1,800 can be hits. With 12 trials at once, a fifth of all tokens are hits.
    assert!(hits / queries > 0.45, "{hits} hits of {queries} tokens");
}

#[test]
fn without_metrics_of_the_cache_four_trials_run_and_one_warning_tells_it() {
    let dir = tempfile::tempdir().unwrap();
    (0..8).for_each(|number| task(dir.path(), number));
    for name in ["started", "running"] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    let (ended, result, ..) = job(dir.path(), &[], COUNTS, &["-n", "auto:8"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(result["stats"]["n_completed_trials"], 8, "{result}");
    let counts = fs::read_to_string(dir.path().join("counts")).unwrap();
    let largest = counts.lines().map(|line| line.trim().parse::<u32>().unwrap()).max();
    assert_eq!(largest, Some(4), "{counts}");
    let warning = "does not describe its KV cache, so at most 4 trials are open there";
    assert_eq!(ended.stderr.matches(warning).count(), 1, "{}", ended.stderr);
}
