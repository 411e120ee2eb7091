//! LiteLLM as a client, which about half of all agents use.

use serde_json::json;

use crate::clients::{are_whole, printed, script};
use crate::harness::Stage;

#[tokio::test]
#[ignore = "needs vLLM and Python: run ./scripts/test"]
async fn litellm_calls_whole_streamed_and_with_tools() {
    let stage = Stage::set().await;
    let trial = stage.open().await;
    let seen = printed(&script("litellm_client.py").arg(&trial.base_urls.openai).output().await.unwrap());
    assert_eq!(seen["whole"], seen["streamed"]);
    assert_eq!(seen["called"], json!(["shell"]));
    assert_eq!(seen["overflow"], "ContextWindowExceededError");
    let calls = stage.calls(&trial).await;
    let (overflow, answered) = calls.split_last().unwrap();
    assert!(!overflow.is_trainable());
    are_whole(answered);
    let tokens: Vec<_> = answered.iter().map(|call| call.choices[0].token_ids.len()).collect();
    assert_eq!(json!(tokens), seen["usage"]);
    assert_eq!(answered[0].choices[0].token_ids, answered[1].choices[0].token_ids);
}
