//! Valid and invalid tasks.

use std::fs;

use tempfile::TempDir;

use super::*;

mod corpus;
mod steps;
mod tables;

/// Makes a task directory with everything that a task needs, and this `task.toml`.
pub(super) fn task_dir(toml: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, contents) in [
        (CONFIG, toml),
        ("instruction.md", "Do it.\n"),
        ("environment/Dockerfile", "FROM debian\n"),
        ("tests/test.sh", "#!/bin/sh\n"),
    ] {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }
    dir
}

fn load(toml: &str) -> Result<Task, TaskError> {
    Task::load(task_dir(toml).path())
}

/// Returns the error about an invalid `task.toml`, with the directory replaced by `DIR`.
fn complaint(toml: &str) -> String {
    let dir = task_dir(toml);
    let complaint = Task::load(dir.path()).unwrap_err().to_string();
    complaint.replace(&dir.path().canonicalize().unwrap().display().to_string(), "DIR")
}

#[test]
fn an_empty_task_has_harbors_defaults() {
    let dir = task_dir("");
    let Task { name, instruction, config, .. } = Task::load(dir.path()).unwrap();
    assert_eq!(name, dir.path().file_name().unwrap().to_str().unwrap());
    assert_eq!(instruction, "Do it.\n");
    assert_eq!((config.agent.timeout_sec, config.agent.user), (None, None));
    assert_eq!((config.verifier.timeout_sec, config.environment.build_timeout_sec), (600.0, 600.0));
    assert_eq!((config.environment.cpus, config.environment.memory_mb), (None, None));
    assert_eq!(config.environment.network(), NetworkMode::Public);
}

#[test]
fn every_section_is_understood() {
    let task = load(
        r#"
        version = "1.0"
        source = "somewhere"
        [task]
        name = "org/the.task-1"
        version = "2"
        description = "text"
        authors = [{ name = "A", email = "a@example.org" }, { name = "B" }]
        keywords = ["x"]
        [metadata]
        anything = { at = ["all"] }
        [agent]
        timeout_sec = 12
        user = 1000
        network_mode = "public"
        [verifier]
        timeout_sec = 1.5
        user = "tester"
        environment_mode = "shared"
        [verifier.env]
        KEY = "${ROLLTAP_TEST_UNSET:-default}"
        [solution.env]
        OTHER = "plain"
        [environment]
        os = "Linux"
        cpus = 0.5
        memory = "2G"
        storage = "512M"
        storage_mb = 512
        gpus = 0
        workdir = "/srv"
        allow_internet = true
        unknown_key = 1
        "#,
    )
    .unwrap();
    assert_eq!(task.name, "org/the.task-1");
    let TaskConfig { schema_version, agent, verifier, environment, solution, .. } = task.config;
    assert_eq!(schema_version.as_deref(), Some("1.0"));
    assert_eq!((agent.timeout_sec, agent.user.as_deref()), (Some(12.0), Some("1000")));
    assert_eq!(
        (verifier.user.as_deref(), verifier.env["KEY"].as_str()),
        (Some("tester"), "${ROLLTAP_TEST_UNSET:-default}")
    );
    assert_eq!(solution.env["OTHER"], "plain");
    assert_eq!((environment.memory_mb, environment.storage_mb), (Some(2048), Some(512)));
    assert_eq!((environment.cpus, environment.workdir.as_deref()), (Some(0.5), Some("/srv")));
}

#[test]
fn a_wrong_type_is_reported_with_file_place_and_expectation() {
    assert_eq!(
        complaint("[agent]\ntimeout_sec = \"soon\"\n"),
        "DIR/task.toml: TOML parse error at line 2, column 15\n  |\n2 | timeout_sec = \"soon\"\n  |               ^^^^^^\n\
         invalid value: string \"soon\", expected a number"
    );
    let user = complaint("[agent]\nuser = 1.5\n");
    assert!(user.ends_with("expected a user name or a user id"), "{user}");
    let user = complaint("[agent]\nuser = -1\n");
    assert!(user.contains("expected a user id from 0 to 4294967295"), "{user}");
    let mode = complaint("[environment]\nnetwork_mode = \"none\"\n");
    assert!(
        mode.contains("unknown variant `none`, expected one of `public`, `no-network`, `allowlist`"),
        "{mode}"
    );
    let syntax = complaint("[agent\n");
    assert!(syntax.starts_with("DIR/task.toml: TOML parse error at line 1"), "{syntax}");
}

#[test]
fn an_impossible_value_is_reported_with_its_key() {
    for (toml, expected) in [
        ("[agent]\ntimeout_sec = 0", "agent.timeout_sec = 0: expected a number of seconds above 0"),
        ("[verifier]\ntimeout_sec = nan", "verifier.timeout_sec = NaN: expected a number of seconds above 0"),
        ("[environment]\nbuild_timeout_sec = inf", "environment.build_timeout_sec = inf: expected a number"),
        ("[environment]\ncpus = -1", "environment.cpus = -1: expected a number of CPUs above 0"),
        ("[environment]\nmemory = \"2 gigs\"", "environment.memory = \"2 gigs\": expected a size like"),
        (
            "[environment]\nmemory = \"2G\"\nmemory_mb = 1",
            "environment.memory = \"2G\": expected the same size",
        ),
        ("[environment]\nworkdir = \"app\"", "environment.workdir = \"app\": expected an absolute path"),
        ("[environment]\ndocker_image = \" \"", "environment.docker_image = \" \": expected an image name"),
        (
            "[verifier]\nenvironment_mode = \"shared\"\n[verifier.environment]",
            "verifier.environment_mode = \"shared\": expected \"separate\"",
        ),
        (
            "[environment.healthcheck]\nretries = 1",
            "environment.healthcheck.command = \"\": expected a shell",
        ),
        ("[[steps]]\nname = \"a/b\"", "steps.name = \"a/b\": expected a name that can be a directory"),
        ("[[steps]]\nname = \"nul.x\"", "steps.name = \"nul.x\": expected a name that can be a directory"),
        (
            "[[steps]]\nname = \"a\"\n[[steps]]\nname = \"A\"",
            "steps.name = \"A\": expected a name that no other step has",
        ),
        ("[[steps]]\nname = \"a\"\nmin_reward = nan", "steps.a.min_reward = NaN: expected numbers"),
        ("[task]\nname = \"no-org\"", "task.name = \"no-org\": expected a name like \"org/name\""),
    ] {
        let complaint = complaint(toml);
        assert!(complaint.starts_with(&format!("DIR/task.toml: {expected}")), "{complaint}");
    }
}

#[test]
fn missing_files_are_reported_with_their_purpose() {
    for (file, expected) in [
        (CONFIG, "the task's configuration"),
        ("instruction.md", "the instruction for the agent"),
        ("tests/test.sh", "the script that writes the reward"),
        (
            "environment/Dockerfile",
            "a Dockerfile, a docker-compose.yaml (not .yml), or else environment.docker_image in task.toml",
        ),
    ] {
        let dir = task_dir("");
        fs::remove_file(dir.path().join(file)).unwrap();
        let complaint = Task::load(dir.path()).unwrap_err().to_string();
        assert!(complaint.ends_with(&format!("{file}: missing, expected {expected}")), "{complaint}");
    }
    let dir = task_dir("[environment]\ndocker_image = \"debian\"\n");
    fs::remove_dir_all(dir.path().join("environment")).unwrap();
    assert!(Task::load(dir.path()).is_ok());
}

#[test]
fn unsupported_settings_are_reported_all_at_once() {
    let dir = task_dir(
        r#"
        artifacts = [{ source = "/db", service = "db" }]
        [verifier.environment]
        gpus = 2
        [environment]
        os = "Windows"
        gpus = 1
        [environment.tpu]
        type = "v6e"
        topology = "2x4"
        [[steps]]
        name = "one"
        "#,
    );
    let Err(TaskError::Unsupported { what, .. }) = Task::load(dir.path()) else { panic!("must be refused") };
    assert_eq!(
        what,
        [
            "environment.os = \"Windows\"",
            "environment.gpus",
            "environment.tpu",
            "verifier.environment.gpus",
            "artifacts of service \"db\" (several containers)",
        ]
    );
    assert_eq!(
        complaint("[verifier]\nallowed_hosts = []\n"),
        "DIR/task.toml: verifier.allowed_hosts is only for network_mode = \"allowlist\""
    );
}

#[test]
fn a_compose_file_of_another_name_is_a_file_like_any_other() {
    let strays = |toml: &str, files: &[&str]| {
        let dir = task_dir(toml);
        for file in files {
            fs::create_dir_all(dir.path().join(file).parent().unwrap()).unwrap();
            fs::write(dir.path().join(file), "").unwrap();
        }
        let strays = support::stray_compose_files(&Task::load(dir.path()).unwrap());
        strays.into_iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
    };
    let both = ["environment/docker-compose.yml", "tests/docker-compose.yml"];
    assert_eq!(strays("", &both), ["environment/docker-compose.yml"], "tests may bring what they like");
    assert_eq!(strays("[environment]\ndocker_image = \"debian\"", &both), ["environment/docker-compose.yml"]);
    let apart = "[verifier]\nenvironment_mode = \"separate\"";
    assert_eq!(strays(apart, &[both[0], both[1], "tests/Dockerfile"]), both);
    assert_eq!(strays("", &["environment/docker-compose.yaml"]), [""; 0]);

    let dir = task_dir("");
    fs::remove_file(dir.path().join("environment/Dockerfile")).unwrap();
    fs::write(dir.path().join("environment/docker-compose.yml"), "").unwrap();
    let complaint = Task::load(dir.path()).unwrap_err().to_string();
    assert!(complaint.contains("a docker-compose.yaml (not .yml)"), "it is no environment: {complaint}");
}

#[test]
fn the_schema_version_counts_before_its_old_name() {
    let version = |toml: &str| load(toml).unwrap().config.schema_version;
    assert_eq!(version("version = \"1.0\"\n").as_deref(), Some("1.0"));
    assert_eq!(version("version = \"1.0\"\nschema_version = \"1.1\"\n").as_deref(), Some("1.1"));
    assert_eq!(
        version("version = 1.0\nschema_version = \"1.1\"\n").as_deref(),
        Some("1.1"),
        "Harbor drops it unread"
    );
    let complaint = complaint("version = 1.0\n");
    assert!(
        complaint.starts_with("DIR/task.toml: version = 1.0: expected a text like \"1.4\""),
        "{complaint}"
    );
}

#[test]
fn a_directory_of_tasks_is_found_in_order_of_names() {
    let all = tempfile::tempdir().unwrap();
    for (dir, toml) in [("z", "[task]\nname = \"a/first\""), ("b", "[task]\nname = \"a/second\"")] {
        fs::rename(task_dir(toml).keep(), all.path().join(dir)).unwrap();
    }
    fs::create_dir(all.path().join("no-task")).unwrap();
    fs::write(all.path().join("README.md"), "").unwrap();
    let names = |path: &Path| discover(path).unwrap().into_iter().map(|task| task.name).collect::<Vec<_>>();
    assert_eq!(names(all.path()), ["a/first", "a/second"]);
    assert_eq!(names(&all.path().join("b")), ["a/second"]);
}

#[test]
fn a_path_without_a_task_is_an_error_with_the_expected_file() {
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(
        discover(empty.path()).unwrap_err().to_string(),
        format!(
            "no task found at {}: looked for task.toml in the directory itself and in each of its sub-directories",
            empty.path().display()
        )
    );
    let missing = empty.path().join("missing");
    let complaint = discover(&missing).unwrap_err().to_string();
    assert!(
        complaint.ends_with("is not a directory: expected a Harbor task directory, or a directory of them")
    );
}

#[test]
fn the_bundled_tasks_load() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let names =
        |dir: &str| discover(&root.join(dir)).unwrap().into_iter().map(|task| task.name).collect::<Vec<_>>();
    assert_eq!(names("examples/tasks"), ["rolltap/count-errors", "rolltap/hello-file"]);
    assert_eq!(names("tests/tasks"), ["rolltap/hello-no-network", "rolltap/hello-prebuilt"]);
}

proptest::proptest! {
    #[test]
    fn no_task_toml_makes_it_panic(
        toml in "(\\[(agent|verifier|environment|task|steps)\\]\n|[a-z_]{1,12} = [\"0-9a-zA-Z${}.:\\[\\]-]{0,12}\n){0,8}"
    ) {
        let _ = TaskConfig::parse(&toml, Path::new("task.toml"));
    }

    #[test]
    fn no_legacy_size_makes_it_panic(size in "[0-9.eGMK+ -]{0,8}") {
        let _ = TaskConfig::parse(&format!("[environment]\nmemory = {size:?}"), Path::new("task.toml"));
    }
}

#[test]
fn fuzz_task_toml() {
    rolltap_testing::fuzz!("task_toml", |toml| {
        let Ok(toml) = std::str::from_utf8(toml) else { return };
        for error in TaskConfig::parse(toml, Path::new("task.toml")).config.err().into_iter().flatten() {
            assert!(error.to_string().contains("task.toml"), "{error}");
        }
    });
}
