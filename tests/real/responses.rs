//! The official OpenAI client for Python on the Responses dialect.

use rolltap_rollout::call::{CallStatus, Dialect};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::harness::{Stage, testbed};

#[tokio::test]
#[ignore = "needs vLLM and Python: run ./scripts/test"]
async fn the_official_client_reads_every_kind_of_answer() {
    let stage = Stage::set().await;
    let trial = stage.open().await;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/real/responses.py");
    let mut client = Command::new(testbed("ROLLTAP_TESTBED_PYTHON"));
    let output = client.args([script, &trial.base_urls.openai]).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();

    assert_eq!(seen["whole"], seen["streamed"]);
    assert_eq!(seen["reasoned"], json!(["reasoning"]));
    assert_eq!(seen["called"], json!([["function_call", "weather"]]));
    assert_eq!(seen["called_stream"], seen["called"]);
    assert_eq!(seen["custom"], json!(["custom_tool_call", "patch", true]));
    assert!([json!(7), json!(42)].contains(&seen["parsed"]), "{seen}");
    assert_eq!(seen["cut"], json!(["incomplete", "max_output_tokens"]));
    assert_eq!(seen["unknown"], json!(["BadRequestError", "previous_response_id"]));
    assert_eq!(seen["overflow"], json!(["BadRequestError", "context_length_exceeded"]));
    let calls = stage.calls(&trial).await;
    let complete: Vec<_> = calls.iter().filter(|call| call.status == CallStatus::Complete).collect();
    assert_eq!(json!(complete.len()), seen["answers"]);
    for call in complete {
        assert_eq!((&call.flaws[..], call.dialect), (&[][..], Dialect::Responses));
        assert_eq!(call.choices[0].logprobs.len(), call.choices[0].token_ids.len());
    }
}
