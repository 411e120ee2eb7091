//! External clients and agents, run as programs, and the required records of their calls.

use std::process::Output;

use rolltap_rollout::call::{Call, CallStatus};
use serde_json::Value;
use tokio::process::Command;

use crate::harness::testbed;

/// Returns a command for a program of the clients' Python environment, without this machine's own settings.
pub(crate) fn client(program: &str) -> Command {
    let mut command = Command::new(format!("{}/{program}", testbed("ROLLTAP_TESTBED_CLIENTS")));
    command
        .kill_on_drop(true)
        .env("OPENAI_API_KEY", "dummy")
        .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        .env("HARBOR_TELEMETRY", "0");
    command
}

/// Returns a command for a script of this folder in the clients' Python.
pub(crate) fn script(name: &str) -> Command {
    let mut command = client("python");
    command.arg(format!("{}/tests/real/{name}", env!("CARGO_MANIFEST_DIR")));
    command
}

/// Returns the JSON that a script printed on its last line.
pub(crate) fn printed(output: &Output) -> Value {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    serde_json::from_str(out.lines().last().unwrap_or_default())
        .unwrap_or_else(|_| panic!("no JSON: {out}\n{err}"))
}

/// Checks that each call has every id and logprob of its answer.
pub(crate) fn are_whole(calls: &[Call]) {
    for call in calls {
        assert_eq!((call.status, &call.flaws[..]), (CallStatus::Complete, &[][..]), "{call:?}");
        assert!(!call.prompt_token_ids.is_empty());
        for choice in &call.choices {
            assert!(!choice.token_ids.is_empty());
            assert_eq!(choice.token_ids.len(), choice.logprobs.len());
            assert!(choice.logprobs.iter().all(Option::is_some));
        }
    }
}
