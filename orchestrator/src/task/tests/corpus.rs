//! The tasks of public sets, as facts: the distinct shapes of their `task.toml` without its texts, the files beside it,
//! and the verdict of Harbor. `tests/real/harbor_tasks.rs` compares the verdicts with Harbor itself.

use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Corpus {
    sets: Vec<Set>,
    shapes: Vec<Shape>,
    odd: Vec<Odd>,
}

/// A public repository at a commit.
#[derive(Deserialize)]
struct Set {
    tasks: usize,
    harbor_takes: usize,
}

#[derive(Deserialize)]
struct Shape {
    /// The number of tasks of this shape.
    tasks: usize,
    /// The hash of the `task.toml` of one of them.
    sha256: String,
    /// `ok`, or the class of Harbor's exception.
    harbor: String,
    /// The key that rolltap does not support.
    unsupported: Option<String>,
    files: Vec<String>,
    toml: String,
}

impl Shape {
    /// Whether the task defines its container.
    fn has_container(&self) -> bool {
        let is_definition =
            |file: &String| file.ends_with("/Dockerfile") || file.ends_with("/docker-compose.yaml");
        self.toml.contains("docker_image") || self.files.iter().any(is_definition)
    }
}

/// An odd task of our own.
#[derive(Deserialize)]
struct Odd {
    /// `ok`, or the class of Harbor's exception.
    harbor: String,
    /// The reason why rolltap decides otherwise.
    differs: Option<String>,
    files: Vec<String>,
    toml: String,
}

fn corpus() -> Corpus {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/corpus/harbor_tasks.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Makes a task directory of a shape.
fn made(toml: &str, files: &[String]) -> TempDir {
    const TRAJECTORY: &str = r#"{"schema_version": "ATIF-v1.8", "steps": [{}]}"#;
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(CONFIG), toml).unwrap();
    for file in files {
        let (kind, file) = file.rsplit_once(' ').unwrap_or(("file", file));
        let path = dir.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match kind {
            "link-out" => std::os::unix::fs::symlink("/etc/hostname", path).unwrap(),
            "link" => std::os::unix::fs::symlink("test.sh", path).unwrap(),
            _ if file == "trajectory.json" => fs::write(path, TRAJECTORY).unwrap(),
            _ => fs::write(path, "x\n").unwrap(),
        }
    }
    dir
}

#[test]
fn the_tasks_of_public_sets_are_taken_as_harbor_takes_them() {
    let Corpus { sets, shapes, .. } = corpus();
    let all: usize = shapes.iter().map(|shape| shape.tasks).sum();
    assert_eq!(all, sets.iter().map(|set| set.tasks).sum::<usize>());
    assert!(all > 8_000, "{all} tasks");
    let taken = |is_taken: bool| shapes.iter().filter(move |shape| (shape.harbor == "ok") == is_taken);
    let harbor: usize = taken(true).map(|shape| shape.tasks).sum();
    assert_eq!(harbor, sets.iter().map(|set| set.harbor_takes).sum::<usize>());
    let mut refused = 0;
    for shape in &shapes {
        let dir = made(&shape.toml, &shape.files);
        let Examined { task, .. } = Task::examine(dir.path(), Runner::Rolltap);
        let errors = task.as_ref().err().map(|errors| format!("{errors:?}"));
        let is_expected = match (&errors, &shape.unsupported) {
            (None, None) => shape.harbor == "ok",
            (Some(errors), Some(key)) => errors.contains("Unsupported") && errors.contains(key.as_str()),
            // Harbor takes the task, and refuses its container when a trial starts.
            (Some(errors), None) if !shape.has_container() => errors.contains("Missing"),
            (Some(_), None) => shape.harbor != "ok",
            (None, Some(_)) => false,
        };
        assert!(
            is_expected,
            "a task like {} (Harbor: {}): {errors:?}\n{:?}\n{}",
            shape.sha256, shape.harbor, shape.files, shape.toml
        );
        let is_refused = errors.is_some() && shape.harbor == "ok" && shape.has_container();
        refused += if is_refused { shape.tasks } else { 0 };
        // Harbor takes a task that rolltap does not support, and so does the environment `harbor`.
        let for_harbor = Task::examine(dir.path(), Runner::Harbor).task;
        assert_eq!(for_harbor.is_ok(), shape.harbor == "ok", "{}: {:?}", shape.sha256, for_harbor.err());
    }
    assert!(refused <= 3, "{refused} of {harbor} tasks that Harbor takes are refused");
}

#[test]
fn odd_tasks_are_taken_as_harbor_takes_them() {
    let odd = corpus().odd;
    let mut wrong = Vec::new();
    for Odd { harbor, differs, files, toml } in &odd {
        let dir = made(toml, files);
        let errors = Task::examine(dir.path(), Runner::Rolltap).task.err();
        // GPUs are a feature that rolltap does not support, and not a question of the format.
        let is_feature = |errors: &Vec<TaskError>| matches!(errors[..], [TaskError::Unsupported { .. }]);
        let errors = errors.filter(|errors| harbor != "ok" || !is_feature(errors));
        if (errors.is_none() == (harbor == "ok")) == differs.is_some() {
            wrong.push(format!(
                "Harbor: {harbor}, known difference: {differs:?}, rolltap: {errors:?}\n{toml}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), odd.len(), wrong.join("\n"));
    let differing = odd.iter().filter(|odd| odd.differs.is_some()).count();
    assert!(differing * 5 < odd.len(), "{differing} of {} differ", odd.len());
}
