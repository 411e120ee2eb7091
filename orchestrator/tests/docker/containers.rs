//! The reach and the limits of a container, and its end.

use std::collections::BTreeMap;
use std::time::Instant;

use bollard::query_parameters::InspectContainerOptions;
use rolltap_agent::terminal::TerminalSize;
use rolltap_orchestrator::environment::EnvironmentError;
use rolltap_testing::limit;
use tokio::io::AsyncWriteExt;

use crate::harness::{command, output, prebuilt, run, start, with_host};

#[tokio::test]
#[ignore = "needs Docker: run scripts/test"]
async fn containers_reach_the_host_and_not_each_other() {
    const SERVER: &str = "perl -MIO::Socket::INET -e '$s=IO::Socket::INET->new(LocalPort=>8000,Listen=>5) or die; \
                          while($c=$s->accept){print $c \"from a container\\n\"; close $c}' >/dev/null 2>&1 &";
    with_host(async |host, _| {
        let task = prebuilt("");
        let (one, other) = (start(host, &task).await, start(host, &task).await);
        let address = output(&one, &format!("{SERVER} hostname -I")).await.trim().to_owned();
        let ask = |address: &str, port: u16| {
            format!("timeout 3 bash -c 'exec 3<>/dev/tcp/{address}/{port} && head -n 1 <&3'")
        };
        let by_itself = output(&one, &format!("sleep 0.5; {}", ask(&address, 8000))).await;
        assert_eq!(by_itself, "from a container");
        let by_other = run(&other, &ask(&address, 8000)).await;
        assert_ne!((by_other.exit_code, by_other.stdout.as_slice()), (Some(0), &b"from a container\n"[..]));
        assert!(by_other.stdout.is_empty());
        let listener = tokio::net::TcpListener::bind((host.bind_address(), 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let serve = async {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.write_all(b"from the host\n").await.unwrap();
            }
        };
        let asking = async {
            for environment in [&one, &other] {
                assert_eq!(
                    output(environment, &ask(&host.bind_address().to_string(), port)).await,
                    "from the host"
                );
            }
        };
        tokio::select! { () = asking => {}, () = serve => {} }
    })
    .await;
}

#[tokio::test]
#[ignore = "needs Docker: run scripts/test"]
async fn limits_and_labels_are_set() {
    with_host(async |host, engine| {
        let environment = start(host, &prebuilt("cpus = 0.5\nmemory = \"1G\"\nstorage_mb = 10\n")).await;
        let id = output(&environment, "hostname").await;
        let found = engine.inspect_container(&id, None::<InspectContainerOptions>).await.unwrap();
        let limits = found.host_config.unwrap();
        assert_eq!(
            (limits.nano_cpus, limits.memory, limits.pids_limit),
            (Some(500_000_000), Some(1 << 30), Some(4096))
        );
        assert_eq!((limits.init, limits.privileged, limits.binds), (Some(true), Some(false), None));
        let forge =
            "perl -e 'use Socket; socket(my $s, AF_INET, SOCK_RAW, 1) and print \"forged\"; print \"$!\"'";
        assert_eq!(output(&environment, forge).await, "Operation not permitted");
        let labels = found.config.unwrap().labels.unwrap();
        assert_eq!(labels["dev.rolltap.trial"], "a trial");
        assert_eq!(labels["dev.rolltap.owner-pid"], std::process::id().to_string());
        assert!(labels["dev.rolltap.job"].starts_with("test-"));
    })
    .await;
}

#[tokio::test]
#[ignore = "needs Docker: run scripts/test"]
async fn a_container_that_is_gone_is_reported_and_can_still_be_stopped() {
    with_host(async |host, engine| {
        let environment = start(host, &prebuilt("")).await;
        let id = output(&environment, "hostname").await;
        engine.kill_container(&id, None::<bollard::query_parameters::KillContainerOptions>).await.unwrap();
        let error = environment.exec(command("true")).await.unwrap_err();
        assert_eq!(error.to_string(), "the container has ended with exit code 137");
        let removal = bollard::query_parameters::RemoveContainerOptions { force: true, ..Default::default() };
        engine.remove_container(&id, Some(removal)).await.unwrap();
        assert!(matches!(environment.exec(command("true")).await, Err(EnvironmentError::Ended { .. })));
        assert!(environment.open_terminal(TerminalSize::default(), BTreeMap::new(), None).await.is_err());
        environment.stop().await.unwrap();
    })
    .await;
}

#[tokio::test]
#[ignore = "needs Docker: run scripts/test"]
async fn stopping_takes_no_grace_and_removes_the_container() {
    with_host(async |host, engine| {
        let environment = start(host, &prebuilt("")).await;
        let id = output(&environment, "trap '' TERM HUP INT; sleep 1000 & hostname").await;
        let begun = Instant::now();
        environment.stop().await.unwrap();
        assert!(begun.elapsed() < limit(4), "{:?}", begun.elapsed());
        assert!(engine.inspect_container(&id, None::<InspectContainerOptions>).await.is_err());
    })
    .await;
}
