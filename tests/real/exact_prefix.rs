//! Conversations preserve their tokens: the prompt of each later call begins with the previous prompt and answer, id
//! for id. This holds in every dialect, streaming or not. If the chat template rewrites history, the prompt is vLLM's
//! own.

mod conversation;
mod hard_cases;
mod models;
pub(crate) mod scene;
mod tally;

use futures_util::StreamExt as _;
use futures_util::stream;
use rolltap_proxy::History;
use rolltap_rollout::branch_cause::BranchCause;
use rolltap_rollout::continuation::{Class, Continuation};
use rolltap_testing::is_long;

use crate::conversation::{Echo, Manner, Wire};
use crate::harness::{Stage, bare_vllm, long_vllm, testbed, vllm};
use conversation::{Due, Kind, Plan, Step, hold, is_own_tail, own_rendering};
use models::{Model, QWEN3, TINY};
use tally::Tally;

const AT_ONCE: usize = 8;
const MODES: [History; 3] = [History::Off, History::Faithful, History::Sampled];

#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn conversations_keep_their_tokens() {
    let stage = Stage::with_tokenizer(vllm(), testbed("ROLLTAP_TESTBED_MODEL")).await;
    hold_all(&stage, &TINY, &Kind::PARSED).await;
}

#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn conversations_keep_their_tokens_where_nothing_is_parsed() {
    let stage = Stage::with_tokenizer(bare_vllm(), testbed("ROLLTAP_TESTBED_MODEL")).await;
    hold_all(&stage, &TINY, &Kind::BARE).await;
}

#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn conversations_keep_their_tokens_under_qwen3s_template() {
    let stage = Stage::with_tokenizer(long_vllm(), testbed("ROLLTAP_TESTBED_LONG_MODEL")).await;
    hold_all(&stage, &QWEN3, &Kind::PARSED).await;
}

/// Returns plans for these kinds of conversation with every kind of agent, each of three to `most_turns` turns.
fn plans(kinds: &[Kind], most_turns: usize) -> Vec<Plan> {
    let mut plans = Vec::new();
    for &kind in kinds {
        for wire in Wire::ALL {
            for stream in [false, true] {
                for echo in [Echo::Whole, Echo::NoReasoning] {
                    // Without reasoning, an agent that drops reasoning behaves like any other.
                    if kind.thinks() || echo == Echo::Whole {
                        let manner = Manner { wire, stream, echo, tools: kind.uses_tools() };
                        plans.push(Plan { kind, manner, turns: 3 + plans.len() % (most_turns - 2) });
                    }
                }
            }
        }
    }
    plans
}

/// Returns each plan with the modes of its conversation. In the default tier that is one mode, which changes from plan
/// to plan, so that every mode meets every kind of conversation. In the long tier it is every mode.
fn plans_by_mode(kinds: &[Kind], most_turns: usize) -> Vec<(Plan, History)> {
    let plans = plans(kinds, most_turns).into_iter().enumerate();
    let with_modes = plans.flat_map(|(number, plan)| {
        let turn = number % MODES.len();
        let modes = if is_long() { 0..MODES.len() } else { turn..turn + 1 };
        MODES[modes].iter().map(move |&mode| (plan, mode))
    });
    with_modes.collect()
}

async fn hold_all(stage: &Stage, model: &Model, kinds: &[Kind]) {
    let mut tally = Tally::default();
    let mut wrong = Vec::new();
    let talks = plans_by_mode(kinds, model.most_turns).into_iter().map(|(plan, history)| async move {
        let steps = hold(stage, model, plan, history).await;
        let wrong = wrong_steps(stage, model, plan, history, &steps).await;
        (plan, history, steps, wrong)
    });
    let mut talks = stream::iter(talks).buffer_unordered(AT_ONCE);
    while let Some((plan, history, steps, found)) = talks.next().await {
        tally.add(plan, history, &steps);
        wrong.extend(found);
    }
    tally.print(model.name);
    assert!(wrong.is_empty(), "{} calls are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// Returns the defects of a conversation's later calls, in words.
async fn wrong_steps(
    stage: &Stage,
    model: &Model,
    plan: Plan,
    history: History,
    steps: &[Step<'_>],
) -> Vec<String> {
    let mut wrong = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        let mut found = match history {
            History::Off => step.call.continuation.is_some().then_some("there is a continuation"),
            // A spliced call continues from an earlier answer than the omitted one.
            _ if step.due == Due::Unsaid && is_spliced(step) => None,
            _ if step.due == Due::Unsaid => not_own(stage, plan, step).await,
            History::Sampled => step.tail.is_none().then_some("its tokens are not preserved"),
            History::Faithful => unfaithful(stage, model, plan, step).await,
        };
        // In other dialects vLLM's rendering costs another call, so only the last is compared.
        if history != History::Off && (plan.manner.wire == Wire::Chat || at + 1 == steps.len()) {
            found = found.or(wrong_tail(stage, model, plan, step).await);
        }
        if let Some(what) = found {
            let told = &step.call.continuation;
            wrong.push(format!("{history} {plan:?}, call {}: {what}; its record is {told:?}", at + 1));
            wrong.push(format!("    after {}, sampled as {:?}", step.last_answer(), step.sampled_before));
        }
    }
    wrong
}

async fn wrong_tail(stage: &Stage, model: &Model, plan: Plan, step: &Step<'_>) -> Option<&'static str> {
    let tail = step.tail.as_ref()?;
    let own = own_rendering(stage, step, plan.manner).await;
    (!is_own_tail(&own, tail, model))
        .then_some("the tokens after the preserved ones are not those of the template")
}

/// Returns the defect of a call whose trial preserves tokens only if the template shows the same text.
async fn unfaithful(stage: &Stage, model: &Model, plan: Plan, step: &Step<'_>) -> Option<&'static str> {
    if step.tail.is_some() {
        return (step.due == Due::Rendered).then_some("tokens that the template drops are preserved");
    }
    if step.due == Due::Kept && !lost_text(stage, model, step).await {
        return Some("its tokens are not preserved, although the template shows them");
    }
    let told = matches!(
        step.call.continuation,
        Some(Continuation::Rendered {
            class: Some(Class::Rewritten),
            cause: BranchCause::TemplateRewroteHistory,
            ..
        })
    );
    if !told {
        return Some("its record lacks the cause template_rewrote_history");
    }
    not_own(stage, plan, step).await
}

/// Whether the last answer lost text. vLLM withholds all characters of a token until its last character is complete, so an
/// answer that ends with such a token lacks the characters before the incomplete one.
async fn lost_text(stage: &Stage, model: &Model, step: &Step<'_>) -> bool {
    let Some(last) = step.sampled_before.last() else { return false };
    let text = stage.text_of(model.name, &[*last]).await;
    text.ends_with(char::REPLACEMENT_CHARACTER) && !text.trim_matches(char::REPLACEMENT_CHARACTER).is_empty()
}

fn is_spliced(step: &Step<'_>) -> bool {
    matches!(step.call.continuation, Some(Continuation::Spliced { .. }))
}

async fn not_own(stage: &Stage, plan: Plan, step: &Step<'_>) -> Option<&'static str> {
    let own = own_rendering(stage, step, plan.manner).await;
    (own != step.call.prompt_token_ids).then_some("its prompt is not vLLM's own")
}
