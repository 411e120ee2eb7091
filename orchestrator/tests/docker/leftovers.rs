//! Nothing is left behind, by living and dead runs.

use bollard::models::NetworkCreateRequest;
use bollard::query_parameters::ListNetworksOptions;
use rolltap_orchestrator::environment::{EnvironmentKind, Host, JobLabel};
use uuid::Uuid;

use crate::stage::{leftovers, prebuilt, run, start, with_host};

#[tokio::test]
#[ignore = "needs Docker: run scripts/test"]
async fn what_a_dead_run_left_is_swept_and_what_a_living_one_has_is_not() {
    with_host(async |_, engine| {
        let mine = engine.list_networks(None::<ListNetworksOptions>).await.unwrap();
        let labels = mine.into_iter().filter_map(|network| network.labels);
        let me = std::process::id().to_string();
        let mut labels =
            labels.into_iter().find(|labels| labels.get("dev.rolltap.owner-pid") == Some(&me)).unwrap();
        // A process that had this id before.
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
        engine.create_network(request).await.unwrap();
        let label = format!("dev.rolltap.run={run}");
        assert_eq!(leftovers(engine, &label).await, (0, 1, 0));
        let next = Host::connect(EnvironmentKind::Docker, &JobLabel::new("test-next")).await.unwrap();
        assert_eq!(leftovers(engine, &label).await, (0, 0, 0));
        next.close().await.unwrap();
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
        // `with_host` closes and looks.
    })
    .await;
}
