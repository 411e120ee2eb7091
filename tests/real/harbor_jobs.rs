//! Jobs compared with Harbor: both run the same file, and Harbor's own reader reads rolltap's output.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::testbed;
use crate::program::text;

/// The test script of each task of each dataset. The oracle's solution leaves `/app/state`.
const TASKS: [(&str, &str); 6] = [
    (
        "plain/solved",
        "grep -q done /app/state && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt",
    ),
    ("plain/exits", "echo 1 > /logs/verifier/reward.txt; exit 7"),
    (
        "odd/several",
        "echo '{\"reward\": 0.5, \"style\": 3}' > /logs/verifier/reward.json; echo 1 > /logs/verifier/reward.txt",
    ),
    ("odd/nothing", "true"),
    ("odd/empty", ": > /logs/verifier/reward.txt"),
    ("odd/words", "echo pass > /logs/verifier/reward.txt"),
];

fn tasks(dir: &Path) {
    let image = testbed("ROLLTAP_TESTBED_PREBUILT");
    for (name, test) in TASKS {
        let task = dir.join(name);
        for folder in ["tests", "solution", "environment"] {
            fs::create_dir_all(task.join(folder)).unwrap();
        }
        let config = format!(
            "schema_version = \"1.4\"\n[task]\nname = \"{name}\"\n[agent]\ntimeout_sec = 1200.0\n\
             [verifier]\ntimeout_sec = 1200.0\n[environment]\ndocker_image = \"{image}\"\nworkdir = \"/app\"\n"
        );
        fs::write(task.join("task.toml"), config).unwrap();
        fs::write(task.join("instruction.md"), "Do it.\n").unwrap();
        fs::write(task.join("tests/test.sh"), format!("#!/bin/sh\n{test}\n")).unwrap();
        fs::write(task.join("solution/solve.sh"), "#!/bin/sh\necho done > /app/state\n").unwrap();
    }
}

/// Returns a command for Harbor's package. The testbed does not install all of its command line, but all that a job
/// needs.
fn harbor() -> Command {
    let mut command = Command::new(testbed("ROLLTAP_TESTBED_TRAINERS"));
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/real/harbor_jobs.py"));
    command.env("HARBOR_TELEMETRY", "0").env("LITELLM_LOCAL_MODEL_COST_MAP", "True");
    command
}

/// Returns a job's directory as Harbor's models read it.
fn read_by_harbor(job: &Path) -> Value {
    let output = harbor().arg("read").arg(job).output().unwrap();
    assert!(output.status.success(), "{}: {}", job.display(), text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
#[ignore = "needs Docker with compose and Harbor: run ./scripts/test"]
fn the_same_file_gives_the_same_job_here_and_there_and_harbor_reads_ours() {
    let dir = tempfile::tempdir().unwrap();
    tasks(dir.path());
    let file = json!({
        "n_attempts": 2,
        "n_concurrent_trials": 4,
        "quiet": true,
        "agents": [{"name": "oracle"}, {"name": "nop"}],
        "datasets": [{"path": dir.path().join("plain")}, {"path": dir.path().join("odd")}],
        "metrics": [{"type": "mean"}, {"type": "max"}],
        "environment": {"type": "docker"},
    });
    fs::write(dir.path().join("job.yaml"), file.to_string()).unwrap();
    let mut theirs = harbor();
    theirs.args(["run", "job.yaml", "theirs"]);
    let mut ours = Command::new(env!("CARGO_BIN_EXE_rolltap"));
    let name = format!("ours-{}", std::process::id());
    ours.args(["run", "-c", "job.yaml", "--job-name", &name, "--jobs-dir", "jobs"]);
    for command in [&mut theirs, &mut ours] {
        let output = command.current_dir(dir.path()).output().unwrap();
        // rolltap exits with 1, because a missing reward is not the agent's failure.
        assert!(output.status.code().is_some_and(|code| code < 2), "{}", text(&output.stderr));
    }
    let [mut theirs, mut ours] =
        ["theirs", &name].map(|job| read_by_harbor(&dir.path().join("jobs").join(job)));
    for job in [&mut theirs, &mut ours] {
        assert_eq!(job["trials"].as_array().unwrap().len(), 24, "{job:#}");
    }
    assert_same(&theirs, &ours);
}

/// Fails with the first lines that differ.
fn assert_same(theirs: &Value, ours: &Value) {
    let lines = |value: &Value| serde_json::to_string_pretty(value).unwrap();
    let (theirs, ours) = (lines(theirs), lines(ours));
    let pairs = theirs.lines().zip(ours.lines()).enumerate();
    for (number, (their, our)) in pairs {
        assert_eq!(their, our, "line {number} (theirs, ours) of\n{theirs}");
    }
    assert_eq!(theirs.lines().count(), ours.lines().count());
}
