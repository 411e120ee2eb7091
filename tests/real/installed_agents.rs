//! Agents by name, unmodified: installed once on this host, and run at a real task in containers without any of their
//! dependencies. The model is scripted, and every call is captured.

use std::path::{Path, PathBuf};

use rolltap_rollout::call::CallStatus;
use rolltap_sim as sim;
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::testbed;
use crate::program::{Job, check, text};

pub(crate) const HELLO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tasks/hello-prebuilt");
const WITHOUT_NETWORK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tasks/hello-no-network");
const WRITE: &str = "echo 'Hello, world!' > hello.txt && cat hello.txt";

/// The model's script for one agent: a call of its own shell tool, and then the completion.
pub(crate) struct Part {
    agent: &'static str,
    tool: &'static str,
    argument: &'static str,
    /// Further arguments that the tool requires.
    more: &'static str,
    done: &'static str,
}

const SAID: &str = r#"content = "The file is there.""#;
pub(crate) const CLAUDE_CODE: Part = Part {
    agent: "claude-code",
    tool: "Bash",
    argument: "command",
    more: r#", description = "write it""#,
    done: SAID,
};
pub(crate) const CODEX: Part =
    Part { agent: "codex", tool: "exec_command", argument: "cmd", more: "", done: SAID };
const OPENCODE: Part = Part {
    agent: "opencode",
    tool: "bash",
    argument: "command",
    more: r#", description = "write it""#,
    done: SAID,
};
const QWEN_CODE: Part = Part {
    agent: "qwen-code",
    tool: "run_shell_command",
    argument: "command",
    more: ", is_background = false",
    done: SAID,
};
const GEMINI_CLI: Part =
    Part { agent: "gemini-cli", tool: "run_shell_command", argument: "command", more: "", done: SAID };
const MINI_SWE_AGENT: Part = Part {
    agent: "mini-swe-agent",
    tool: "bash",
    argument: "command",
    more: "",
    done: r#"tool_calls = [{ name = "bash", arguments = { command = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT" } }]"#,
};

impl Part {
    fn script(&self) -> sim::Script {
        let Self { tool, argument, more, done, .. } = self;
        let script = format!(
            "[[conversation]]\n[[conversation.turn]]\n[[conversation.turn.answer]]\nreasoning = \"A file is wanted.\"\n\
             content = \"I write it.\"\ntool_calls = [{{ name = \"{tool}\", arguments = {{ {argument} = \"{WRITE}\"{more} }} }}]\n\
             [[conversation.turn]]\n[[conversation.turn.answer]]\n{done}\n"
        );
        sim::Script::from_toml(&script, self.agent).unwrap()
    }

    /// Runs a job of one trial of this agent at this task.
    pub(crate) async fn play(&self, name: &str, task: &str, more: &[&str]) -> (Job, String) {
        let settings =
            sim::Settings { script: Some(self.script()), max_model_len: 500_000, ..sim::Settings::default() };
        let upstream = sim::start(settings).await.unwrap();
        let job = Job::new(name);
        let address = format!("http://{}", upstream.addr());
        let arguments = ["-p", task, "-a", self.agent, "--upstream", &address];
        let mut command = job.command(&[&arguments, more].concat());
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let said = format!("{}\n{}", text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{said}");
        (job, said)
    }
}

/// Checks that the task is solved without a sign of cheating, that each call is complete and in one branch, and that
/// nothing is left.
pub(crate) fn assert_solved_and_captured(job: &Job, said: &str) {
    let rows = job.rows();
    let rewards: Vec<_> = rows.iter().map(|row| row.reward).collect();
    assert!(!rows.is_empty() && rewards.iter().all(|reward| *reward == Some(1.0)), "{rewards:?} {said}");
    let marks: Vec<_> = rows.iter().map(|row| &row.suspicious).collect();
    assert!(marks.iter().all(|marks| marks.as_ref().is_some_and(Vec::is_empty)), "{marks:?} {said}");
    let work = rows.iter().map(|row| row.calls.len()).max();
    assert_eq!(work, Some(2), "its two turns are one branch: {said}");
    let mut calls = 0;
    for trial in rolltap_proxy::store::read_dir(&job.dir().join("data")).unwrap().trials {
        for call in &trial.calls {
            calls += 1;
            assert_eq!((call.status, &call.flaws[..]), (CallStatus::Complete, &[][..]), "{said}");
            assert!(call.is_trainable());
        }
    }
    assert_eq!(
        rows.iter().map(|row| row.calls.len()).sum::<usize>(),
        calls,
        "every call is in a row: {said}"
    );
    assert!(check(&job.dir()).status.success());
    assert_eq!(job.left_in_docker(), Vec::<String>::new());
}

/// Returns the trial's own result.
fn result(job: &Job) -> Value {
    let trials = std::fs::read_dir(job.dir()).unwrap().map(|entry| entry.unwrap().path());
    let results: Vec<PathBuf> =
        trials.map(|dir| dir.join("result.json")).filter(|file| file.is_file()).collect();
    let [result] = &results[..] else { panic!("one trial: {results:?}") };
    serde_json::from_slice(&std::fs::read(result).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker and npm: run ./scripts/test"]
async fn claude_code_finishes_a_task_in_a_container() {
    let (job, said) = CLAUDE_CODE.play("agents-claude", HELLO, &["--ak", "max_turns=5"]).await;
    assert_solved_and_captured(&job, &said);
    let version = &result(&job)["agent_result"]["metadata"]["agent_version"];
    assert!(version.as_str().is_some_and(|version| version.contains("(Claude Code)")), "{version}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker and npm: run ./scripts/test"]
async fn codex_finishes_a_task_in_a_container_without_a_network() {
    let (job, said) = CODEX.play("agents-codex", WITHOUT_NETWORK, &[]).await;
    assert_solved_and_captured(&job, &said);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker and npm: run ./scripts/test"]
async fn opencode_finishes_a_task_in_a_container() {
    let (job, said) = OPENCODE.play("agents-opencode", HELLO, &[]).await;
    assert_solved_and_captured(&job, &said);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker and npm: run ./scripts/test"]
async fn qwen_code_finishes_a_task_in_a_container_that_has_no_node() {
    let (job, said) = QWEN_CODE.play("agents-qwen", HELLO, &[]).await;
    assert_solved_and_captured(&job, &said);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker and npm: run ./scripts/test"]
async fn gemini_cli_finishes_a_task_in_a_container_that_has_no_node() {
    let (job, said) = GEMINI_CLI.play("agents-gemini", HELLO, &[]).await;
    assert_solved_and_captured(&job, &said);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker and Python: run ./scripts/test"]
async fn mini_swe_agent_finishes_a_task_in_a_container_that_has_no_python() {
    let (job, said) = MINI_SWE_AGENT.play("agents-mini", HELLO, &["--ak", "step_limit=5"]).await;
    assert_solved_and_captured(&job, &said);
}

/// Makes the task of the other tests for a user with few write permissions and without a home directory.
fn task_of_a_user(dir: &Path) {
    let toml = "[task]\nname = \"rolltap/hello-user\"\n[agent]\nuser = \"nobody\"\ntimeout_sec = 1200.0\n\
                [environment]\ndocker_image = \"rolltap-testbed/hello:1\"\nworkdir = \"/tmp\"\n";
    let test = "[ \"$(stat -c %U /tmp/hello.txt)\" = nobody ] && reward=1 || reward=0\n\
                echo $reward > /logs/verifier/reward.txt\n";
    for (name, contents) in
        [("task.toml", toml), ("instruction.md", "Write hello.txt."), ("tests/test.sh", test)]
    {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, contents).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker and npm: run ./scripts/test"]
async fn an_agent_works_as_a_user_who_is_not_root_and_has_no_home() {
    let dir = TempDir::new().unwrap();
    task_of_a_user(dir.path());
    let (job, said) = OPENCODE.play("agents-user", dir.path().to_str().unwrap(), &[]).await;
    assert!(job.rows().iter().all(|row| row.reward == Some(1.0)), "{said}");
}

/// The model writes a file, and then sends the completion twice, because the agent asks for a confirmation.
const TERMINUS_2: &str = r#"
[[conversation]]
[[conversation.turn]]
[[conversation.turn.answer]]
content = '''{"analysis": "A file is wanted.", "plan": "Write it.", "commands": [{"keystrokes": "echo 'Hello, world!' > hello.txt\n", "duration": 0.5}]}'''
[[conversation.turn]]
[[conversation.turn.answer]]
content = '''{"analysis": "It is there.", "plan": "None.", "commands": [], "task_complete": true}'''
"#;

/// Its tmux must be in the image, unless there is a network. This machine has it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Python and tmux: run ./scripts/test"]
async fn harbors_terminus_2_finishes_a_task_and_its_own_record_equals_the_captures() {
    let answers = sim::Script::from_toml(TERMINUS_2, "script").unwrap();
    let upstream =
        sim::start(sim::Settings { script: Some(answers), ..sim::Settings::default() }).await.unwrap();
    let job = Job::new("agents-terminus");
    let task = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/tasks/hello-file");
    let address = format!("http://{}", upstream.addr());
    let mut command = job.command(&["-p", task, "-e", "local", "-a", "terminus-2", "--upstream", &address]);
    // LiteLLM takes ten seconds of a core to import. The example's two minutes are short if other tests use that core
    // too.
    command.args(["--timeout-multiplier", "10"]);
    let options = [
        "collect_rollout_details=true",
        "enable_summarize=false",
        r#"model_info={"max_input_tokens":4096,"max_output_tokens":64}"#,
    ];
    command.args(options.iter().flat_map(|option| ["--ak", option]));
    command.args(["--harbor-python", &format!("{}/python", testbed("ROLLTAP_TESTBED_CLIENTS"))]);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let said = format!("{}\n{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}");
    let rewards: Vec<_> = job.rows().iter().map(|row| row.reward).collect();
    assert!(!rewards.is_empty() && rewards.iter().all(|reward| *reward == Some(1.0)), "{rewards:?} {said}");
    let result = result(&job);
    assert_eq!(result["agent_result"]["metadata"]["turns"], 3, "{said}");
    let comparison = &result["rolltap"]["returned"]["comparison"];
    assert_eq!((&comparison["captured"], &comparison["same"]), (&3.into(), &3.into()), "{comparison}");
}
