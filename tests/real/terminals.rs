//! The terminal agent's two terminals with real programs in them, tmux in a container, and its trajectory read by
//! Harbor.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rolltap_agent::terminal::{
    CommandOutput, Observation, Ran, RunCommand, Terminal, TerminalSize, TmuxSession,
};
use rolltap_agent::type_commands;
use rolltap_sim as sim;
use rolltap_testing::limit;
use serde_json::json;
use tempfile::TempDir;

use crate::harbor::task_with_tmux;
use crate::harness::testbed;
use crate::program::{Job, text};

/// The model writes the file, is asked for a confirmation, and confirms.
const SCRIPT: &str = r#"
[[conversation]]
[[conversation.turn]]
[[conversation.turn.answer]]
content = '''{"analysis": "A file is wanted.", "plan": "Write it.", "commands": [{"keystrokes": "tmux display -p 'in #S'; echo 'Hello, world!' > hello.txt\n", "duration": 0.5}]}'''
[[conversation.turn]]
[[conversation.turn.answer]]
content = '''{"analysis": "It is there.", "plan": "None.", "commands": [], "task_complete": true}'''
"#;

/// Runs tmux's commands on this host, for a server with a socket of its own. The server ends when this is dropped.
struct Host(TempDir);

impl Host {
    fn new() -> (Self, TmuxSession) {
        let dir = TempDir::new().unwrap();
        let socket = dir.path().join("socket").display().to_string();
        let session = TmuxSession { name: "s".into(), socket: Some(socket), ..TmuxSession::default() };
        (Self(dir), session)
    }
}

impl RunCommand for Host {
    fn run(&self, command: String) -> Ran<'_> {
        Box::pin(async move {
            let shell = tokio::task::spawn_blocking(move || {
                Command::new("sh").args(["-c", &command]).env("PS1", "$ ").stdin(Stdio::null()).output()
            });
            let output = shell.await.map_err(io::Error::other)??;
            let success = output.status.success();
            Ok(CommandOutput { success, stdout: output.stdout, stderr: output.stderr })
        })
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let socket = self.0.path().join("socket");
        // If the shell has exited, the server is gone already.
        let _gone = Command::new("tmux").arg("-S").arg(socket).arg("kill-server").output();
    }
}

async fn in_tmux() -> Terminal {
    let (host, session) = Host::new();
    Terminal::tmux(host, session).await.unwrap()
}

/// Returns a terminal with a bash, which ends with the terminal.
fn in_streams() -> Terminal {
    let size = TerminalSize::default();
    let (pty, inner) = pty_process::open().unwrap();
    pty.resize(pty_process::Size::new(size.rows, size.cols)).unwrap();
    let shell = pty_process::Command::new("bash").env("TERM", "xterm-256color").spawn(inner).unwrap();
    drop(shell);
    let (reader, writer) = pty.into_split();
    Terminal::new(reader, writer, size)
}

/// Types these keystrokes and polls until the screen contains this text.
async fn type_until(terminal: &Terminal, keystrokes: &str, wanted: &str) {
    terminal.send_keys(keystrokes).await.unwrap();
    let looking = async {
        while !terminal.screen().await.contains(wanted) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let in_time = tokio::time::timeout(limit(30), looking).await;
    assert!(in_time.is_ok(), "{keystrokes:?} gave no {wanted:?} in:\n{}", terminal.screen().await);
}

/// Waits for a shell, and sets a prompt that no test types.
async fn ready(terminal: &Terminal, dir: &Path) {
    type_commands::wait_for_prompt(terminal).await;
    type_until(terminal, &format!("cd {}; PS1='re''ady> '; clear\n", dir.display()), "ready>").await;
    terminal.observe().await;
}

async fn interactive_programs_work(terminal: &Terminal) {
    let dir = TempDir::new().unwrap();
    ready(terminal, dir.path()).await;

    let lines: String = (1..=200).map(|number| format!("line {number}\n")).collect();
    std::fs::write(dir.path().join("lines"), lines).unwrap();
    type_until(terminal, "less lines\n", "line 39").await;
    assert!(
        matches!(terminal.observe().await, Observation::Screen(screen) if screen.starts_with("line 1\n"))
    );
    type_until(terminal, "G", "line 200").await;
    type_until(terminal, "PageUp", "line 125").await;
    type_until(terminal, "q", "ready>").await;

    type_until(terminal, "vim -u NONE -i NONE new\n", "\"new\"").await;
    type_until(terminal, "ihello", "hello").await;
    terminal.send_keys("Escape").await.unwrap();
    type_until(terminal, ":wq\n", "ready>").await;
    assert_eq!(std::fs::read_to_string(dir.path().join("new")).unwrap(), "hello\n");

    let python = testbed("ROLLTAP_TESTBED_PYTHON");
    type_until(terminal, &format!("{python} -q\n"), ">>>").await;
    type_until(terminal, "6 * 7 * 1000\n", "42000").await;
    type_until(terminal, "C-d", "ready>").await;

    let text = format!("{}\n", "0123456789 'quoted' ; ".repeat(40)).repeat(200);
    type_until(terminal, "cat > big; echo read-$((40+2))\n", "cat > big").await;
    terminal.send_keys(&text).await.unwrap();
    type_until(terminal, "C-d", "read-42").await;
    assert!(std::fs::read_to_string(dir.path().join("big")).unwrap() == text);
}

async fn observations_contain_the_new_output(terminal: &Terminal) {
    let dir = TempDir::new().unwrap();
    ready(terminal, dir.path()).await;
    type_until(terminal, "echo one;\n", "one\nready>").await;
    assert_eq!(terminal.observe().await, Observation::NewOutput("ready> echo one;\none\nready>".into()));
    assert_eq!(terminal.observe().await, Observation::Screen("ready> echo one;\none\nready>".into()));
    type_until(terminal, "seq 500\n", "\n500\nready>").await;
    let Observation::NewOutput(new) = terminal.observe().await else { panic!("nothing new") };
    assert!(new.starts_with("ready> seq 500\n1\n2\n") && new.ends_with("\n500\nready>"), "{new}");
    type_until(terminal, "seq 7000\n", "\n7000\nready>").await;
    let Observation::NewOutput(new) = terminal.observe().await else { panic!("nothing new") };
    assert!(new.starts_with("ready> seq 7000\n1\n2\n") && new.contains("left out here"), "{new}");
    type_until(terminal, "echo two\n", "two\nready>").await;
    assert_eq!(terminal.observe().await, Observation::NewOutput("ready> echo two\ntwo\nready>".into()));
    terminal.send_keys("exit\n").await.unwrap();
    tokio::time::timeout(limit(30), terminal.closed()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs less, vim, Python and tmux: run ./scripts/test"]
async fn a_session_of_tmux_is_a_terminal() {
    observations_contain_the_new_output(&in_tmux().await).await;
    interactive_programs_work(&in_tmux().await).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs less, vim and Python: run ./scripts/test"]
async fn a_pseudo_terminal_is_a_terminal() {
    observations_contain_the_new_output(&in_streams()).await;
    interactive_programs_work(&in_streams()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker, tmux and Harbor: run ./scripts/test"]
async fn the_agent_works_in_tmux_in_a_container_and_harbor_reads_its_trajectory() {
    let script = Some(sim::Script::from_toml(SCRIPT, "script").unwrap());
    let upstream = sim::start(sim::Settings { script, ..sim::Settings::default() }).await.unwrap();
    let task = TempDir::new().unwrap();
    task_with_tmux(task.path());
    let job = Job::new("tmux");
    let mut command = job.command(&["-a", "terminal", "--ak", "tmux=true", "-e", "docker"]);
    command.arg("--upstream").arg(format!("http://{}", upstream.addr())).arg("-p").arg(task.path());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    assert_eq!(job.rows().iter().map(|row| row.reward).collect::<Vec<_>>(), [Some(1.0)]);

    let entries = std::fs::read_dir(job.dir()).unwrap().map(|entry| entry.unwrap().path());
    let trajectory =
        entries.map(|path| path.join("agent/trajectory.json")).find(|path| path.is_file()).unwrap();
    let read = "import json, sys\n\
        from harbor.models.trajectories import Trajectory\n\
        told = Trajectory.model_validate_json(open(sys.argv[1]).read())\n\
        calls = [call.function_name for step in told.steps for call in step.tool_calls or []]\n\
        seen = told.steps[1].observation.results[0].content\n\
        print(json.dumps([told.agent.name, len(told.steps), calls, 'in rolltap' in seen]))";
    let python = format!("{}/python", testbed("ROLLTAP_TESTBED_CLIENTS"));
    let output = Command::new(python).args(["-c", read]).arg(trajectory).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let calls = ["bash_command", "mark_task_complete", "mark_task_complete"];
    assert_eq!(told, json!(["terminal", 4, calls, true]));
    assert_eq!(job.left_in_docker(), Vec::<String>::new());
}
