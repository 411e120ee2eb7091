//! Tests of tasks with several steps.

use std::collections::BTreeMap;

use super::*;

const TWO: &str = r#"
    artifacts = ["/all"]
    [agent]
    timeout_sec = 10
    user = "worker"
    [verifier]
    timeout_sec = 7
    user = "judge"
    env = { A = "task", B = "task" }
    [[steps]]
    name = "one"
    min_reward = 0.5
    artifacts = ["/one"]
    [steps.agent]
    timeout_sec = 3
    [steps.verifier]
    env = { B = "step" }
    [[steps]]
    name = "two"
    min_reward = { reward = 1, style = 0.5 }
    [steps.healthcheck]
    command = "true"
    [steps.verifier]
    timeout_sec = 5
    user = 7
    environment_mode = "separate"
"#;

fn two_steps(toml: &str) -> TempDir {
    let dir = task_dir(toml);
    for (name, contents) in [
        ("steps/one/instruction.md", "# canary\n\nFirst.\n"),
        ("steps/one/tests/test.sh", "#!/bin/sh\n"),
        ("steps/one/solution/solve.sh", "#!/bin/sh\n"),
        ("steps/one/workdir/setup.sh", "true\n"),
        ("steps/two/instruction.md", "Then.\n"),
    ] {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }
    dir
}

#[test]
fn a_step_is_a_task_of_its_own() {
    let dir = two_steps(TWO);
    fs::remove_file(dir.path().join("instruction.md")).unwrap();
    let task = Task::load(dir.path()).unwrap();
    assert_eq!(task.instruction, "");
    let [one, two] = task.steps.as_slice() else { panic!("two steps") };
    assert_eq!((one.name.as_str(), one.task.instruction.as_str()), ("one", "First.\n"));
    assert_eq!((two.name.as_str(), two.task.instruction.as_str()), ("two", "Then.\n"));
    let agents = [&one.task.config.agent, &two.task.config.agent];
    assert_eq!(
        agents.map(|agent| (agent.timeout_sec, agent.user.as_deref())),
        [(Some(3.0), Some("worker")), (Some(10.0), Some("worker"))]
    );
    let verifiers = [&one.task.config.verifier, &two.task.config.verifier];
    // A step's tests never have the task's timeout.
    assert_eq!(verifiers.map(|verifier| verifier.timeout_sec), [600.0, 5.0]);
    assert_eq!(verifiers.map(|verifier| verifier.user.as_deref()), [Some("judge"), Some("7")]);
    let env = BTreeMap::from([("A", "task"), ("B", "step")].map(|(k, v)| (k.to_owned(), v.to_owned())));
    assert_eq!(verifiers[0].env, env);
    assert_eq!(one.task.config.artifacts, [Artifact::of("/all"), Artifact::of("/one")]);
    let below = |task: &Task, dirs: Vec<&Path>| -> Vec<String> {
        dirs.iter().map(|dir| dir.strip_prefix(&task.dir).unwrap().display().to_string()).collect()
    };
    assert_eq!(below(&task, one.task.tests_dirs().collect()), ["tests", "steps/one/tests"]);
    let solutions = task.solution_scripts();
    let solutions: Vec<_> = solutions.iter().map(PathBuf::as_path).collect();
    assert_eq!(below(&task, solutions), ["steps/one/solution/solve.sh", "solution/solve.sh"]);
    assert_eq!(one.workdir.as_deref(), Some(task.dir.join("steps/one/workdir").as_path()));
    assert!(two.workdir.is_none() && two.healthcheck.is_some());
    assert!(one.task.separate_verifier.is_none() && two.task.separate_verifier.is_some());
}

#[test]
fn missing_parts_of_a_step_are_reported() {
    let dir = two_steps(TWO);
    fs::remove_dir_all(dir.path().join("tests")).unwrap();
    let complaint = |dir: &TempDir| Task::load(dir.path()).unwrap_err().to_string();
    let missing = complaint(&dir);
    assert!(
        missing.ends_with("steps/two/tests/test.sh: missing, expected the script that writes the reward")
    );
    fs::remove_file(dir.path().join("steps/one/instruction.md")).unwrap();
    let missing = complaint(&dir);
    assert!(missing.ends_with("steps/one/instruction.md: missing, expected the instruction for the agent"));
}

#[test]
fn a_step_goes_on_where_every_key_is_enough() {
    let rewards = |reward: f64| BTreeMap::from([("reward".to_owned(), reward)]);
    let least = MinReward::Reward(0.5);
    assert_eq!(least.unmet(&rewards(0.5)), None);
    assert_eq!(least.unmet(&rewards(0.4)).unwrap(), "reward = 0.4 is below min_reward = 0.5");
    let task = Task::load(two_steps(TWO).path()).unwrap();
    let least = task.steps[1].min_reward.clone().unwrap();
    assert_eq!(least.unmet(&rewards(1.0)).unwrap(), "there is no style, and min_reward = 0.5");
    assert_eq!(least.unmet(&BTreeMap::new()).unwrap(), "there is no reward, and min_reward = 1");
}
