//! Tasks from their solution to their reward.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rolltap_orchestrator::environment::LogDirs;
use rolltap_orchestrator::task::Task;
use rolltap_orchestrator::verify::verify;

use crate::harness::{IMAGE, output, processes, start, task_dir, with_host};

fn log_dirs(dir: &Path) -> LogDirs {
    LogDirs { agent: dir.join("agent"), verifier: dir.join("verifier"), artifacts: dir.join("artifacts") }
}

#[tokio::test]
#[ignore = "needs Docker: run scripts/test"]
async fn bundled_tasks_are_solved_by_their_solutions_and_not_without() {
    with_host(async |host, _| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for name in ["examples/tasks/hello-file", "examples/tasks/count-errors", "tests/tasks/hello-prebuilt"]
        {
            let task = Task::load(&root.join(name)).unwrap();
            let environment = start(host, &task).await;
            assert_eq!(environment.instruction(&task.instruction), task.instruction);
            let logs = tempfile::tempdir().unwrap();
            assert_eq!(
                verify(&task, &environment, &log_dirs(logs.path()), None).await.unwrap().reward,
                Some(0.0),
                "{name} before"
            );
            environment.upload(&task.solution_dir(), "/solution").await.unwrap();
            output(&environment, "/solution/solve.sh").await;
            assert_eq!(
                verify(&task, &environment, &log_dirs(logs.path()), None).await.unwrap().reward,
                Some(1.0),
                "{name} after"
            );
            assert!(logs.path().join("verifier/test-stdout.txt").is_file());
            environment.stop().await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
#[ignore = "needs Docker: run scripts/test"]
async fn tests_run_as_their_user_and_out_of_time_in_time() {
    with_host(async |host, _| {
        let script =
            "#!/bin/bash\nid -u >/logs/verifier/who; echo 1 >/logs/verifier/reward.txt; sleep 7901\n";
        let toml =
            format!("[environment]\ndocker_image = \"{IMAGE}\"\n[verifier]\ntimeout_sec = 5\nuser = 1000\n");
        let dir = task_dir(&toml, &[]);
        fs::write(dir.path().join("tests/test.sh"), script).unwrap();
        let task = Task::load(dir.path()).unwrap();
        let environment = start(host, &task).await;
        output(&environment, "echo 0.5 >/logs/verifier/reward.json").await;
        let logs = tempfile::tempdir().unwrap();
        let limit = Some(Duration::from_secs(5));
        let error = verify(&task, &environment, &log_dirs(logs.path()), limit).await.unwrap_err();
        assert_eq!(error.failure_cause(), "VerifierTimeoutError");
        assert_eq!(fs::read_to_string(logs.path().join("verifier").join("who")).unwrap(), "1000\n");
        assert!(!logs.path().join("verifier").join("reward.json").exists());
        assert!(!processes(&environment).await.contains("sleep 7901"));
    })
    .await;
}
