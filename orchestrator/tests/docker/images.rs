//! Images: built, found, and not to be had.

use std::collections::HashMap;
use std::time::Duration;

use bollard::Docker;
use bollard::query_parameters::{ListContainersOptions, ListImagesOptions};
use futures_util::{StreamExt, stream};
use rolltap_orchestrator::environment::TrialLabel;
use rolltap_orchestrator::task::Task;

use crate::stage::{IMAGE, command, output, prebuilt, start, task_dir, with_host};

#[tokio::test]
#[ignore = "needs Docker: run scripts/test"]
async fn an_image_is_built_once_from_what_is_not_ignored() {
    with_host(async |host, engine| {
        let dockerfile =
            format!("FROM {IMAGE}\nWORKDIR /built\nCOPY . .\nRUN date +%N >/stamp\nENV OF_IMAGE=image\n");
        let dir = task_dir(
            "",
            &[
                ("environment/Dockerfile", &dockerfile),
                ("environment/.dockerignore", "# not these\n*.secret\nDockerfile\n!keep.secret\n"),
                ("environment/data.txt", "data"),
                ("environment/a.secret", "no"),
                ("environment/keep.secret", "yes"),
            ],
        );
        let task = Task::load(dir.path()).unwrap();
        let stamps = stream::iter(0..4)
            .map(|_| async {
                let environment = start(host, &task).await;
                output(&environment, "pwd; ls; cat /stamp; echo $OF_IMAGE").await
            })
            .buffer_unordered(4)
            .collect::<Vec<_>>()
            .await;
        assert!(
            stamps[0].starts_with("/built\ndata.txt\nkeep.secret\n") && stamps[0].ends_with("\nimage"),
            "{}",
            stamps[0]
        );
        assert!(stamps.iter().all(|stamp| *stamp == stamps[0]), "{stamps:?}");
        let filters = HashMap::from([("reference".to_owned(), vec!["rolltap-test-*/*".to_owned()])]);
        let images = engine
            .list_images(Some(ListImagesOptions { filters: Some(filters), ..Default::default() }))
            .await;
        assert!(!images.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
#[ignore = "needs Docker: run scripts/test"]
async fn a_build_that_fails_is_told_with_its_last_lines_once_for_all_trials() {
    with_host(async |host, _| {
        let dockerfile = format!("FROM {IMAGE}\nRUN seq 100; echo about to fail >&2; exit 3\n");
        let dir = task_dir("[task]\nname = \"org/broken\"\n", &[("environment/Dockerfile", &dockerfile)]);
        let task = Task::load(dir.path()).unwrap();
        let (first, second) = tokio::join!(host.prepare(&task), host.prepare(&task));
        let message = first.unwrap_err().to_string();
        assert_eq!(message, second.unwrap_err().to_string());
        assert!(
            message.starts_with("cannot build the image of org/broken: The command '/bin/sh -c seq 100;"),
            "{message}"
        );
        assert!(message.contains("returned a non-zero code: 3\nlast lines of the build:\n"), "{message}");
        assert!(
            message.contains("\n  100\n")
                && message.contains("about to fail")
                && !message.contains("\n  50\n"),
            "{message}"
        );
        let buildkit = format!("FROM {IMAGE}\nRUN --mount=type=cache,target=/x true\n");
        let dir = task_dir("", &[("environment/Dockerfile", &buildkit)]);
        let message = host.prepare(&Task::load(dir.path()).unwrap()).await.unwrap_err().to_string();
        assert!(
            message.contains(
                "BuildKit's own syntax, such as RUN --mount and here-documents, is not supported yet"
            ),
            "{message}"
        );
    })
    .await;
}

#[tokio::test]
#[ignore = "needs Docker: run scripts/test"]
async fn a_build_that_is_given_up_stops() {
    with_host(async |host, engine| {
        let dockerfile = format!("FROM {IMAGE}\nRUN sleep 7801\n");
        let dir = task_dir("", &[("environment/Dockerfile", &dockerfile)]);
        let task = Task::load(dir.path()).unwrap();
        let building = async |engine: &Docker| {
            let running = engine.list_containers(None::<ListContainersOptions>).await.unwrap();
            running
                .iter()
                .any(|container| container.command.as_deref().is_some_and(|text| text.contains("sleep 7801")))
        };
        let given_up = async {
            while !building(engine).await {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::select! { _ = host.prepare(&task) => panic!("cannot end"), () = given_up => {} }
        let stopped = async {
            while building(engine).await {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), stopped).await.expect("the build goes on");
    })
    .await;
}

#[tokio::test]
#[ignore = "needs Docker: run scripts/test"]
async fn an_image_that_ends_at_once_is_told_with_its_last_words() {
    with_host(async |host, _| {
        let dockerfile = format!("FROM {IMAGE}\nENTRYPOINT [\"sh\", \"-c\", \"echo no good >&2; exit 5\"]\n");
        let dir = task_dir("", &[("environment/Dockerfile", &dockerfile)]);
        let environment = start(host, &Task::load(dir.path()).unwrap()).await;
        let mut answer = environment.exec(command("sleep 2")).await;
        if answer.is_ok() {
            answer = environment.exec(command("true")).await;
        }
        let message = answer.unwrap_err().to_string();
        assert_eq!(message, "the container has ended with exit code 5\nlast lines of its output:\n  no good");
    })
    .await;
}

#[tokio::test]
#[ignore = "needs Docker: run scripts/test"]
async fn an_image_that_cannot_be_had_is_told_with_what_helps() {
    with_host(async |host, _| {
        let dir = task_dir("[environment]\ndocker_image = \"127.0.0.1:1/none:1\"\n", &[]);
        let error = host.prepare(&Task::load(dir.path()).unwrap()).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "image 127.0.0.1:1/none:1 is not on this machine and cannot be pulled (if it needs a login: `docker pull \
             127.0.0.1:1/none:1` first)"
        );
        let too_much = prebuilt("cpus = 100000\n");
        let prepared = host.prepare(&too_much).await.unwrap();
        let error = host.start(&prepared, &too_much, &TrialLabel::new("x")).await.unwrap_err();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(error.to_string().starts_with("the Docker engine cannot create a container of image"), "{error}");
        assert!(source.contains("CPUs"), "{source}");
    })
    .await;
}
