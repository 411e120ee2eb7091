//! A job whose directory is on a disk that fills up.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rolltap_testing::{limit, until};
use serde_json::Value;

use super::jobs::{results, task};
use super::program::{Ended, Running, rolltap, run};
use super::small_disk::SmallDisk;

/// Returns a test script. Its second run waits for a file `go`, and all others pass.
fn waiting(dir: &Path) -> String {
    let dir = dir.display();
    format!(
        "if ! mkdir {dir}/first 2> /dev/null && mkdir {dir}/second 2> /dev/null; then\n\
         until [ -e {dir}/go ]; do sleep 0.05; done\n\
         fi\n\
         echo 1 > /logs/verifier/reward.txt"
    )
}

/// Returns the same command within the mount namespace of the disk.
fn within(disk: &SmallDisk, command: &Command) -> Command {
    let entry = disk.entry();
    let (program, before) = entry.split_first().unwrap();
    let mut entered = Command::new(program);
    entered.args(before).arg(command.get_program()).args(command.get_args());
    entered.current_dir(command.get_current_dir().unwrap());
    entered
}

/// Returns all JSON files of the job.
fn records(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let (dirs, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let files = files.into_iter().filter(|path| path.extension().is_some_and(|name| name == "json"));
    files.chain(dirs.iter().flat_map(|dir| records(dir))).collect()
}

#[test]
fn a_job_on_a_full_disk_stops_with_a_reason_and_resumes_when_there_is_space() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(&dir.path().join("jobs"), 8) else { return };
    let task = task(dir.path(), "one", &waiting(dir.path())).display().to_string();
    let args = ["run", "-p", &task, "-a", "nop", "-e", "local", "-k", "4", "-n", "1", "--job-name", "it"];
    let mut command = rolltap(dir.path(), &args);
    command.arg("--jobs-dir").arg(&disk.within);
    let said = dir.path().join("said");
    let stage = Running::logging_to(&mut within(&disk, &command), fs::File::create(&said).unwrap());
    until("the second trial is judged", || dir.path().join("second").exists());
    disk.fill();
    fs::write(dir.path().join("go"), "").unwrap();
    let (code, stdout) = stage.wait_for_output(limit(60));
    let said = format!("{stdout}\n{}", fs::read_to_string(&said).unwrap());
    assert_eq!(code, Some(1), "{said}");
    assert!(stdout.contains("No space left on device"), "{said}");
    assert!(stdout.contains("no further trial was started"), "{said}");
    assert!(stdout.contains("2 of 4 trials did not run"), "{said}");
    let job = disk.outside.join("it");
    assert!(stdout.contains("rollouts.parquet: No space left on device"), "{said}");
    for file in fs::read_dir(&job).unwrap().map(|entry| entry.unwrap().file_name()) {
        let name = file.to_string_lossy();
        assert!(!name.starts_with("rollouts."), "{name} is left, and is no whole file: {said}");
    }
    for record in records(&job) {
        let text = fs::read_to_string(&record).unwrap();
        assert!(serde_json::from_str::<Value>(&text).is_ok(), "{}: {text}", record.display());
    }

    disk.free();
    let ended = Ended::from(within(&disk, &command).output().unwrap());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let mut solved: Vec<_> = results(&job)
        .iter()
        .filter(|result| result["verifier_result"]["rewards"]["reward"] == 1.0)
        .map(|result| result["config"]["rolltap"]["sample_index"].as_u64().unwrap())
        .collect();
    solved.sort_unstable();
    assert_eq!(solved, [0, 1, 2, 3], "each sample once: {ended:?}");
    let checked = run(&job, &["check", "."]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
}
