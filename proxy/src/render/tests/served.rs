//! A comparison with a running vLLM: the prompt ids of its chat endpoint equal the renderer's ids for the same request.

use std::path::Path;

use serde_json::{Value as Json, json};

use super::golden::{corpus, load, rendered, variable};

#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn the_prompts_of_the_tiny_model_are_ours() {
    are_ours(&variable("ROLLTAP_TEST_VLLM"), &variable("ROLLTAP_TESTBED_MODEL"), &["every script"]).await;
}

#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn the_prompts_of_the_long_model_are_ours() {
    are_ours(&variable("ROLLTAP_TEST_VLLM_LONG"), &variable("ROLLTAP_TESTBED_LONG_MODEL"), &[]).await;
}

/// Compares the prompt ids of every case. `different` are the cases that are known to differ, as in [`super::golden`].
async fn are_ours(vllm: &str, model: &str, different: &[&str]) {
    // vLLM closes an idle connection after five seconds, perhaps just when a request is sent on it.
    let http = rolltap_testing::client_builder().pool_max_idle_per_host(0).build().unwrap();
    let list: Json = http.get(format!("{vllm}/v1/models")).send().await.unwrap().json().await.unwrap();
    let renderer = load(Path::new(model), Path::new(""));
    let mut same = 0;
    for case in corpus().into_iter().filter(|case| !different.contains(&case.name.as_str())) {
        let mut body = case.request.clone();
        body.extend([
            ("model".to_owned(), list["data"][0]["id"].clone()),
            ("max_tokens".to_owned(), json!(1)),
            ("return_token_ids".to_owned(), json!(true)),
        ]);
        let answer = http.post(format!("{vllm}/v1/chat/completions")).json(&body).send().await.unwrap();
        let (status, answer) = (answer.status(), answer.json::<Json>().await.unwrap());
        if answer["error"]["message"]
            .as_str()
            .is_some_and(|message| message.contains("maximum context length"))
        {
            continue;
        }
        match rendered(&renderer, &case, true) {
            Ok((text, ids)) => {
                assert_eq!(
                    answer["prompt_token_ids"],
                    json!(ids),
                    "{}: {text:?}\n{status} {answer}",
                    case.name
                );
                same += 1;
            }
            Err(error) => assert!(status.is_client_error(), "{}: {error}\n{answer}", case.name),
        }
    }
    println!("{same} prompts are the same");
    assert!(same > 40, "{same}");
}
