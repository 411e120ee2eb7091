//! `rolltap run` in Docker, killed without warning at five moments, and then resumed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::program::{Job, check, text};

const SAMPLES: i32 = 4;
const KILLS: usize = 5;

/// A simulated model that answers with the completion. It ends with the test.
struct Model {
    child: std::process::Child,
    url: String,
}

impl Model {
    fn start(dir: &std::path::Path) -> Self {
        let script = dir.join("script.toml");
        let answer = r#"content = '{"analysis": "", "plan": "", "commands": [], "task_complete": true}'"#;
        fs::write(
            &script,
            format!("[[conversation]]\n[[conversation.turn]]\n[[conversation.turn.answer]]\n{answer}\n"),
        )
        .unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_rolltap"));
        command.args(["sim", "--listen", "127.0.0.1:0", "--script"]).arg(&script);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.split_whitespace().last().unwrap().to_owned();
        Self { child, url }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the number of events before each kill. The numbers are printed if the test fails.
fn moments() -> Vec<usize> {
    let mut state = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        1 + (state >> 33) as usize % 14
    };
    (0..KILLS).map(|_| next()).collect()
}

#[test]
#[ignore = "needs Docker: run ./scripts/test"]
fn a_job_killed_at_five_moments_ends_with_every_sample_once_and_nothing_left_over() {
    let dir = tempfile::tempdir().unwrap();
    let model = Model::start(dir.path());
    let job = Job::new("killed");
    let manifest = env!("CARGO_MANIFEST_DIR");
    let tasks = [
        format!("{manifest}/tests/tasks/hello-prebuilt"),
        dir.path().join("tasks/second").display().to_string(),
    ];
    copy_second(&tasks[0], &tasks[1]);
    let samples = SAMPLES.to_string();
    let arguments = [
        "-p",
        &tasks[0],
        "-p",
        &tasks[1],
        "-a",
        "terminal",
        "-k",
        &samples,
        "-n",
        "2",
        "--upstream",
        &model.url,
        "--json",
    ];
    let moments = moments();
    for moment in &moments {
        let mut command = job.command(&arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let events = BufReader::new(child.stdout.take().unwrap()).lines().take(*moment);
        assert!(events.flatten().all(|event| event.starts_with('{')));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let output = job.command(&arguments).output().unwrap();
    let said = format!("kills after {moments:?} events\n{}{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}");
    let rows = job.rows();
    let mut counting: BTreeMap<String, BTreeSet<(i32, String)>> = BTreeMap::new();
    for row in rows.iter().filter(|row| !row.superseded) {
        let sample = (row.sample_index, row.trial_id.to_string());
        counting.entry(row.task_id.to_string()).or_default().insert(sample);
    }
    assert_eq!(counting.len(), 2, "{said}");
    for (task, trials) in counting {
        let indices: Vec<_> = trials.iter().map(|(index, _)| *index).collect();
        assert_eq!(
            indices,
            (0..SAMPLES).collect::<Vec<_>>(),
            "{task}: each sample once, by one attempt; {said}"
        );
    }
    // The rows match the captures of their own trials, and no others.
    let checked = check(&job.dir());
    assert!(checked.status.success(), "{}{}; {said}", text(&checked.stdout), text(&checked.stderr));
    assert_eq!(job.left_in_docker(), Vec::<String>::new(), "{said}");
}

/// Copies the task under another name.
fn copy_second(from: &str, to: &str) {
    let copied =
        Command::new("sh").args(["-c", "mkdir -p \"$2\" && cp -r \"$1\"/. \"$2\"", "sh", from, to]).status();
    assert!(copied.unwrap().success());
    let config = format!("{to}/task.toml");
    let renamed = fs::read_to_string(&config).unwrap().replace("rolltap/hello-prebuilt", "rolltap/second");
    fs::write(config, renamed).unwrap();
}
