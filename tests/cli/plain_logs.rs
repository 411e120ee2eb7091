//! A job's output for people is plain text: no debug forms of Rust values, and no colour codes of other programs.

use std::fs;
use std::path::{Path, PathBuf};

use super::jobs::task;
use super::program::{Ended, run};

fn run_job(dir: &Path, task: &Path, more: &[&str]) -> Ended {
    let args = ["run", "-p", task.to_str().unwrap(), "-a", "nop", "-e", "local", "--job-name", "it"];
    run(dir, &[&args[..], more].concat())
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let (dirs, files): (Vec<_>, Vec<_>) =
        dir.read_dir().unwrap().map(|entry| entry.unwrap().path()).partition(|path| path.is_dir());
    files.into_iter().chain(dirs.iter().flat_map(|dir| self::files(dir))).collect()
}

/// Returns the concatenated text of all files of this name below the directory.
fn texts(dir: &Path, name: &str) -> String {
    let named = files(dir).into_iter().filter(|path| path.file_name().is_some_and(|found| found == name));
    named.map(|path| fs::read_to_string(path).unwrap()).collect()
}

#[test]
fn logs_have_rewards_and_failures_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let good = task(dir.path(), "good", "echo 1 > /logs/verifier/reward.txt");
    task(dir.path(), "mute", "true");
    let ended = run_job(dir.path(), good.parent().unwrap(), &[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let log = texts(&dir.path().join("jobs"), "job.log");
    assert!(log.contains(" ended with reward 1\n"), "{log}");
    assert!(log.contains(" ended without a reward: RewardFileNotFoundError in phase verifier: "), "{log}");
    assert!(log.contains("2 trials to run\n"), "{log}");
    let trials = texts(&dir.path().join("jobs"), "trial.log");
    assert!(trials.contains(" the tests gave reward 1\n"), "{trials}");
    for form in ["Some(", "None", "{\""] {
        assert!(!log.contains(form) && !trials.contains(form), "{form}: {log}\n{trials}");
    }
}

#[test]
fn colour_codes_of_what_an_environment_prints_reach_no_record() {
    let dir = tempfile::tempdir().unwrap();
    let task = task(dir.path(), "one", "true");
    let check = r#"command = "printf '\\033[91mthe database \\033[1mis down\\033[0m\\n'; exit 1""#;
    let config = format!(
        "[environment]\ndocker_image = \"unused\"\n[environment.healthcheck]\n{check}\nretries = 1\ninterval_sec = 0.01\n"
    );
    fs::write(task.join("task.toml"), config).unwrap();
    let ended = run_job(dir.path(), &task, &[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let job = dir.path().join("jobs/it");
    for name in ["exception.txt", "trial.log", "job.log", "result.json"] {
        assert!(texts(&job, name).contains("the database is down"), "{name}: {}", texts(&job, name));
    }
    assert!(ended.stderr.contains("the database is down"), "{}", ended.stderr);
    let said = [ended.stdout, ended.stderr].concat();
    assert!(!said.contains('\u{1b}'), "{said:?}");
    let is_text = |file: &PathBuf| {
        file.extension().is_some_and(|name| ["json", "log", "txt"].iter().any(|text| name == *text))
    };
    for file in files(&job).into_iter().filter(is_text) {
        let text = fs::read_to_string(&file).unwrap();
        let has_codes = text.contains('\u{1b}') || text.contains("\\u001b");
        assert!(!has_codes, "{}", file.display());
    }
}

#[test]
fn keys_that_harbor_does_not_know_are_one_line_per_job_with_their_number() {
    let dir = tempfile::tempdir().unwrap();
    let mut tasks = PathBuf::new();
    for (name, more) in [("one", ""), ("two", ""), ("three", "[agent]\ntimeuot_sec = 5\n")] {
        let task = task(dir.path(), name, "echo 1 > /logs/verifier/reward.txt");
        let config = format!(
            "[task]\nname = \"a/{name}\"\nformat = 1\n[environment]\ndocker_image = \"unused\"\n{more}"
        );
        fs::write(task.join("task.toml"), config).unwrap();
        tasks = task.parent().unwrap().to_owned();
    }
    let ended = run_job(dir.path(), &tasks, &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let lines: Vec<_> = ended.stderr.lines().filter(|line| line.contains("Harbor does not know")).collect();
    let [line] = lines.as_slice() else { panic!("{}", ended.stderr) };
    assert!(line.contains("task.format (3 tasks, such as "), "{line}");
    assert!(line.contains("agent.timeuot_sec (") && !line.contains('?'), "{line}");
}
