//! Many environments at once, and failures on the way.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use rolltap_testing::limit;
use serde_json::{Value, json};

use super::server::{Server, containers, task};
use crate::harness::testbed;

const MANY: usize = 16;

fn hello() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tasks/hello-prebuilt")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker: run ./scripts/test"]
async fn many_environments_work_at_once_and_none_is_left() {
    let server = Server::start();
    let episodes = (0..MANY).map(|at| {
        let server = &server;
        async move {
            let env = server.create(&hello()).await;
            env.begin().await;
            // Every second environment solves the task.
            let wrote = if at % 2 == 0 { "Hello, world!" } else { "Bye" };
            env.type_and_see(&format!("echo '{wrote}' > hello.txt; echo at-$((6*7))\n"), &["at-42"]).await;
            let reward = env.complete().await;
            env.begin().await;
            env.type_and_see("ls | wc -l\n", &["\n0\n"]).await;
            env.close().await;
            reward
        }
    });
    let rewards: Vec<Value> = join_all(episodes).await;
    let expected: Vec<_> = (0..MANY).map(|at| json!(if at % 2 == 0 { 1.0 } else { 0.0 })).collect();
    assert_eq!(rewards, expected);
    assert_eq!(server.containers(), Vec::<String>::new(), "closed");
    assert_eq!(server.terminate(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker: run ./scripts/test"]
async fn a_container_that_is_killed_costs_its_episode_and_no_more() {
    let server = Server::start();
    let env = server.create(&hello()).await;
    env.begin().await;
    let id = only(&containers(&format!("label=dev.rolltap.trial={}", env.id)));
    let killing = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(Command::new("docker").args(["kill", &id]).output().unwrap().status.success());
    };
    let (step, ()) = tokio::join!(env.step(json!({"keystrokes": "sleep 50\n", "duration": 50})), killing);
    assert_eq!((step.0, &step.1["error"]["code"]), (410, &json!("vanished")), "{step:?}");
    let again = env.step(json!({"keystrokes": "ls\n"})).await;
    assert_eq!((again.0, &again.1["error"]["code"]), (410, &json!("vanished")), "{again:?}");
    env.begin().await;
    env.type_and_see("echo back-$((6*7))\n", &["back-42"]).await;
    assert_eq!(server.containers().len(), 1, "the dead one is removed");
    assert_eq!(server.terminate(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker: run ./scripts/test"]
async fn what_a_killed_server_left_goes_when_the_next_one_starts() {
    let mut killed = Server::start();
    let (one, two) = (killed.create(&hello()).await.id, killed.create(&hello()).await);
    let ids = [one, two.id.clone()];
    two.begin().await;
    assert_eq!(killed.containers().len(), 1, "a container comes with the reset of {ids:?}");
    killed.kill();
    assert_eq!(killed.containers().len(), 1);
    let next = Server::start();
    assert_eq!(killed.containers(), Vec::<String>::new());
    assert_eq!(next.terminate(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker: run ./scripts/test"]
async fn an_image_that_cannot_be_built_is_reported_with_its_last_lines_and_is_built_once_it_can_be() {
    let (server, dir) = (Server::start(), tempfile::tempdir().unwrap());
    let dockerfile = |line: &str| format!("FROM {}\n{line}\n", testbed("ROLLTAP_TESTBED_IMAGE"));
    let broken = dockerfile("RUN echo no such luck && exit 7");
    let files = [
        ("task.toml", ""),
        ("instruction.md", "Wait."),
        ("environment/Dockerfile", &broken),
        ("tests/test.sh", "#!/bin/sh\n"),
    ];
    task(dir.path(), &files);
    let env = server.create(dir.path()).await;
    for _ in 0..2 {
        let (status, failed) = env.reset().await;
        assert_eq!((status, &failed["error"]["code"]), (500, &json!("environment_failed")), "{failed}");
        assert!(failed["error"]["message"].as_str().unwrap().contains("no such luck"), "{failed}");
    }
    fs::write(dir.path().join("environment/Dockerfile"), dockerfile("RUN echo better > /luck")).unwrap();
    env.begin().await;
    env.type_and_see("cat /luck\n", &["\nbetter\n"]).await;
    assert_eq!(server.terminate(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker: run ./scripts/test"]
async fn a_server_that_is_stopped_in_the_midst_of_everything_leaves_nothing() {
    let mut server = Server::start();
    let pid = server.pid().to_string();
    let stepping = server.create(&hello()).await;
    stepping.begin().await;
    let starting = server.create(&hello()).await;
    let calls =
        async { tokio::join!(stepping.step(json!({"keystrokes": "", "duration": 60})), starting.reset()) };
    let stop = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    };
    let ((step, reset), ()) = tokio::join!(calls, stop);
    assert_eq!((step.0, &step.1["error"]["code"]), (503, &json!("stopping")), "{step:?}");
    assert!(reset.0 == 503 || reset.0 == 200, "{reset:?}");
    let end = Instant::now() + limit(60);
    while !server.has_ended() {
        assert!(Instant::now() < end, "it continues");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(server.containers(), Vec::<String>::new());
}

/// Returns the only id of this list.
fn only(ids: &[String]) -> String {
    let [id] = ids else { panic!("one container: {ids:?}") };
    id.clone()
}
