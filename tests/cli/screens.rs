//! The screens of `rolltap run`, in a terminal emulator and through a pipe. Times, token counts and names are replaced.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use pty_process::blocking::Command;
use regex::Regex;
use rolltap_testing::limit;

use super::jobs::task;
use super::program::{Running, rolltap, run, simulator};

/// The script of a model that declares each task complete at once.
const MODEL: &str = r#"
[[conversation]]
[[conversation.turn]]
[[conversation.turn.answer]]
content = '{"analysis": "Nothing is to be done.", "plan": "Finish.", "commands": [], "task_complete": true}'
"#;

/// A terminal with a program in it.
struct Terminal {
    child: Child,
    parser: Arc<Mutex<vt100::Parser>>,
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: Option<thread::JoinHandle<()>>,
}

impl Terminal {
    fn start(dir: &Path, args: &[String], width: u16, height: u16, env: &[(&str, &str)]) -> Self {
        let (mut pty, pts) = pty_process::blocking::open().unwrap();
        pty.resize(pty_process::Size::new(height, width)).unwrap();
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        let mut command = rolltap(dir, &args);
        for (name, _) in std::env::vars().filter(|(name, _)| name.contains("COLOR") || name == "CI") {
            command.env_remove(name);
        }
        command.env("TERM", "xterm-256color").envs(env.iter().copied());
        let child = Command::from(command).spawn(pts).unwrap();
        let parser = Arc::new(Mutex::new(vt100::Parser::new(
            height.try_into().unwrap(),
            width.try_into().unwrap(),
            0,
        )));
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let (screen, all) = (Arc::clone(&parser), Arc::clone(&bytes));
        let reader = thread::spawn(move || {
            let mut buffer = [0; 4096];
            // A pty without a program gives an error instead of an end.
            while let Ok(length @ 1..) = pty.read(&mut buffer) {
                let read = &buffer[..length];
                screen.lock().unwrap().process(read);
                all.lock().unwrap().extend_from_slice(read);
            }
        });
        Self { child, parser, bytes, reader: Some(reader) }
    }

    /// Returns the rows of the screen, with the name of each colour before its text.
    fn rows(&self) -> String {
        let parser = self.parser.lock().unwrap();
        let screen = parser.screen();
        let (height, width) = screen.size();
        let rows = (0..height.get()).map(|row| {
            let mut text = String::new();
            let mut last = "";
            for cell in (0..width.get()).filter_map(|column| screen.cell(row, column)) {
                let colour = name_of(cell);
                if colour != last {
                    text.push_str(&format!("<{}>", if colour.is_empty() { "/" } else { colour }));
                    last = colour;
                }
                let contents = cell.contents();
                text.push_str(if contents.is_empty() { " " } else { contents });
            }
            text.trim_end().to_owned()
        });
        rows.collect::<Vec<_>>().join("\n").trim_end().to_owned()
    }

    /// Waits until the screen shows a state, and returns it.
    fn wait_for(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + limit(60);
        loop {
            let rows = self.rows();
            if is_so(&rows) {
                return rows;
            }
            assert!(Instant::now() < deadline, "the screen does not show {what}:\n{rows}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for the end of the program. Returns its exit status, the last screen and all bytes.
    fn end(mut self) -> (ExitStatus, String, String) {
        let status = self.child.wait().unwrap();
        self.reader.take().unwrap().join().unwrap();
        let bytes = String::from_utf8(self.bytes.lock().unwrap().clone()).unwrap();
        (status, self.rows(), bytes)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}

fn name_of(cell: &vt100::Cell) -> &'static str {
    match cell.fgcolor() {
        vt100::Color::Idx(1) => "red",
        vt100::Color::Idx(2) => "green",
        vt100::Color::Idx(3) => "yellow",
        vt100::Color::Default if cell.bold() => "bold",
        vt100::Color::Default if cell.dim() => "dim",
        vt100::Color::Default => "",
        _ => "another",
    }
}

/// A job of four tasks, two samples each: rewards 1 and 0, a failure, and a reward 1 once the file `release` exists.
struct Job {
    dir: tempfile::TempDir,
    _sim: Running,
    args: Vec<String>,
}

impl Job {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let wait = format!("until [ -e {}/release ]; do sleep 0.05; done", dir.path().display());
        for (name, test) in [
            ("add-tests", "echo 1 > /logs/verifier/reward.txt".to_owned()),
            ("broken", "true".to_owned()),
            ("count", "echo 0 > /logs/verifier/reward.txt".to_owned()),
            ("wait", format!("{wait}; echo 1 > /logs/verifier/reward.txt")),
        ] {
            task(dir.path(), name, &test);
        }
        let check =
            "[environment.healthcheck]\ncommand = \"echo the database is down; exit 1\"\nretries = 1\n";
        let config = format!("[environment]\ndocker_image = \"unused\"\n{check}interval_sec = 0.01\n");
        fs::write(dir.path().join("tasks/broken/task.toml"), config).unwrap();
        let (sim, upstream) = simulator(dir.path(), Some(MODEL));
        let args = [
            "run",
            "-p",
            "tasks",
            "-a",
            "terminal",
            "-e",
            "local",
            "--job-name",
            "it",
            "-k",
            "2",
            "-n",
            "2",
            "--upstream",
            &upstream,
        ];
        let args = args.map(str::to_owned).to_vec();
        Self { dir, _sim: sim, args }
    }

    fn in_terminal(&self, width: u16, env: &[(&str, &str)]) -> Terminal {
        Terminal::start(self.dir.path(), &self.args, width, 80, env)
    }

    fn release(&self) {
        File::create(self.dir.path().join("release")).unwrap();
    }

    /// Replaces what differs between two runs by text of the same width.
    fn normalised(&self, text: &str) -> String {
        let replaced = |text: &str, pattern: &str, by: &str| {
            Regex::new(pattern).unwrap().replace_all(text, by).into_owned()
        };
        let text = text.replace(&self.dir.path().display().to_string(), "[dir]");
        let text = replaced(&text, r"\b\d+:\d\d\b", "0:00");
        let text = replaced(&text, r" *[\d.]+k? tokens/s", "  N tokens/s");
        let text = replaced(&text, r"[\d ]+ in, [\d ]+ sampled", " N in, N sampled");
        let text = replaced(&text, r"\[\d/8\]", "[N/8]");
        let text = replaced(&text, r"\d+\.\d s\b", "N s");
        let names = replaced(&text, r"__[A-Za-z0-9]{7}", "__XXXXXXX");
        // Columns with times and tokens are right-aligned, and their headers are wider than their numbers.
        let cells = Regex::new(r"(?P<space> +)(?P<number>\d+\.\d|\d{2,}) (?P<border>[┆│])").unwrap();
        let cell = |found: &regex::Captures<'_>| {
            let width = found["space"].len() + found["number"].len();
            format!("{:>width$} {}", "N", &found["border"])
        };
        cells.replace_all(&names, cell).into_owned()
    }
}

/// Whether the screen shows the state in which only the waiting trials are left, and all their calls are read.
fn only_two_wait(screen: &str) -> bool {
    let waits = |line: &&str| {
        line.trim_start().starts_with("wait #") && line.contains("verifier") && line.contains("call")
    };
    screen.contains("6/8 trials") && screen.lines().filter(waits).count() == 2
}

/// Runs the job in a terminal of this width. Returns a screen of the running job and the last screen.
fn screens(width: u16, env: &[(&str, &str)]) -> (String, String, String) {
    let job = Job::new();
    let terminal = job.in_terminal(width, env);
    let running = terminal.wait_for("two waiting trials", only_two_wait);
    job.release();
    let (status, last, bytes) = terminal.end();
    assert_eq!(status.code(), Some(1), "{last}");
    (job.normalised(&running), job.normalised(&last), bytes)
}

#[test]
fn a_terminal_of_80_columns() {
    let (running, last, _) = screens(80, &[]);
    insta::assert_snapshot!("80_columns_running", running);
    insta::assert_snapshot!("80_columns_end", last);
}

#[test]
fn a_terminal_of_140_columns() {
    let (running, last, _) = screens(140, &[]);
    insta::assert_snapshot!("140_columns_running", running);
    insta::assert_snapshot!("140_columns_end", last);
}

#[test]
fn without_colours_the_screen_is_the_same() {
    let (running, last, bytes) = screens(80, &[("NO_COLOR", "1")]);
    insta::assert_snapshot!("no_colour_running", running);
    insta::assert_snapshot!("no_colour_end", last);
    let colours = Regex::new("\u{1b}\\[[0-9;]+m").unwrap();
    assert!(!colours.is_match(&bytes), "{bytes:?}");
}

#[test]
fn a_dumb_terminal_gets_lines_without_escape_sequences() {
    let job = Job::new();
    job.release();
    let (status, last, bytes) = job.in_terminal(140, &[("TERM", "dumb")]).end();
    assert_eq!(status.code(), Some(1), "{last}");
    assert!(!bytes.contains('\u{1b}'), "{bytes:?}");
    assert!(last.contains("8 trials to run, 2 at a time") && last.contains("/8] broken__"), "{last}");
}

#[test]
fn a_pipe_gets_lines_without_escape_sequences() {
    let job = Job::new();
    job.release();
    let args: Vec<_> = job.args.iter().map(String::as_str).collect();
    let ended = run(job.dir.path(), &args);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(!ended.stdout.contains('\u{1b}') && !ended.stderr.contains('\u{1b}'), "{ended:?}");
    // On a slow machine, long work and minutes have lines of their own.
    let is_slow =
        |line: &str| line.ends_with(" …") || line.contains(": ended after ") || line.contains(" running");
    let lines = ended.stderr.lines().filter(|line| !is_slow(line));
    let mut lines: Vec<_> = lines.map(|line| job.normalised(line)).collect();
    // Two trials run at the same time, so only the first lines have an order.
    lines[2..].sort();
    insta::assert_snapshot!("pipe_stderr", lines.join("\n"));
    insta::assert_snapshot!("pipe_stdout", job.normalised(&ended.stdout));
}

#[test]
fn colours_can_be_forced_into_a_pipe() {
    let job = Job::new();
    job.release();
    let args: Vec<_> = job.args.iter().map(String::as_str).collect();
    let output = rolltap(job.dir.path(), &args).env("CLICOLOR_FORCE", "1").output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(stdout.contains("\u{1b}[31m"), "{stdout}");
}

#[test]
fn rows_are_left_out_if_they_are_many_and_the_totals_stay() {
    let dir = tempfile::tempdir().unwrap();
    let task = task(dir.path(), "one", "echo 1 > /logs/verifier/reward.txt");
    let summary = |rows: &[&str]| {
        let args = [
            "run",
            "-p",
            task.to_str().unwrap(),
            "-a",
            "nop",
            "-e",
            "local",
            "--job-name",
            "it",
            "-k",
            "3",
            "-q",
        ];
        let ended = run(dir.path(), &[&args[..], rows].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.stdout
    };
    let (few, many) = (summary(&["--rows", "2"]), summary(&["--rows", "all"]));
    assert!(few.contains("no row for each of 3 trials: --rows all prints them"), "{few}");
    assert!(!few.contains("sample") && many.contains("sample"), "{few}\n{many}");
    for summary in [few, many] {
        assert!(
            summary.contains("3 trials in 0:") && summary.contains("mean reward 1 of 3 rewards"),
            "{summary}"
        );
    }
    let ended = run(dir.path(), &["run", "-p", "one", "-a", "nop", "--rows", "many"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("expected a number or \"all\""), "{}", ended.stderr);
}
