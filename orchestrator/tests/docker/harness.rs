//! The setting of every test: a job of its own, removed even if the test fails.

use std::collections::HashMap;
use std::fs;
use std::panic::{AssertUnwindSafe, resume_unwind};

use bollard::Docker;
use bollard::query_parameters::{
    ListContainersOptions, ListImagesOptions, ListNetworksOptions, RemoveImageOptions,
};
use futures_util::FutureExt;
use rolltap_orchestrator::environment::{
    Environment, EnvironmentKind, Exec, ExecOutput, Host, JobLabel, TrialLabel,
};
use rolltap_orchestrator::task::Task;
use tempfile::TempDir;
use uuid::Uuid;

pub(crate) const IMAGE: &str = "rolltap-testbed/debian:bookworm";

/// Runs a test with its own host, and checks that closing the host leaves nothing.
pub(crate) async fn with_host(test: impl AsyncFnOnce(&Host, &Docker)) {
    let engine = Docker::connect_with_defaults().unwrap().negotiate_version().await.unwrap();
    let job = format!("test-{}", Uuid::now_v7());
    let host = Host::connect(EnvironmentKind::Docker, &JobLabel::new(&job)).await.unwrap();
    let outcome = AssertUnwindSafe(test(&host, &engine)).catch_unwind().await;
    host.close().await.unwrap();
    if let Err(panic) = outcome {
        resume_unwind(panic);
    }
    assert_eq!(leftovers(&engine, &format!("dev.rolltap.job={job}")).await, (0, 0, 0));
}

/// Counts the containers, networks and images with a label.
pub(crate) async fn leftovers(engine: &Docker, label: &str) -> (usize, usize, usize) {
    let filters = Some(HashMap::from([("label".to_owned(), vec![label.to_owned()])]));
    let containers = ListContainersOptions { all: true, filters: filters.clone(), ..Default::default() };
    let images = ListImagesOptions { filters: filters.clone(), ..Default::default() };
    (
        engine.list_containers(Some(containers)).await.unwrap().len(),
        engine.list_networks(Some(ListNetworksOptions { filters })).await.unwrap().len(),
        engine.list_images(Some(images)).await.unwrap().len(),
    )
}

/// Returns the filter that finds the images of this task.
pub(crate) fn images_of(task: &Task) -> Option<HashMap<String, Vec<String>>> {
    let labels = vec![format!("dev.rolltap.task={}", task.name), "dev.rolltap.image".to_owned()];
    Some(HashMap::from([("label".to_owned(), labels)]))
}

/// Removes the images that were built for this task and returns their number.
pub(crate) async fn remove_images_of(engine: &Docker, task: &Task) -> usize {
    let options = ListImagesOptions { filters: images_of(task), ..Default::default() };
    let found = engine.list_images(Some(options)).await.unwrap();
    for image in &found {
        let force = Some(RemoveImageOptions { force: true, ..Default::default() });
        engine.remove_image(&image.id, force, None).await.unwrap();
    }
    found.len()
}

/// Makes a task directory with these files in addition to those that every task has.
pub(crate) fn task_dir(toml: &str, files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let basic = [("task.toml", toml), ("instruction.md", "Do it."), ("tests/test.sh", "#!/bin/sh\n")];
    for (name, contents) in basic.iter().chain(files) {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }
    dir
}

pub(crate) fn prebuilt(settings: &str) -> Task {
    let dir = task_dir(&format!("[environment]\ndocker_image = \"{IMAGE}\"\n{settings}"), &[]);
    Task::load(dir.path()).unwrap()
}

pub(crate) async fn start(host: &Host, task: &Task) -> Environment {
    let prepared = host.prepare(task).await.unwrap();
    host.start(&prepared, task, &TrialLabel::new("a trial")).await.unwrap()
}

pub(crate) fn command(command: &str) -> Exec {
    Exec { command: command.to_owned(), ..Exec::default() }
}

pub(crate) async fn run(environment: &Environment, text: &str) -> ExecOutput {
    environment.exec(command(text)).await.unwrap()
}

pub(crate) async fn output(environment: &Environment, text: &str) -> String {
    let done = run(environment, text).await;
    assert_eq!(done.exit_code, Some(0), "{text}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap().trim_end().to_owned()
}

/// Returns the command lines of all processes in the container except the shell that reads them.
pub(crate) async fn processes(environment: &Environment) -> String {
    output(environment, r#"for line in /proc/[0-9]*/cmdline; do [ "$line" = /proc/$$/cmdline ] || tr '\0' ' ' <$line; done 2>/dev/null; true"#)
        .await
}
