//! Neither live nor dead runs leave containers, networks or images behind.

use std::time::{Duration, Instant};

use bollard::Docker;
use bollard::models::NetworkCreateRequest;
use bollard::query_parameters::{InspectContainerOptions, ListContainersOptions};
use rolltap_orchestrator::environment::{EnvironmentKind, Host, JobLabel};
use rolltap_testing::limit;
use uuid::Uuid;

use crate::harness::{leftovers, output, prebuilt, run, start, with_host};

/// Waits until nothing has this label. A neighbouring test's sweep may have begun to remove an object that the test's
/// own sweep then misses, and the engine lists a network until it is removed.
async fn until_swept(engine: &Docker, label: &str) {
    let end = Instant::now() + limit(30);
    while leftovers(engine, label).await != (0, 0, 0) {
        assert!(Instant::now() < end, "{label} is still there");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
#[ignore = "needs Docker: run scripts/test"]
async fn what_a_dead_run_left_is_swept_and_what_a_living_one_has_is_not() {
    with_host(async |host, engine| {
        let environment = start(host, &prebuilt("")).await;
        let all = engine.list_containers(None::<ListContainersOptions>).await.unwrap();
        let labels = all.into_iter().filter_map(|container| container.labels);
        let me = std::process::id().to_string();
        let mut labels =
            labels.into_iter().find(|labels| labels.get("dev.rolltap.owner-pid") == Some(&me)).unwrap();
        // The owner is an earlier process that had the same id.
        let (host, started) = labels["dev.rolltap.owner"].rsplit_once(' ').unwrap();
        let earlier = format!("{host} {}", started.parse::<u64>().unwrap() - 1);
        let run = Uuid::now_v7().to_string();
        labels.insert("dev.rolltap.owner".to_owned(), earlier);
        labels.insert("dev.rolltap.run".to_owned(), run.clone());
        let request = NetworkCreateRequest {
            name: format!("rolltap-test-{run}"),
            labels: Some(labels),
            ..Default::default()
        };
        // From here on, every run that starts at this engine may sweep the network, also the runs of neighbouring
        // tests. So no test can rely on its presence.
        engine.create_network(request).await.unwrap();
        let next = Host::connect(EnvironmentKind::Docker, &JobLabel::new("test-next")).await.unwrap();
        until_swept(engine, &format!("dev.rolltap.run={run}")).await;
        next.close().await.unwrap();
        assert_eq!(output(&environment, "echo here").await, "here");
    })
    .await;
}

#[tokio::test]
#[ignore = "needs Docker and root: run scripts/test"]
async fn an_owner_in_a_container_is_alive_as_long_as_its_process_is() {
    with_host(async |host, engine| {
        let environment = start(host, &prebuilt("")).await;
        let id = output(&environment, "hostname").await;
        let inspected = engine.inspect_container(&id, None::<InspectContainerOptions>).await.unwrap();
        let pid = inspected.state.unwrap().pid.unwrap();
        let namespace = std::fs::read_link(format!("/proc/{pid}/ns/pid")).unwrap();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let started = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().to_owned();
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        // This is the owner that a rolltap would write if it were process 1 of the container.
        let owner = format!("/{}/{} 1 {started}", boot.trim(), namespace.display());
        let run = Uuid::now_v7().to_string();
        let labels =
            [("dev.rolltap.owner", owner.as_str()), ("dev.rolltap.run", &run), ("dev.rolltap.job", "x")];
        let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let request = NetworkCreateRequest {
            name: format!("rolltap-test-{run}"),
            labels: Some(labels.into()),
            ..Default::default()
        };
        engine.create_network(request).await.unwrap();
        let label = format!("dev.rolltap.run={run}");
        let sweep = async || {
            let next = Host::connect(EnvironmentKind::Docker, &JobLabel::new("test-next")).await.unwrap();
            next.close().await.unwrap();
        };
        sweep().await;
        assert_eq!(leftovers(engine, &label).await, (0, 1, 0));
        environment.stop().await.unwrap();
        sweep().await;
        until_swept(engine, &label).await;
    })
    .await;
}

#[tokio::test]
#[ignore = "needs Docker: run scripts/test"]
async fn closing_removes_what_still_runs() {
    with_host(async |host, _| {
        let task = prebuilt("");
        let environments = [start(host, &task).await, start(host, &task).await];
        for environment in &environments {
            run(environment, "trap '' TERM; sleep 1000 >/dev/null 2>&1 &").await;
        }
        // `with_host` closes the host and checks the leftovers.
    })
    .await;
}
