//! The causes of branches and their cost, per trial and in total.

use reqwest::StatusCode;
use rolltap_proxy::api::{CauseFigures, Cost, TrialOpened};
use rolltap_rollout::branch_cause::BranchCause::{FirstCall, NoSharedPrefix, OtherChoice};
use serde_json::{Value, json};

use crate::harness::{Stage, request};

/// Makes one conversation with two answers, and another conversation.
async fn calls(stage: &Stage, trial: &TrialOpened, model: &str) {
    for body in [json!({"n": 2}), json!({"messages": [{"role": "system", "content": "Be someone else."}]})] {
        let mut body = request(body);
        body["model"] = model.into();
        assert_eq!(stage.chat(trial, &body).await.status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn causes_are_counted_and_summed_up_by_agent_and_model() {
    let stage = Stage::random().await;
    let off = |agent: &str| json!({"agent": agent, "history": "off"});
    let (one, two) = (stage.open(off("a")).await, stage.open(off("a")).await);
    let other = stage.open(json!({"model_aliases": {"m": "sim"}, "history": "off"})).await;
    for (trial, model) in [(&one, "sim"), (&two, "sim"), (&other, "m")] {
        calls(&stage, trial, model).await;
    }

    let status = stage.status(&one).await;
    let prompts: Vec<_> = stage.calls(&one).await.iter().map(|call| call.prompt_token_ids.clone()).collect();
    let whole = prompts[0].len() as u64;
    let new = (prompts[1].len() - prompts[1].common_prefix(&prompts[0])) as u64;
    let cost = |tokens| Cost { branches: 1, tokens };
    assert_eq!(status.agent.as_deref(), Some("a"));
    assert_eq!(status.branches, 3);
    let expected = [(FirstCall, cost(whole)), (OtherChoice, cost(0)), (NoSharedPrefix, cost(new))];
    assert_eq!(status.branch_causes, expected.into());

    let answer = stage.http.get(stage.admin("/v1/causes")).send().await.unwrap();
    let text = answer.text().await.unwrap();
    let figures: Vec<CauseFigures> = serde_json::from_str(&text).unwrap();
    let line = |agent: Option<&str>, model: &str, (cause, cost): (_, Cost), trials| CauseFigures {
        agent: agent.map(str::to_owned),
        model: model.to_owned(),
        cause,
        cost: Cost { branches: trials * cost.branches, tokens: trials * cost.tokens },
        trials,
    };
    let of_other = expected.map(|cause| line(None, "m", cause, 1));
    let of_a = expected.map(|cause| line(Some("a"), "sim", cause, 2));
    assert_eq!(figures, [of_other, of_a].concat());
    let raw: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        raw[0],
        json!({"agent": null, "model": "m", "cause": "first_call", "branches": 1, "tokens": whole, "trials": 1})
    );
}
