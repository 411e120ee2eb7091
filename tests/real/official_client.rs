//! The official OpenAI client for Python, streaming and not.

use rolltap_rollout::call::CallStatus;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::harness::{Stage, testbed};

#[tokio::test]
#[ignore = "needs vLLM and Python: run ./scripts/test"]
async fn the_official_client_works_by_path_and_by_header() {
    let stage = Stage::set().await;
    let trial = stage.open().await;
    let by_header = format!("http://{}/v1", stage.proxy.agent_addrs()[0]);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/real/official_client.py");
    let mut client = Command::new(testbed("ROLLTAP_TESTBED_PYTHON"));
    client.args([script, &trial.base_urls.openai, &by_header, &trial.key]);
    let output = client.output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();

    assert_eq!(seen["models"], json!(["tiny"]));
    for key in ["content", "finish_reason", "usage"] {
        assert_eq!(seen["whole"][key], seen["streamed"][key], "{key}");
    }
    assert_eq!(seen["whole"]["extras"], json!({"prompt_token_ids": null}));
    assert_eq!(seen["whole"]["logprobs"], Value::Null);
    assert_eq!(seen["refused"]["type"], "AuthenticationError");
    let calls = stage.calls(&trial).await;
    assert_eq!(calls.len(), 2);
    for call in &calls {
        assert_eq!((call.status, &call.flaws[..]), (CallStatus::Complete, &[][..]));
        assert_eq!(json!(call.choices[0].token_ids.len()), seen["whole"]["usage"]);
    }
    assert_eq!(calls[0].choices[0].token_ids, calls[1].choices[0].token_ids);
}
