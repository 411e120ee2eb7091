//! Tables of `task.toml` with several keys.

use super::*;

#[test]
fn tables_have_harbors_defaults() {
    let task = load(
        r#"
        artifacts = ["/app/out", { source = "/b", destination = "c/d", exclude = ["*.o"] }]
        [[verifier.collect]]
        command = "dump"
        [environment]
        skills_dir = "skills"
        [environment.healthcheck]
        command = "true"
        [[environment.mcp_servers]]
        name = "a"
        url = "http://a/sse"
        headers = { Authorization = "Bearer ${ROLLTAP_TEST_UNSET:-token}" }
        [[environment.mcp_servers]]
        name = "b"
        transport = "http"
        url = "http://b"
        [[environment.mcp_servers]]
        name = "c"
        transport = "stdio"
        command = "serve"
        args = ["-x"]
        "#,
    )
    .unwrap();
    let TaskConfig { artifacts, verifier, environment, .. } = task.config;
    assert_eq!(artifacts[0], Artifact::of("/app/out"));
    assert_eq!((artifacts[1].destination.as_deref(), artifacts[1].service()), (Some("c/d"), "main"));
    let Collect { service, timeout_sec, user, .. } = &verifier.collect[0];
    assert_eq!((service.as_str(), *timeout_sec, user.as_deref()), ("main", 60.0, None));
    let expected = Healthcheck { command: "true".to_owned(), ..Healthcheck::default() };
    assert_eq!(environment.healthcheck, Some(expected.clone()));
    assert_eq!((expected.interval_sec, expected.timeout_sec, expected.retries), (5.0, 30.0, 3));
    assert_eq!((expected.start_period_sec, expected.start_interval_sec), (0.0, 5.0));
    let servers = serde_json::to_value(&environment.mcp_servers).unwrap();
    assert_eq!(
        servers,
        serde_json::json!([
            {"name": "a", "transport": "sse", "url": "http://a/sse", "headers": {"Authorization": "Bearer ${ROLLTAP_TEST_UNSET:-token}"}},
            {"name": "b", "transport": "streamable-http", "url": "http://b", "headers": {}},
            {"name": "c", "transport": "stdio", "command": "serve", "args": ["-x"]},
        ])
    );
    assert!(task.separate_verifier.is_none() && task.steps.is_empty());
}

#[test]
fn impossible_values_are_reported_with_their_place() {
    for (toml, expected) in [
        ("artifacts = [\"/a/../b\"]", "artifact source \"/a/../b\" must not contain \"..\""),
        ("artifacts = [{ source = \"/a\", destination = \"/b\" }]", "must be a relative path"),
        ("artifacts = [{ source = \"/a\", destination = \"../b\" }]", "must not contain \"..\""),
        ("artifacts = [{ source = \"/a\", destination = \"./manifest.json/\" }]", "is the place of the list"),
        ("artifacts = [{ source = \"a\", service = \"db\" }]", "of service \"db\" must be an absolute path"),
        ("artifacts = [{ source = \"/a\", service = \"-\" }]", "\"-\" cannot be the name of a service"),
        ("artifacts = [7]", "a path, or a table with source"),
        ("[[environment.mcp_servers]]\nname = \"x\"", "MCP server \"x\" needs url"),
        (
            "[[environment.mcp_servers]]\nname = \"x\"\ntransport = \"stdio\"",
            "MCP server \"x\" needs command",
        ),
        (
            "[[environment.mcp_servers]]\nname = \"x\"\ntransport = \"stdio\"\ncommand = \"c\"\nheaders = { A = \"b\" }",
            "headers are for servers over HTTP",
        ),
        (
            "[[environment.mcp_servers]]\nname = \"x\"\nurl = \"u\"\nheaders = { \"A B\" = \"b\" }",
            "header \"A B\" is no HTTP header of one line",
        ),
        ("[[steps]]\nname = \"a\"\nmin_reward = \"much\"", "a number, or a table of numbers"),
    ] {
        let complaint = complaint(toml);
        assert!(complaint.contains(expected) && complaint.starts_with("DIR/task.toml: "), "{complaint}");
    }
}

#[test]
fn tests_with_an_environment_of_their_own_have_the_first_image_that_there_is() {
    let of = |toml: &str, files: &[(&str, &str)]| {
        let dir = task_dir(toml);
        for (name, contents) in files {
            fs::write(dir.path().join(name), contents).unwrap();
        }
        let task = Task::load(dir.path()).unwrap();
        let verifier = task.separate_verifier.unwrap();
        let config = &verifier.environment.config.environment;
        let context = verifier.environment.environment_dir();
        let context = context.strip_prefix(&task.dir).unwrap().display().to_string();
        (config.docker_image.clone(), context, verifier.has_tests, config.env.get("WHERE").cloned())
    };
    let own = "[environment.env]\nWHERE = \"agent\"\n[verifier.environment]\n";
    let named = format!("{own}docker_image = \"judge\"\n[verifier.environment.env]\nWHERE = \"judge\"");
    let judge = Some("judge".to_owned());
    assert_eq!(of(&named, &[]), (judge.clone(), "tests".to_owned(), true, judge));
    let built = of(own, &[("tests/Dockerfile", "FROM x\n")]);
    assert_eq!(built, (None, "tests".to_owned(), true, None));
    assert_eq!(of(own, &[]), (None, "environment".to_owned(), false, None));
    let copied = of("[verifier]\nenvironment_mode = \"separate\"\n[environment.env]\nWHERE = \"agent\"", &[]);
    assert_eq!(copied, (None, "environment".to_owned(), false, Some("agent".to_owned())));
}

#[test]
fn tests_that_are_in_the_verifiers_image_need_not_be_here() {
    let dir = task_dir("[verifier.environment]\ndocker_image = \"judge\"\n");
    fs::remove_dir_all(dir.path().join("tests")).unwrap();
    assert!(Task::load(dir.path()).is_ok());
}

#[test]
fn what_harborignore_leaves_out_is_not_put_anywhere() {
    let dir = task_dir("");
    fs::write(dir.path().join("tests/.harborignore"), "*.tmp\n").unwrap();
    fs::write(dir.path().join("tests/x.tmp"), "").unwrap();
    let task = Task::load(dir.path()).unwrap();
    let tests = task.tests_dirs().next().unwrap();
    let names: Vec<_> = tests.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["test.sh"]);
    fs::write(dir.path().join("tests/.harborignore"), "*.sh\n").unwrap();
    let complaint = Task::load(dir.path()).unwrap_err().to_string();
    assert!(complaint.ends_with("tests/test.sh: left out by .harborignore, but needed"), "{complaint}");
}

#[test]
fn a_trajectory_to_continue_from_is_validated() {
    let dir = task_dir("");
    let path = dir.path().join("trajectory.json");
    let steps = r#"[{"step_id": 1, "source": "user", "message": "x"}]"#;
    fs::write(&path, format!(r#"{{"schema_version": "ATIF-v1.8", "steps": {steps}}}"#)).unwrap();
    assert_eq!(Task::load(dir.path()).unwrap().trajectory, Some(path.canonicalize().unwrap()));
    for (text, problem) in [
        ("", "EOF while parsing"),
        ("[]", "there is no schema_version"),
        (r#"{"schema_version": "ATIF-v2"}"#, "schema_version is \"ATIF-v2\", not one of ATIF-v1"),
        (r#"{"schema_version": "ATIF-v1.8", "steps": []}"#, "there are no steps"),
    ] {
        fs::write(&path, text).unwrap();
        let complaint = Task::load(dir.path()).unwrap_err().to_string();
        assert!(complaint.contains(problem) && complaint.contains("no trajectory of ATIF"), "{complaint}");
    }
}

proptest::proptest! {
    #[test]
    fn no_table_makes_it_panic(
        source in "\\PC{0,12}", destination in "\\PC{0,12}", service in "\\PC{0,6}", transport in "[a-z-]{0,9}"
    ) {
        let toml = format!(
            "artifacts = [{{ source = {source:?}, destination = {destination:?}, service = {service:?} }}]\n\
             [[environment.mcp_servers]]\nname = {source:?}\ntransport = {transport:?}\nurl = {service:?}\n"
        );
        let _ = TaskConfig::parse(&toml, Path::new("task.toml"));
    }
}
