//! Images: built, found in the cache, and unavailable.

use std::time::Duration;

use bollard::Docker;
use bollard::query_parameters::{
    ListContainersOptions, ListImagesOptions, RemoveImageOptions, TagImageOptionsBuilder,
};
use futures_util::{StreamExt, stream};
use rolltap_orchestrator::environment::{EnvironmentKind, Host, JobLabel, TrialLabel};
use rolltap_orchestrator::task::Task;
use rolltap_testing::limit;
use uuid::Uuid;

use crate::harness::{
    IMAGE, command, images_of, output, prebuilt, remove_images_of, start, task_dir, with_host,
};

/// Returns a unique first line of a Dockerfile, so that no test finds an image that another test has built.
fn unlike_any() -> String {
    format!("# {}\n", Uuid::now_v7())
}

/// Returns a command's output in a container that is removed afterwards.
async fn output_once(host: &Host, task: &Task, command: &str) -> String {
    let environment = start(host, task).await;
    let said = output(&environment, command).await;
    environment.stop().await.unwrap();
    said
}

#[tokio::test]
#[ignore = "needs Docker: run scripts/test"]
async fn an_image_is_built_once_from_what_is_not_ignored() {
    with_host(async |host, engine| {
        let dockerfile = format!(
            "{}FROM {IMAGE}\nWORKDIR /built\nCOPY . .\nRUN date +%N >/stamp\nENV OF_IMAGE=image\n",
            unlike_any()
        );
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
            .map(|_| async { output_once(host, &task, "pwd; ls; cat /stamp; echo $OF_IMAGE").await })
            .buffer_unordered(4)
            .collect::<Vec<_>>()
            .await;
        assert!(
            stamps[0].starts_with("/built\ndata.txt\nkeep.secret\n") && stamps[0].ends_with("\nimage"),
            "{}",
            stamps[0]
        );
        assert!(stamps.iter().all(|stamp| *stamp == stamps[0]), "{stamps:?}");
        assert_eq!(remove_images_of(engine, &task).await, 1);
    })
    .await;
}

#[tokio::test]
#[ignore = "needs Docker: run scripts/test"]
async fn an_image_is_reused_for_the_same_content_and_base_image() {
    with_host(async |host, engine| {
        let base = format!("rolltap-test-base:{}", Uuid::now_v7().simple());
        let (repository, tag) = base.split_once(':').unwrap();
        let name_base = async |image: &str| {
            let options = TagImageOptionsBuilder::default().repo(repository).tag(tag).build();
            engine.tag_image(image, Some(options)).await.unwrap();
        };
        name_base(IMAGE).await;
        let dockerfile = format!("ARG BASE={base}\nFROM $BASE\nRUN date +%N >/stamp\n");
        let dir = task_dir("", &[("environment/Dockerfile", &dockerfile)]);
        let task = Task::load(dir.path()).unwrap();
        let stamp = async |host: &Host| output_once(host, &task, "cat /stamp").await;
        let first = stamp(host).await;
        // The second host is another job, and the second task has the same files as the first.
        let next = Host::connect(EnvironmentKind::Docker, &JobLabel::new("test-next")).await.unwrap();
        assert_eq!(stamp(&next).await, first);
        next.close().await.unwrap();
        let images = async || {
            let options = ListImagesOptions { filters: images_of(&task), ..Default::default() };
            engine.list_images(Some(options)).await.unwrap().len()
        };
        assert_eq!(images().await, 1);
        name_base("rolltap-testbed/hello:1").await;
        let moved = Host::connect(EnvironmentKind::Docker, &JobLabel::new("test-moved")).await.unwrap();
        assert_ne!(stamp(&moved).await, first);
        moved.close().await.unwrap();
        assert_eq!(remove_images_of(engine, &task).await, 2);
        engine.remove_image(&base, None::<RemoveImageOptions>, None).await.unwrap();
    })
    .await;
}

#[tokio::test]
#[ignore = "needs Docker: run scripts/test"]
async fn a_forced_build_passes_over_what_the_task_names() {
    with_host(async |host, engine| {
        let settings = format!("[environment]\ndocker_image = \"{IMAGE}\"\n");
        let dockerfile = format!("{}FROM {IMAGE}\nRUN echo built >/stamp\n", unlike_any());
        let dir = task_dir(&settings, &[("environment/Dockerfile", &dockerfile)]);
        let task = Task::load(dir.path()).unwrap();
        let stamp = "cat /stamp 2>/dev/null || echo named";
        assert_eq!(output_once(host, &task, stamp).await, "named");
        let forced = Host::connect(EnvironmentKind::Docker, &JobLabel::new("test-forced")).await.unwrap();
        let forced = forced.force_build(true);
        assert_eq!(output_once(&forced, &task, stamp).await, "built");
        forced.close().await.unwrap();
        remove_images_of(engine, &task).await;
    })
    .await;
}

#[tokio::test]
#[ignore = "needs Docker with buildx: run scripts/test"]
async fn what_only_buildkit_follows_is_built_by_it() {
    with_host(async |host, engine| {
        let run = "--mount=type=bind,source=data.txt,target=/data.txt cat /data.txt >/copy";
        let files = |run: &str| format!("{}FROM {IMAGE}\nRUN {run}\n", unlike_any());
        let dir = task_dir("", &[("environment/Dockerfile", &files(run)), ("environment/data.txt", "data")]);
        let task = Task::load(dir.path()).unwrap();
        assert_eq!(output_once(host, &task, "cat /copy").await, "data");
        assert_eq!(remove_images_of(engine, &task).await, 1);
        let fails = files("--mount=type=tmpfs,target=/x echo about to fail; exit 3");
        let dir = task_dir("[task]\nname = \"org/broken\"\n", &[("environment/Dockerfile", &fails)]);
        let message = host.prepare(&Task::load(dir.path()).unwrap()).await.unwrap_err().to_string();
        assert!(message.starts_with("cannot build the image of org/broken: failed to solve: "), "{message}");
        assert!(message.contains("exit code: 3") && message.contains("about to fail"), "{message}");
    })
    .await;
}

#[tokio::test]
#[ignore = "needs Docker: run scripts/test"]
async fn a_build_that_fails_is_reported_with_its_last_lines_once_for_all_trials() {
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
        tokio::time::timeout(limit(20), stopped).await.expect("the build continues");
    })
    .await;
}

#[tokio::test]
#[ignore = "needs Docker: run scripts/test"]
async fn an_image_that_exits_at_once_is_reported_with_its_last_output() {
    with_host(async |host, engine| {
        let ends = "ENTRYPOINT [\"sh\", \"-c\", \"echo no good >&2; exit 5\"]";
        let dockerfile = format!("{}FROM {IMAGE}\n{ends}\n", unlike_any());
        let dir = task_dir("", &[("environment/Dockerfile", &dockerfile)]);
        let task = Task::load(dir.path()).unwrap();
        let environment = start(host, &task).await;
        let mut answer = environment.exec(command("sleep 2")).await;
        if answer.is_ok() {
            answer = environment.exec(command("true")).await;
        }
        let message = answer.unwrap_err().to_string();
        assert_eq!(message, "the container has ended with exit code 5\nlast lines of its output:\n  no good");
        environment.stop().await.unwrap();
        remove_images_of(engine, &task).await;
    })
    .await;
}

#[tokio::test]
#[ignore = "needs Docker: run scripts/test"]
async fn an_image_that_could_not_be_had_is_asked_for_once_more_by_the_next_attempt() {
    with_host(async |host, engine| {
        let tag = Uuid::now_v7().simple().to_string();
        let name = format!("127.0.0.1:1/later:{tag}");
        let dir = task_dir(&format!("[environment]\ndocker_image = \"{name}\"\n"), &[]);
        let task = Task::load(dir.path()).unwrap();
        host.prepare(&task).await.unwrap_err();
        let options = TagImageOptionsBuilder::default().repo("127.0.0.1:1/later").tag(&tag).build();
        engine.tag_image(IMAGE, Some(options)).await.unwrap();
        let prepared = host.prepare(&task).await;
        engine.remove_image(&name, None::<RemoveImageOptions>, None).await.unwrap();
        prepared.unwrap();
    })
    .await;
}

#[tokio::test]
#[ignore = "needs Docker: run scripts/test"]
async fn an_unavailable_image_is_reported_with_a_remedy() {
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
