//! Scripts played with either agent, and their outcomes.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::model::{NAME, WAIT};
use super::script::{Script, Setting};
use crate::clients;
use crate::program::{Job, text};

/// The outcome of a script.
#[derive(Debug, Deserialize)]
pub(super) struct Seen {
    /// `completed`, `max_turns`, `terminal_closed`, or a failure.
    pub(super) ended: String,
    pub(super) reward: Option<f64>,
    /// The commands that the shell ran, by its own report.
    pub(super) commands: Vec<String>,
    /// Keystrokes and durations in the agent's trajectory. An invalid duration is `None`.
    pub(super) typed: Vec<(String, Option<f64>)>,
}

/// The outcomes by the name of the script.
pub(super) type AllSeen = BTreeMap<String, Seen>;

/// Returns the terminal agent's outcomes, with these options in addition to each script's own.
pub(super) async fn ours(
    name: &'static str,
    scripts: &[Script],
    image: &str,
    model: SocketAddr,
    options: Value,
) -> AllSeen {
    let mut seen = AllSeen::new();
    for setting in Setting::ALL {
        let of_setting: Vec<_> = scripts.iter().filter(|script| script.setting == setting).cloned().collect();
        if of_setting.is_empty() {
            continue;
        }
        let mut kwargs = setting.options();
        kwargs.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        let (job, image) = (Job::new(&format!("{name}-{setting:?}").to_lowercase()), image.to_owned());
        let playing = tokio::task::spawn_blocking(move || play(&job, &of_setting, &image, model, &kwargs));
        seen.extend(playing.await.unwrap());
    }
    without_waits(seen)
}

/// Removes commands that only wait, because the run time of a program does not depend on the agent.
fn without_waits(mut all: AllSeen) -> AllSeen {
    let is_wait = |(keys, wait): &(String, Option<f64>)| keys == WAIT.0 && *wait == Some(WAIT.1);
    all.values_mut().for_each(|seen| seen.typed.retain(|typed| !is_wait(typed)));
    all
}

/// Runs a job of one trial for each script.
fn play(job: &Job, scripts: &[Script], image: &str, model: SocketAddr, kwargs: &Value) -> AllSeen {
    let tasks = TempDir::new().unwrap();
    scripts.iter().for_each(|script| write_task(&tasks.path().join(script.name), script, image));
    let file = json!({
        "agents": [{"name": "terminal", "model_name": NAME, "kwargs": kwargs}],
        "datasets": [{"path": tasks.path()}],
        "n_concurrent_trials": 4,
    });
    let config = tasks.path().join("job.yaml");
    fs::write(&config, file.to_string()).unwrap();
    // The scripted model gives no token ids, so the check before a job would refuse it.
    let mut command = job.command(&["--upstream", &format!("http://{model}/v1"), "--no-preflight", "-c"]);
    let output = command.arg(config).output().unwrap();
    let said = format!("{}\n{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.code().is_some_and(|code| code < 2), "{said}");
    assert_eq!(job.left_in_docker(), Vec::<String>::new());
    let trials = job.dir().read_dir().unwrap().map(|entry| entry.unwrap().path());
    trials.filter(|path| path.join("verifier").exists()).map(|trial| seen_in(&trial)).collect()
}

fn write_task(dir: &Path, script: &Script, image: &str) {
    let test =
        format!("cd /app; if {}; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n", script.check);
    for (name, text) in [
        ("task.toml", format!("[environment]\ndocker_image = \"{image}\"\n[agent]\ntimeout_sec = 1000.0\n")),
        ("instruction.md", script.instruction()),
        ("tests/test.sh", test),
    ] {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

/// Returns the script's name and outcome of one of rolltap's trials.
fn seen_in(trial: &Path) -> (String, Seen) {
    let read = |name: &str| fs::read_to_string(trial.join(name)).unwrap_or_default();
    let json = |name: &str| serde_json::from_str::<Value>(&read(name)).unwrap();
    let result = json("result.json");
    let stop = result["agent_result"]["metadata"]["stop"].as_str().unwrap_or_default();
    let exception = result["exception_info"]["exception_type"].as_str();
    let seen = Seen {
        ended: exception.map_or_else(|| stop.to_owned(), |exception| format!("failed: {exception}")),
        reward: result["verifier_result"]["rewards"]["reward"].as_f64(),
        commands: read("agent/commands").lines().map(str::to_owned).collect(),
        typed: typed(&json("agent/trajectory.json")),
    };
    (result["task_name"].as_str().unwrap().to_owned(), seen)
}

/// Returns the keystrokes and durations of a trajectory's commands.
fn typed(trajectory: &Value) -> Vec<(String, Option<f64>)> {
    let steps = trajectory["steps"].as_array().into_iter().flatten();
    let calls = steps.flat_map(|step| step["tool_calls"].as_array().into_iter().flatten());
    let commands =
        calls.filter(|call| call["function_name"] == "bash_command").map(|call| &call["arguments"]);
    let typed =
        |command: &Value| (command["keystrokes"].as_str().unwrap().to_owned(), command["duration"].as_f64());
    commands.map(typed).collect()
}

/// Returns Terminus-2's outcomes.
pub(super) async fn theirs(scripts: &[Script], image: &str, model: SocketAddr) -> AllSeen {
    let folder = TempDir::new().unwrap();
    let of_script = |script: &Script| {
        let (instruction, options) = (script.instruction(), script.setting.options());
        json!({"name": script.name, "instruction": instruction, "check": script.check, "options": options})
    };
    let plan = json!({
        "image": image,
        "base_url": format!("http://{model}/v1"),
        "model": NAME,
        "scripts": scripts.iter().map(of_script).collect::<Value>(),
    });
    let file = folder.path().join("plan.json");
    fs::write(&file, plan.to_string()).unwrap();
    let mut command = clients::script("terminus_2_scripts.py");
    command.arg(folder.path()).stdin(fs::File::open(file).unwrap());
    let printed = clients::printed(&command.output().await.unwrap());
    without_waits(serde_json::from_value(printed).unwrap())
}
