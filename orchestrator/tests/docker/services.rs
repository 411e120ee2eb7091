//! Tasks of several containers, started by docker compose.

use std::fs;

use rolltap_orchestrator::environment::{EnvironmentError, TrialLabel};
use rolltap_orchestrator::task::Task;
use tempfile::TempDir;
use uuid::Uuid;

use crate::harness::{IMAGE, leftovers, output, remove_images_of, start, task_dir, with_host};
use crate::networks::{asked_model, model, reaches, with_server};

/// Fetches a page of a server with plain bash.
const ASK: &str =
    "for i in $(seq 50); do exec 3<>/dev/tcp/other/8000 && break; sleep 0.2; done 2>/dev/null; cat <&3";

/// Makes a task with a main service that is built, and another service that serves the text in its volume.
fn task(settings: &str) -> (TempDir, Task) {
    let server = "perl -MIO::Socket::INET -e '$$s=IO::Socket::INET->new(LocalPort=>8000,Listen=>5,ReuseAddr=>1) or die; \
                  while($$c=$$s->accept){print $$c `cat /data/text`; close $$c}'";
    let compose = serde_json::json!({
        "services": {
            "main": {
                "build": {"context": "${CONTEXT_DIR}"},
                "image": "${MAIN_IMAGE_NAME}",
                "depends_on": ["other"],
                "working_dir": "/work",
                "volumes": ["${HOST_VERIFIER_LOGS_PATH}:${ENV_VERIFIER_LOGS_PATH}"],
            },
            "other": {
                "image": IMAGE,
                "command": ["sh", "-c", format!("echo from $$WHO >/data/text; exec {server}")],
                "environment": {"WHO": "${NAME_OF_OTHER}"},
                "volumes": ["data:/data"],
                "stop_grace_period": "1h",
            },
        },
        "volumes": {"data": {}},
    });
    let settings = format!("[environment]\n{settings}[environment.env]\nNAME_OF_OTHER = \"the other\"\n");
    let dockerfile = format!("# {}\nFROM {IMAGE}\nRUN mkdir /work && date +%N >/stamp\n", Uuid::now_v7());
    let dir = task_dir(
        &settings,
        &[
            ("environment/Dockerfile", &dockerfile),
            // A JSON document is valid YAML.
            ("environment/docker-compose.yaml", &compose.to_string()),
        ],
    );
    let task = Task::load(dir.path()).unwrap();
    (dir, task)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker with compose: run scripts/test"]
async fn services_start_together_reach_each_other_and_go_together() {
    with_host(async |host, engine| {
        let (_dir, task) = task("memory_mb = 256\n");
        let (one, other) = tokio::join!(start(host, &task), start(host, &task));
        for environment in [&one, &other] {
            assert_eq!(output(environment, ASK).await, "from the other");
            assert_eq!(output(environment, "pwd; echo $NAME_OF_OTHER").await, "/work\nthe other");
        }
        let stamp = "cat /stamp";
        assert_eq!(output(&one, stamp).await, output(&other, stamp).await);
        output(&one, "echo 1 >/logs/verifier/reward.txt").await;
        let logs = tempfile::tempdir().unwrap();
        one.download("/logs/verifier", logs.path()).await.unwrap();
        assert_eq!(fs::read_to_string(logs.path().join("reward.txt")).unwrap(), "1\n");
        // Files of the other service are reachable too.
        let service = one.service("other").await.unwrap();
        assert_eq!(output(&service, "cat /data/text").await, "from the other");
        let missing = one.service("third").await.unwrap_err();
        assert!(matches!(missing, EnvironmentError::NoSuchService(name) if name == "third"));
        let id = output(&one, "cat /etc/hostname").await;
        let main = engine.inspect_container(&id, None).await.unwrap();
        let limits = main.host_config.unwrap();
        assert_eq!(
            (limits.memory, limits.pids_limit, limits.init),
            (Some(256 << 20), Some(4096), Some(true))
        );
        let labels = main.config.unwrap().labels.unwrap();
        let project = format!("dev.rolltap.project={}", labels["dev.rolltap.project"]);
        assert_eq!(leftovers(engine, &project).await, (2, 1, 0));
        one.stop().await.unwrap();
        assert_eq!(leftovers(engine, &project).await, (0, 0, 0));
        // The services of the other trial run until the job ends.
        assert_eq!(output(&other, ASK).await, "from the other");
        other.stop().await.unwrap();
        assert_eq!(remove_images_of(engine, &task).await, 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker with compose: run scripts/test"]
async fn services_without_network_reach_each_other_alone() {
    with_host(async |host, engine| {
        let (_dir, task) = task("network_mode = \"no-network\"\n");
        let environment = start(host, &task).await;
        assert_eq!(output(&environment, ASK).await, "from the other");
        let (port, serving) = model().await;
        assert!(asked_model(&environment, port).await.ends_with("from the model"));
        serving.abort();
        let (_server, elsewhere) = with_server(host).await;
        for environment in [&environment, &environment.service("other").await.unwrap()] {
            assert!(!reaches(environment, &elsewhere).await);
        }
        environment.stop().await.unwrap();
        remove_images_of(engine, &task).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker with compose: run scripts/test"]
async fn services_that_do_not_start_are_reported_and_leave_nothing() {
    with_host(async |host, engine| {
        let compose = |main: &str| format!("services:\n  main:\n    image: {IMAGE}\n{main}");
        let task = |file: &str, settings: &str| {
            let settings = format!("[task]\nname = \"org/several\"\n[environment]\n{settings}");
            let dir = task_dir(&settings, &[("environment/docker-compose.yaml", file)]);
            let task = Task::load(dir.path()).unwrap();
            (dir, task)
        };
        for (file, settings, expected) in [
            ("services:\n  web:\n    image: x\n", "", "cannot read the services of org/several"),
            (&compose("    nothing: 1\n"), "", "cannot read the services of org/several"),
            (
                &compose("  b:\n    image: x\n    network_mode: host\n"),
                "network_mode = \"no-network\"\n",
                "cannot use the services of org/several: the task restricts the network, and service b has network_mode",
            ),
        ] {
            let (_dir, task) = task(file, settings);
            let error = host.prepare(&task).await.unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        let ends = "  other:\n    image: rolltap-testbed/hello:1\n    command: [sh, -c, \"echo no good; exit 3\"]\n";
        let (_dir, task) = task(&compose(ends), "");
        let prepared = host.prepare(&task).await.unwrap();
        let trial = format!("trial-{}", Uuid::now_v7());
        let error = host.start(&prepared, &task, &TrialLabel::new(&trial)).await.unwrap_err().to_string();
        assert!(error.starts_with("cannot start the services of org/several: docker compose failed"), "{error}");
        assert!(error.contains("exited (3)"), "{error}");
        assert_eq!(leftovers(engine, &format!("dev.rolltap.trial={trial}")).await, (0, 0, 0));
    })
    .await;
}
