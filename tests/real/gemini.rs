//! Google's own client for Python against the real vLLM.

use rolltap_rollout::call::Dialect;
use serde_json::json;

use crate::clients::{are_whole, printed, script};
use crate::harness::Stage;

#[tokio::test]
#[ignore = "needs vLLM and Python: run ./scripts/test"]
async fn googles_client_works_whole_and_streamed() {
    let stage = Stage::set().await;
    let trial = stage.open().await;
    let seen = printed(&script("google_genai.py").arg(&trial.base_urls.gemini).output().await.unwrap());
    for shape in ["thinking", "plain", "tools", "json"] {
        assert_eq!(seen[shape]["whole"], seen[shape]["streamed"], "{shape}");
        assert_eq!(seen[shape]["whole"]["model"], "tiny");
    }
    assert_eq!(seen["counted"], seen["thinking"]["whole"]["tokens"][0]);
    assert_eq!(seen["turns"], 2);
    assert_eq!(
        (&seen["overflow"]["code"], &seen["overflow"]["status"]),
        (&json!(400), &json!("INVALID_ARGUMENT"))
    );
    let overflow = seen["overflow"]["message"].as_str().unwrap();
    assert!(overflow.contains("exceeds the maximum number of tokens allowed"), "{overflow}");
    assert!(seen["search"]["message"].as_str().unwrap().contains("googleSearch"), "{}", seen["search"]);

    let calls = stage.calls(&trial).await;
    let answered: Vec<_> = calls.into_iter().filter(|call| !call.choices.is_empty()).collect();
    assert_eq!(answered.len(), 10);
    are_whole(&answered);
    assert!(answered.iter().all(|call| call.dialect == Dialect::GenerateContent));
    for (call, shape) in answered.iter().step_by(2).zip(["thinking", "plain", "tools", "json"]) {
        let tokens = json!([call.prompt_token_ids.len(), call.choices[0].token_ids.len()]);
        assert_eq!(seen[shape]["whole"]["tokens"], tokens, "{shape}");
    }
}
