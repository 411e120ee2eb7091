//! The Docker environment on a real engine. Every test has a job of its own, puts it away also when it fails, and then
//! looks whether anything of it is left.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "clippy.toml lets tests do so, but does not see helpers outside of test functions"
)]

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use bollard::Docker;
use bollard::models::NetworkCreateRequest;
use bollard::query_parameters::{
    InspectContainerOptions, ListContainersOptions, ListImagesOptions, ListNetworksOptions,
};
use futures_util::{FutureExt, StreamExt, stream};
use rolltap_agent::terminal::TerminalSize;
use rolltap_orchestrator::environment::{
    Environment, EnvironmentError, EnvironmentKind, Exec, ExecOutput, Host, JobLabel, LogDirs, OUTPUT_LIMIT,
    TerminalStreams, TrialLabel,
};
use rolltap_orchestrator::task::Task;
use rolltap_orchestrator::verifier::verify;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uuid::Uuid;

const IMAGE: &str = "rolltap-testbed/debian:bookworm";

/// Runs a test with a host of its own, and checks that closing it leaves nothing.
async fn with_host(test: impl AsyncFnOnce(&Host, &Docker)) {
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

/// Containers, networks and images with a label.
async fn leftovers(engine: &Docker, label: &str) -> (usize, usize, usize) {
    let filters = Some(HashMap::from([("label".to_owned(), vec![label.to_owned()])]));
    let containers = ListContainersOptions { all: true, filters: filters.clone(), ..Default::default() };
    let images = ListImagesOptions { filters: filters.clone(), ..Default::default() };
    (
        engine.list_containers(Some(containers)).await.unwrap().len(),
        engine.list_networks(Some(ListNetworksOptions { filters })).await.unwrap().len(),
        engine.list_images(Some(images)).await.unwrap().len(),
    )
}

/// A task directory with these files besides those that every task has.
fn task_dir(toml: &str, files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let basic = [("task.toml", toml), ("instruction.md", "Do it."), ("tests/test.sh", "#!/bin/sh\n")];
    for (name, contents) in basic.iter().chain(files) {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }
    dir
}

fn prebuilt(settings: &str) -> Task {
    let dir = task_dir(&format!("[environment]\ndocker_image = \"{IMAGE}\"\n{settings}"), &[]);
    Task::load(dir.path()).unwrap()
}

async fn start(host: &Host, task: &Task) -> Environment {
    let prepared = host.prepare(task).await.unwrap();
    host.start(&prepared, task, &TrialLabel::new("a trial")).await.unwrap()
}

fn command(command: &str) -> Exec {
    Exec { command: command.to_owned(), ..Exec::default() }
}

async fn run(environment: &Environment, text: &str) -> ExecOutput {
    environment.exec(command(text)).await.unwrap()
}

async fn output(environment: &Environment, text: &str) -> String {
    let done = run(environment, text).await;
    assert_eq!(done.exit_code, Some(0), "{text}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap().trim_end().to_owned()
}

/// Command lines of all processes inside but the one that looks.
async fn processes(environment: &Environment) -> String {
    output(environment, r#"for line in /proc/[0-9]*/cmdline; do [ "$line" = /proc/$$/cmdline ] || tr '\0' ' ' <$line; done 2>/dev/null; true"#)
        .await
}

fn log_dirs(dir: &Path) -> LogDirs {
    LogDirs { agent: dir.join("agent"), verifier: dir.join("verifier"), artifacts: dir.join("artifacts") }
}

#[tokio::test]
#[ignore = "needs Docker: run scripts/test"]
async fn commands_run_with_their_settings_and_both_outputs() {
    with_host(async |host, _| {
        let task =
            prebuilt("workdir = \"/some/where\"\n[environment.env]\nOF_TASK = \"task\"\nBOTH = \"task\"\n");
        let environment = start(host, &task).await;
        let exec = Exec {
            env: BTreeMap::from([
                ("BOTH".to_owned(), "exec".to_owned()),
                ("ODD".to_owned(), "a='b'\n c".to_owned()),
            ]),
            ..command("pwd; echo $OF_TASK $BOTH \"$ODD\" ${BASH_VERSION:+bash}; echo error >&2; cat; exit 7")
        };
        let done = environment.exec(exec).await.unwrap();
        assert_eq!(String::from_utf8(done.stdout).unwrap(), "/some/where\ntask exec a='b'\n c bash\n");
        assert_eq!(
            (done.stderr.as_slice(), done.exit_code, done.timed_out),
            (&b"error\n"[..], Some(7), false)
        );
        let exec = Exec {
            user: Some("1000".to_owned()),
            cwd: Some("/tmp".to_owned()),
            ..command("id -u; pwd; touch /logs/agent/x /logs/verifier/x /logs/artifacts/x")
        };
        let done = environment.exec(exec).await.unwrap();
        assert_eq!((done.stdout.as_slice(), done.exit_code), (&b"1000\n/tmp\n"[..], Some(0)));
        let killed = run(&environment, "kill -9 $$").await;
        assert_eq!(killed.exit_code, Some(137));
        let silent = run(&environment, "true").await;
        assert_eq!(silent, ExecOutput { exit_code: Some(0), ..ExecOutput::default() });
    })
    .await;
}

#[tokio::test]
#[ignore = "needs Docker: run scripts/test"]
async fn output_without_end_is_cut_and_servers_outlive_their_command() {
    with_host(async |host, _| {
        let environment = start(host, &prebuilt("")).await;
        let done = run(&environment, "head -c 20000000 /dev/zero; head -c 3 /dev/zero >&2").await;
        assert!(done.truncated && done.exit_code == Some(0));
        assert!(done.stdout.len() > OUTPUT_LIMIT - 100 && done.stdout.iter().all(|byte| *byte == 0));
        assert_eq!(done.stderr.len(), 3);
        let begun = Instant::now();
        let done = run(&environment, "sleep 7401 & echo started").await;
        assert_eq!((done.stdout.as_slice(), done.exit_code), (&b"started\n"[..], Some(0)));
        assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
        assert!(processes(&environment).await.contains("sleep 7401"));
    })
    .await;
}

#[tokio::test]
#[ignore = "needs Docker: run scripts/test"]
async fn a_timeout_kills_the_processes_inside() {
    with_host(async |host, _| {
        let environment = start(host, &prebuilt("")).await;
        let kept = environment.exec(command("sleep 7601 >/dev/null 2>&1 &")).await.unwrap();
        assert_eq!(kept.exit_code, Some(0));
        let script =
            "echo begun; trap '' TERM; setsid sleep 7602 & (sleep 7603 &); env -i sleep 7604 & sleep 7605";
        for user in [None, Some("1000".to_owned())] {
            let begun = Instant::now();
            let exec = Exec { user: user.clone(), timeout: Some(Duration::from_secs(1)), ..command(script) };
            let done = environment.exec(exec).await.unwrap();
            assert!(done.timed_out && done.exit_code.is_none());
            assert_eq!(done.stdout, b"begun\n");
            assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
            let left = processes(&environment).await;
            assert!(
                left.contains("sleep 7601") && !left.contains("760") || !left.contains("sleep 7602"),
                "{left}"
            );
            for seconds in 7602..=7605 {
                assert!(!left.contains(&format!("sleep {seconds}")), "{user:?}: {left}");
            }
        }
        assert!(
            processes(&environment).await.contains("sleep 7601"),
            "another command's process must live on"
        );
    })
    .await;
}

/// Types, and reads until the screen holds all of `wanted`.
async fn converse(terminal: &mut TerminalStreams, typed: &str, wanted: &[&str]) -> String {
    terminal.writer.write_all(typed.as_bytes()).await.unwrap();
    let mut screen = String::new();
    let mut chunk = [0; 4096];
    let reading = async {
        while !wanted.iter().all(|wanted| screen.contains(wanted)) {
            let length = terminal.reader.read(&mut chunk).await.unwrap();
            assert_ne!(length, 0, "closed: {screen}");
            screen.push_str(&String::from_utf8_lossy(&chunk[..length]));
        }
    };
    let timely = tokio::time::timeout(Duration::from_secs(20), reading).await;
    assert!(timely.is_ok(), "waited in vain for {wanted:?}: {screen}");
    screen
}

#[tokio::test]
#[ignore = "needs Docker: run scripts/test"]
async fn a_terminal_has_a_size_a_shell_and_takes_any_byte() {
    with_host(async |host, _| {
        let environment = start(host, &prebuilt("workdir = \"/work\"\n")).await;
        let size = TerminalSize { rows: 33, cols: 111 };
        let env = BTreeMap::from([("MINE".to_owned(), "mine".to_owned())]);
        let mut terminal = environment.open_terminal(size, env).await.unwrap();
        let screen = converse(
            &mut terminal,
            "stty size; echo $TERM-$MINE; pwd; shopt -q login_shell && echo log''in\n",
            &["33 111", "xterm-256color-mine", "/work\r\n", "login\r\n"],
        )
        .await;
        assert!(screen.contains("stty size"), "typing is echoed: {screen}");
        // Bytes that look like the frame headers of outputs without a terminal.
        converse(&mut terminal, "clear; sleep 0.3; printf '\\0\\0\\0'; sleep 0.3; printf '\\1\\377\\377\\377\\377\\377\\377\\377'; echo af''ter\n", &["after\r\n"]).await;
        converse(&mut terminal, "echo go''ing; sleep 1000\n", &["going\r\n"]).await;
        // Bash itself may lose an interrupt between two commands.
        tokio::time::sleep(Duration::from_millis(500)).await;
        converse(&mut terminal, "\u{3}", &["^C"]).await;
        converse(&mut terminal, "echo inter''rupted\n", &["interrupted\r\n"]).await;
        terminal.writer.write_all(b"exit\n").await.unwrap();
        let end = async { while terminal.reader.read(&mut [0; 1024]).await.unwrap_or(0) > 0 {} };
        tokio::time::timeout(Duration::from_secs(10), end).await.unwrap();
    })
    .await;
}

#[tokio::test]
#[ignore = "needs Docker: run scripts/test"]
async fn files_go_in_and_come_out_with_their_modes() {
    with_host(async |host, _| {
        let environment = start(host, &prebuilt("")).await;
        let from = tempfile::tempdir().unwrap();
        fs::create_dir_all(from.path().join("deep/empty")).unwrap();
        fs::write(from.path().join("deep/text"), "/app and /tests stay\n").unwrap();
        fs::write(from.path().join("run.sh"), "#!/bin/sh\necho ran\n").unwrap();
        fs::set_permissions(from.path().join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::symlink("run.sh", from.path().join("link")).unwrap();
        environment.upload(from.path(), "/tests").await.unwrap();
        environment.upload(from.path(), "/not/there/yet").await.unwrap();
        environment.upload(&from.path().join("deep/empty"), "/made").await.unwrap();
        assert_eq!(
            output(
                &environment,
                "/tests/link; cd /not/there/yet; cat deep/text; ls -d /made deep/empty; stat -c %a:%u run.sh"
            )
            .await,
            "ran\n/app and /tests stay\n/made\ndeep/empty\n755:0"
        );
        let to = tempfile::tempdir().unwrap();
        let downloaded = environment.download("/not/there/yet", &to.path().join("new")).await.unwrap();
        assert_eq!((downloaded.files, downloaded.skipped.len()), (3, 0));
        assert_eq!(fs::read_to_string(to.path().join("new/deep/text")).unwrap(), "/app and /tests stay\n");
        assert_eq!(fs::metadata(to.path().join("new/link")).unwrap().permissions().mode() & 0o777, 0o755);
        let missing = environment.download("/nowhere", to.path()).await.unwrap_err();
        assert_eq!(missing.to_string(), "there is no /nowhere in the environment");
    })
    .await;
}

#[tokio::test]
#[ignore = "needs Docker: run scripts/test"]
async fn a_hostile_container_cannot_write_outside_its_download() {
    with_host(async |host, _| {
        let environment = start(host, &prebuilt("")).await;
        let outer = tempfile::tempdir().unwrap();
        let target = outer.path().join("logs");
        output(
            &environment,
            "cd /logs/agent && ln -s / root && ln -s ../../.. up && ln -s /etc/passwd passwd && mkfifo pipe \
             && echo fine >fine && ln fine hard && ln -s fine soft && touch $'odd\\nname\\\\..' && ln -s /dev/zero reward.txt",
        )
        .await;
        let downloaded = environment.download("/logs/agent", &target).await.unwrap();
        let mut skipped = downloaded.skipped;
        skipped.sort();
        let hard = skipped.iter().position(|name| name == "agent/hard" || name == "agent/fine").map(|at| skipped.remove(at));
        assert!(hard.is_some(), "one name of a file with two stays behind");
        assert_eq!(skipped, ["agent/passwd", "agent/pipe", "agent/reward.txt", "agent/root", "agent/up"]);
        let names: Vec<_> = fs::read_dir(outer.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["logs"]);
        // The directory itself is turned into a link, and then grown beyond all measure.
        output(&environment, "rm -r /logs/agent && ln -s /etc /logs/agent").await;
        let through_link = environment.download("/logs/agent", &outer.path().join("other")).await.unwrap();
        assert_eq!(through_link.files, 0);
        output(&environment, "truncate -s 3G /logs/verifier/huge").await;
        let error = environment.download("/logs/verifier", &target).await.unwrap_err();
        assert!(matches!(error, EnvironmentError::TooLarge { .. }), "{error}");
    })
    .await;
}

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
async fn a_container_that_is_gone_is_told_and_can_be_stopped_all_the_same() {
    with_host(async |host, engine| {
        let environment = start(host, &prebuilt("")).await;
        let id = output(&environment, "hostname").await;
        engine.kill_container(&id, None::<bollard::query_parameters::KillContainerOptions>).await.unwrap();
        let error = environment.exec(command("true")).await.unwrap_err();
        assert_eq!(error.to_string(), "the container has ended with exit code 137");
        let removal = bollard::query_parameters::RemoveContainerOptions { force: true, ..Default::default() };
        engine.remove_container(&id, Some(removal)).await.unwrap();
        assert!(matches!(environment.exec(command("true")).await, Err(EnvironmentError::Ended { .. })));
        assert!(environment.open_terminal(TerminalSize::default(), BTreeMap::new()).await.is_err());
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
        assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
        assert!(engine.inspect_container(&id, None::<InspectContainerOptions>).await.is_err());
    })
    .await;
}

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

#[tokio::test]
#[ignore = "needs Docker: run scripts/test"]
async fn bundled_tasks_are_solved_by_their_solutions_and_not_without() {
    with_host(async |host, _| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for name in ["examples/tasks/hello-file", "examples/tasks/count-errors", "tests/tasks/hello-prebuilt"]
        {
            let task = Task::load(&root.join(name)).unwrap();
            let environment = start(host, &task).await;
            assert_eq!(environment.instruction(&task.instruction), task.instruction);
            let logs = tempfile::tempdir().unwrap();
            assert_eq!(
                verify(&task, &environment, &log_dirs(logs.path())).await.unwrap().reward,
                Some(0.0),
                "{name} before"
            );
            environment.upload(&task.solution_dir(), "/solution").await.unwrap();
            output(&environment, "/solution/solve.sh").await;
            assert_eq!(
                verify(&task, &environment, &log_dirs(logs.path())).await.unwrap().reward,
                Some(1.0),
                "{name} after"
            );
            assert!(logs.path().join("verifier/test-stdout.txt").is_file());
            environment.stop().await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
#[ignore = "needs Docker: run scripts/test"]
async fn tests_run_as_their_user_and_out_of_time_in_time() {
    with_host(async |host, _| {
        let script =
            "#!/bin/bash\nid -u >/logs/verifier/who; echo 1 >/logs/verifier/reward.txt; sleep 7901\n";
        let toml =
            format!("[environment]\ndocker_image = \"{IMAGE}\"\n[verifier]\ntimeout_sec = 1\nuser = 1000\n");
        let dir = task_dir(&toml, &[]);
        fs::write(dir.path().join("tests/test.sh"), script).unwrap();
        let task = Task::load(dir.path()).unwrap();
        let environment = start(host, &task).await;
        output(&environment, "echo 0.5 >/logs/verifier/reward.json").await;
        let logs = tempfile::tempdir().unwrap();
        let error = verify(&task, &environment, &log_dirs(logs.path())).await.unwrap_err();
        assert_eq!(error.failure_cause(), "VerifierTimeoutError");
        assert_eq!(fs::read_to_string(logs.path().join("verifier").join("who")).unwrap(), "1000\n");
        assert!(!logs.path().join("verifier").join("reward.json").exists());
        assert!(!processes(&environment).await.contains("sleep 7901"));
    })
    .await;
}

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
