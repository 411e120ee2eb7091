//! `rolltap sim` and `rolltap proxy` with the configurations of `configs/`.

use std::path::Path;

use rolltap_testing::limit;
use serde_json::{Value, json};

use super::program::{Running, repository, rolltap, run, unused_address};

/// Starts the simulator with its example script, and the proxy with its example configuration in front of it. Ports and
/// paths are the test's own.
pub(crate) fn start(dir: &Path) -> (Running, Running, String, String) {
    let script = repository("configs/sim-script.toml");
    let mut sim = Running::start(dir, &["sim", "--listen", "127.0.0.1:0", "--script", &script]);
    let upstream = sim.next_url();
    let config = repository("configs/proxy.toml");
    let args =
        ["proxy", "--config", &config, "--upstream", &format!("{upstream}/v1"), "--listen", "127.0.0.1:0"];
    let mut proxy = Running::start(dir, &[&args[..], &["--admin", "127.0.0.1:0", "--data", "data"]].concat());
    let (agents, admin) = (proxy.next_url(), proxy.next_url());
    (sim, proxy, agents, admin)
}

pub(crate) async fn post(url: &str, body: Value) -> Value {
    let answer = rolltap_testing::http_client().post(url).json(&body).send().await.unwrap();
    assert!(answer.status().is_success(), "{url}: {}", answer.text().await.unwrap());
    answer.json().await.unwrap()
}

#[tokio::test]
async fn a_call_goes_through_the_configured_proxy_and_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let (sim, proxy, agents, admin) = start(dir.path());
    let trial = post(&format!("{admin}/v1/trials"), json!({"task_id": "weather", "trial_id": "one"})).await;
    let base_url = trial["base_urls"]["openai"].as_str().unwrap();
    assert!(base_url.starts_with(&agents), "{base_url}");

    let answer = post(&format!("{base_url}/chat/completions"), weather()).await;
    assert_eq!(answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "get_weather");
    assert!(
        answer["choices"][0].get("token_ids").is_none_or(Value::is_null),
        "not asked for, not seen: {answer}"
    );

    let status = post(&format!("{admin}/v1/trials/one/seal"), json!({})).await;
    assert_eq!(status["calls"]["complete"], 1, "{status}");
    proxy.signal("TERM");
    assert_eq!(proxy.wait(limit(10)).0, Some(0));
    sim.signal("INT");
    assert_eq!(sim.wait(limit(10)).0, Some(0));

    let ended = run(dir.path(), &["check", "data"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.starts_with("1 row checked, 0 breaches"), "{ended:?}");
}

fn weather() -> Value {
    json!({
        "model": "sim",
        "messages": [{"role": "user", "content": "weather in Paris?"}],
        "tools": [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}],
    })
}

#[tokio::test]
async fn every_conversation_of_the_example_script_speaks() {
    let dir = tempfile::tempdir().unwrap();
    let (_sim, _proxy, _, admin) = start(dir.path());
    let trial = post(&format!("{admin}/v1/trials"), json!({"task_id": "any"})).await;
    let url = format!("{}/chat/completions", trial["base_urls"]["openai"].as_str().unwrap());
    let ask = |text: &str| json!({"model": "sim", "messages": [{"role": "user", "content": text}]});

    let hello = post(&url, ask("write hello.txt")).await;
    let said = hello["choices"][0]["message"]["content"].as_str().unwrap();
    serde_json::from_str::<Value>(said).expect("the terminal agent's form");

    let trouble = rolltap_testing::http_client().post(&url).json(&ask("trouble")).send().await.unwrap();
    assert_eq!(trouble.status(), 503);
}

#[test]
fn a_flag_wins_over_the_environment_and_that_over_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let config = "upstream = [\"http://127.0.0.1:9\"]\nlisten = [\"127.0.0.5:0\"]\nadmin = \"127.0.0.5:0\"\n";
    std::fs::write(dir.path().join("proxy.toml"), config).unwrap();
    let start = |variables: &[(&str, &str)], flags: &[&str]| {
        let mut command = rolltap(dir.path(), &[&["proxy", "--config", "proxy.toml"], flags].concat());
        let mut proxy = Running::spawn(command.envs(variables.iter().copied()));
        proxy.next_url()
    };
    assert!(start(&[], &[]).starts_with("http://127.0.0.5:"));
    let variables = [("ROLLTAP_LISTEN", "127.0.0.6:0")];
    assert!(start(&variables, &[]).starts_with("http://127.0.0.6:"));
    assert!(start(&variables, &["--listen", "127.0.0.7:0"]).starts_with("http://127.0.0.7:"));
}

#[test]
fn a_proxy_stops_at_the_end_of_its_input_if_asked_to() {
    let dir = tempfile::tempdir().unwrap();
    let upstream = unused_address();
    let args = ["proxy", "--until-stdin-ends", "--upstream", &upstream, "--data", "data"];
    let mut command =
        rolltap(dir.path(), &[&args[..], &["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]].concat());
    let (input, held) = std::io::pipe().unwrap();
    let mut proxy = Running::spawn(command.stdin(input));
    let (_, admin) = (proxy.next_url(), proxy.next_url());
    let address = admin.trim_start_matches("http://");
    assert!(std::net::TcpStream::connect(address).is_ok(), "the input is open");
    drop(held);
    // The proxies of the other tests have an empty input, and do not stop without the option.
    assert_eq!(proxy.wait(limit(10)).0, Some(0));
}

#[test]
fn an_external_proxy_serves_a_job() {
    let dir = tempfile::tempdir().unwrap();
    let (_sim, _proxy, _, admin) = start(dir.path());
    let task = repository("examples/tasks/hello-file");
    let args = ["run", "-p", &task, "-a", "terminal", "-m", "sim", "-e", "local", "--proxy", &admin];
    let ended = run(dir.path(), &[&args[..], &["-k", "2", "--job-name", "outside"]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let job = dir.path().join("jobs/outside");
    assert!(!job.join("data").exists(), "the captures are the other proxy's");
    let rows = std::fs::read_to_string(job.join("rollouts.jsonl")).unwrap();
    assert_eq!(rows.lines().count(), 2);
    let ended = run(dir.path(), &["check", "jobs/outside"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
}
