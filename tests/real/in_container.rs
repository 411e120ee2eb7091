//! An agent inside a container reaches its model, and nothing else of rolltap.

use std::process::Command;

use rolltap_rollout::call::CallStatus;

use crate::harness::vllm;
use crate::program::{Job, check, text};

/// The agent is plain bash, because the image has no HTTP client. It calls the model at its base URL, and then tries
/// the admin plane's paths there, with its key.
const AGENT: &str = r#"
set -eu
url=${OPENAI_BASE_URL#http://}
host=${url%%:*} rest=${url#*:}
port=${rest%%/*} path=/${rest#*/}
ask() { # METHOD PATH BODY
  exec 3<>"/dev/tcp/$host/$port"
  printf '%s %s HTTP/1.1\r\nhost: %s\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: %s\r\n\r\n%s' \
    "$1" "$2" "$host" "${#3}" "$3" >&3
  cat <&3
  exec 3<&-
}
ask POST "$path/chat/completions" '{"model": "tiny", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}' > answer
grep -q '^HTTP/1.1 200' answer
ask GET "$path/trials" '' > /logs/agent/admin
ask POST "$path/trials/some/seal" '' >> /logs/agent/admin
echo 'Hello, world!' > /app/hello.txt
"#;

#[test]
#[ignore = "needs vLLM and Docker: run ./scripts/test"]
fn a_command_in_a_container_calls_its_model_and_cannot_reach_the_admin_plane() {
    let job = Job::new("in-container");
    let task = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tasks/hello-prebuilt");
    let arguments = [
        "-p",
        task,
        "-a",
        "command",
        "--agent-command",
        AGENT,
        "-e",
        "docker",
        "-k",
        "2",
        "--upstream",
        &vllm(),
    ];
    let output = job.command(&arguments).output().unwrap();
    let said = format!("{}\n{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}");

    let rows = job.rows();
    assert_eq!(rows.len(), 2, "{said}");
    assert!(rows.iter().all(|row| row.reward == Some(1.0) && row.loss_mask.contains(&1)));
    for trial in rolltap_proxy::store::read_dir(&job.dir().join("data")).unwrap().trials {
        let [call] = &trial.calls[..] else { panic!("one call: {said}") };
        assert_eq!((call.status, call.flaws.len()), (CallStatus::Complete, 0));
        let admin = job.dir().join(trial.facts().trial_id.as_str()).join("agent/admin");
        let answers = std::fs::read_to_string(admin).unwrap();
        assert_eq!(answers.matches("HTTP/1.1 404").count(), 2, "{answers}");
    }
    assert!(check(&job.dir()).status.success());
    assert_eq!(job.left_in_docker(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker: run ./scripts/test"]
async fn an_agent_without_network_calls_its_model() {
    let task = tempfile::tempdir().unwrap();
    let from = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tasks/hello-prebuilt");
    assert!(Command::new("cp").args(["-rT", from]).arg(task.path()).status().unwrap().success());
    let config = task.path().join("task.toml");
    let text_before = std::fs::read_to_string(&config).unwrap();
    assert!(text_before.contains("[agent]\n"));
    let isolated = text_before.replace("[agent]\n", "[agent]\nnetwork_mode = \"no-network\"\n");
    std::fs::write(&config, isolated).unwrap();
    let sim = rolltap_sim::start(rolltap_sim::Settings::default()).await.unwrap();
    let upstream = format!("http://{}", sim.addr());
    let job = Job::new("without-network");
    let agent = AGENT.replace("\"tiny\"", "\"'\"$OPENAI_MODEL\"'\"");
    let world = "! timeout 3 bash -c 'exec 3<>/dev/tcp/192.0.2.1/80' 2>/dev/null\n";
    let agent = format!("{agent}{world}");
    let arguments = ["-a", "command", "--agent-command", &agent, "-k", "2", "--upstream", &upstream, "-p"];
    let mut command = job.command(&arguments);
    command.arg(task.path());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let said = format!("{}\n{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}");
    let rows = job.rows();
    assert_eq!(rows.len(), 2, "{said}");
    assert!(rows.iter().all(|row| row.reward == Some(1.0) && row.loss_mask.contains(&1)), "{said}");
    assert_eq!(job.left_in_docker(), Vec::<String>::new());
}
