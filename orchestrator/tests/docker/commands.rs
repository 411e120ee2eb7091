//! Commands and terminals in a container.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rolltap_agent::terminal::TerminalSize;
use rolltap_orchestrator::environment::{Exec, ExecOutput, OUTPUT_LIMIT, TerminalStreams};
use rolltap_testing::limit;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::harness::{command, prebuilt, processes, run, start, with_host};

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
        assert!(begun.elapsed() < limit(60), "{:?}", begun.elapsed());
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
            let exec = Exec { user: user.clone(), timeout: Some(Duration::from_secs(3)), ..command(script) };
            let done = environment.exec(exec).await.unwrap();
            assert!(done.timed_out && done.exit_code.is_none());
            assert_eq!(done.stdout, b"begun\n");
            assert!(begun.elapsed() < limit(60), "{:?}", begun.elapsed());
            let left = processes(&environment).await;
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

/// Types a text and reads until the screen holds all of `wanted`.
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
    let timely = tokio::time::timeout(limit(20), reading).await;
    assert!(timely.is_ok(), "waited in vain for {wanted:?}: {screen}");
    screen
}

/// The process leaves its session, clears its environment and ignores signals, and is killed all the same. A service
/// that an earlier command started survives.
#[tokio::test]
#[ignore = "needs Docker: run scripts/test"]
async fn a_timeout_kills_what_was_left_to_the_first_process_where_that_is_asked_for() {
    with_host(async |host, _| {
        let environment = start(host, &prebuilt("")).await;
        run(&environment, "setsid sh -c 'while :; do sleep 0.1; : service; done' >/dev/null 2>&1 &").await;
        // The kernel counts in hundredths of a second, and the service must be older than the escaping process.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let escape = "(env -i /usr/bin/setsid /bin/sh -c 'trap \"\" TERM; while :; do /bin/sleep 0.1; : escaped; done' &) \
                      >/dev/null 2>&1; sleep 60";
        let exec = Exec { timeout: Some(Duration::from_secs(2)), kills_orphans: true, ..command(escape) };
        assert!(environment.exec(exec).await.unwrap().timed_out);
        let left = processes(&environment).await;
        assert!(left.contains(": service") && !left.contains(": escaped"), "{left}");
    })
    .await;
}

#[tokio::test]
#[ignore = "needs Docker: run scripts/test"]
async fn a_terminal_has_a_size_a_shell_and_takes_any_byte() {
    with_host(async |host, _| {
        let environment = start(host, &prebuilt("workdir = \"/work\"\n")).await;
        let size = TerminalSize { rows: 33, cols: 111 };
        let env = BTreeMap::from([("MINE".to_owned(), "mine".to_owned())]);
        let mut terminal = environment.open_terminal(size, env, None).await.unwrap();
        let screen = converse(
            &mut terminal,
            "stty size; echo $TERM-$MINE; pwd; shopt -q login_shell && echo log''in\n",
            &["33 111", "xterm-256color-mine", "/work\r\n", "login\r\n"],
        )
        .await;
        assert!(screen.contains("stty size"), "typing is echoed: {screen}");
        // These bytes look like the frame headers of outputs without a terminal.
        converse(&mut terminal, "clear; sleep 0.3; printf '\\0\\0\\0'; sleep 0.3; printf '\\1\\377\\377\\377\\377\\377\\377\\377'; echo af''ter\n", &["after\r\n"]).await;
        converse(&mut terminal, "echo go''ing; sleep 1000\n", &["going\r\n"]).await;
        // Bash itself may lose an interrupt between two commands.
        tokio::time::sleep(Duration::from_millis(500)).await;
        converse(&mut terminal, "\u{3}", &["^C"]).await;
        converse(&mut terminal, "echo inter''rupted\n", &["interrupted\r\n"]).await;
        terminal.writer.write_all(b"exit\n").await.unwrap();
        let end = async { while terminal.reader.read(&mut [0; 1024]).await.unwrap_or(0) > 0 {} };
        tokio::time::timeout(limit(10), end).await.unwrap();
    })
    .await;
}
