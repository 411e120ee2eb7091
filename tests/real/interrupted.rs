//! Ctrl-C in the middle of trials leaves nothing behind.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rolltap_testing::limit;

use crate::harness::vllm;
use crate::program::{Job, text};

#[test]
#[ignore = "needs vLLM and Docker: run ./scripts/test"]
fn an_interrupted_job_removes_its_containers_and_writes_what_it_has() {
    let job = Job::new("interrupted");
    let manifest = env!("CARGO_MANIFEST_DIR");
    let mut command = job.command(&[
        "-p",
        &format!("{manifest}/tests/tasks/hello-prebuilt"),
        "-a",
        "command",
        "--agent-command",
        "echo begun > /logs/agent/begun; sleep 600",
        "-e",
        "docker",
        "-k",
        "3",
        "-n",
        "2",
        "--upstream",
        &vllm(),
    ]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + limit(60);
    while running(&job).len() < 2 {
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none() && Instant::now() < deadline, "no two containers; the job ended: {ended:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let said = format!("{}\n{}", text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(job.left_in_docker(), Vec::<String>::new(), "{said}");
    let result: serde_json::Value =
        serde_json::from_slice(&std::fs::read(job.dir().join("result.json")).unwrap()).unwrap();
    assert!(result.is_object(), "{said}");
}

fn running(job: &Job) -> Vec<String> {
    let label = format!("label=dev.rolltap.job={}", job.name);
    let output = Command::new("docker").args(["ps", "-q", "--filter", &label]).output().unwrap();
    text(&output.stdout).lines().map(str::to_owned).collect()
}
