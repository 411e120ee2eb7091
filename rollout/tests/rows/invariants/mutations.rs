//! Every breach of the example that a check must find, and the expected report.

use rolltap_rollout::call::{CallRole, CallStatus, Flaw, VersionSpan};
use rolltap_rollout::check::Invariant;
use rolltap_rollout::token::{Logprob, TokenId};

use crate::trials::{Trial, VOCAB_SIZE};

/// A change of the example and the expected report: the invariant, its branch (`None` for the whole trial), and a text
/// in the detail. Only this invariant and `along_with` may be reported.
pub(super) struct Mutation {
    pub(super) invariant: Invariant,
    pub(super) branch: Option<i32>,
    pub(super) detail: &'static str,
    pub(super) along_with: &'static [Invariant],
    pub(super) mutate: fn(&mut Trial),
}

fn mutation(
    invariant: Invariant,
    branch: Option<i32>,
    detail: &'static str,
    mutate: fn(&mut Trial),
) -> Mutation {
    Mutation { invariant, branch, detail, along_with: &[], mutate }
}

impl Mutation {
    /// Sets further invariants that this change also breaks.
    fn along_with(self, along_with: &'static [Invariant]) -> Self {
        Self { along_with, ..self }
    }
}

/// The rows of the example, with `P` for prompt and `a` to `d` for sampled tokens: `PPPaaaaPPPbbbb`, `PPPaaaaPPPcccc`
/// and `PPPdddd`. The fourth token of each answer has no logprob.
fn mutations_of_one_row() -> Vec<Mutation> {
    use Invariant as I;
    vec![
        mutation(I::SchemaVersion, Some(1), "rollout/2", |t| t.rows[1].schema_version = "rollout/2".into()),
        mutation(I::ListLengths, Some(1), "logprobs has 13", |t| t.rows[1].logprobs.truncate(13)),
        mutation(I::ListLengths, Some(2), "token_version has 8", |t| t.rows[2].token_version.push(0)),
        mutation(I::MaskValues, Some(0), "loss_mask[10] is 2", |t| t.rows[0].loss_mask[10] = 2),
        mutation(I::MaskValues, Some(0), "sampled_mask[10] is 255", |t| t.rows[0].sampled_mask[10] = 255),
        mutation(I::MaskNesting, Some(2), "trainable_mask[0] is 1, but sampled_mask[0]", |t| {
            t.rows[2].trainable_mask[0] = 1;
        }),
        mutation(I::MaskNesting, Some(2), "loss_mask[6] is 1, but trainable_mask[6]", |t| {
            t.rows[2].loss_mask[6] = 1
        }),
        mutation(I::LogprobValues, Some(2), "logprobs[4] is NaN", |t| t.rows[2].logprobs[4] = f32::NAN)
            .along_with(&[I::CapturedAnswer]),
        mutation(I::LogprobValues, Some(2), "logprobs[4] is -inf", |t| {
            t.rows[2].logprobs[4] = f32::NEG_INFINITY
        })
        .along_with(&[I::CapturedAnswer]),
        mutation(I::LogprobValues, Some(2), "logprobs[4] is 0.25", |t| t.rows[2].logprobs[4] = 0.25)
            .along_with(&[I::CapturedAnswer]),
        mutation(I::LogprobOffMask, Some(0), "logprobs[8] is -0.5", |t| t.rows[0].logprobs[8] = -0.5),
        mutation(I::TokenVersion, Some(0), "token_version[8] is 3", |t| t.rows[0].token_version[8] = 3),
        mutation(I::TokenVersion, Some(2), "token_version[5] is -1", |t| t.rows[2].token_version[5] = -1)
            .along_with(&[I::CapturedAnswer]),
        mutation(I::TokenIdRange, Some(2), "token_ids[6] is 1000", |t| {
            t.rows[2].token_ids[6] = VOCAB_SIZE as i32
        })
        .along_with(&[I::CapturedAnswer]),
        mutation(I::TokenIdRange, Some(2), "token_ids[0] is -1", |t| t.rows[2].token_ids[0] = -1)
            .along_with(&[I::CapturedPrompt]),
        mutation(I::SpanBounds, Some(2), "calls[0] is 3..8, in a row of 7", |t| t.rows[2].calls[0].end = 8)
            .along_with(&[I::SpanCoverage]),
        mutation(I::SpanBounds, Some(2), "calls[0] is 3..3", |t| t.rows[2].calls[0].end = 3)
            .along_with(&[I::SpanCoverage]),
        mutation(I::SpanBounds, Some(2), "calls[0] is -3..7", |t| t.rows[2].calls[0].start = -3)
            .along_with(&[I::SpanCoverage, I::SpanPromptLen]),
        mutation(I::SpanOrder, Some(0), "calls[1] starts at 3", |t| t.rows[0].calls.swap(0, 1))
            .along_with(&[I::SpanParent]),
        mutation(I::SpanOrder, Some(2), "calls[0] are both choice 0 of call call-0003", |t| {
            let mut again = t.rows[2].calls[0].clone();
            t.rows[2].calls[0].end = 5;
            (again.start, again.prompt_len) = (5, 5);
            again.parent_call_id = Some(again.call_id.clone());
            t.rows[2].calls.push(again);
        })
        .along_with(&[I::CapturedAnswer, I::CapturedPrompt]),
        mutation(I::SpanCoverage, Some(2), "sampled_mask[6] is 1, and no span", |t| {
            t.rows[2].calls[0].end = 6
        })
        .along_with(&[I::CapturedAnswer]),
        mutation(I::SpanCoverage, Some(2), "sampled_mask[6] is 0, and a span", |t| {
            t.rows[2].sampled_mask[6] = 0;
            t.rows[2].token_version[6] = -1;
        })
        .along_with(&[I::CapturedAnswer]),
        mutation(I::SpanVersion, Some(2), "its first token has token_version 4", |t| {
            t.rows[2].token_version[3] = 4
        })
        .along_with(&[I::CapturedAnswer]),
        mutation(I::SpanPromptLen, Some(0), "calls[1] has a prompt of 9", |t| {
            t.rows[0].calls[1].prompt_len = 9
        }),
        mutation(I::SpanParent, Some(0), "calls[1].parent_call_id is None", |t| {
            t.rows[0].calls[1].parent_call_id = None;
        }),
        mutation(I::SpanParent, Some(2), "calls[0].parent_call_id is Some(\"call-0000\")", |t| {
            t.rows[2].calls[0].parent_call_id = Some("call-0000".into());
        }),
        mutation(I::SpanSampling, Some(0), "calls[1].sampling", |t| {
            t.rows[0].calls[1].sampling = "[]".into()
        }),
        mutation(I::SpanSampling, Some(0), "calls[1].messages", |t| {
            t.rows[0].calls[1].messages = Some("{}".into())
        }),
        mutation(I::SpanSampling, Some(0), "calls[1].tools", |t| t.rows[0].calls[1].tools = Some("[".into())),
        mutation(I::SpanSampling, Some(0), "calls[1].top_p", |t| t.rows[0].calls[1].top_p = Some(f64::NAN)),
        mutation(I::SpanRole, Some(2), "calls[0].role is \"chore\", not one of main, ", |t| {
            t.rows[2].calls[0].role = "chore".into();
        })
        .along_with(&[I::CapturedRole]),
        mutation(I::SpanModel, Some(0), "calls[1].model is \"adapter\", calls[0].model is \"policy\"", |t| {
            t.rows[0].calls[1].model = Some("adapter".into());
        })
        .along_with(&[I::CapturedModel]),
        mutation(I::PromptLen, Some(2), "prompt_len is 4, the first sampled token is at 3", |t| {
            t.rows[2].prompt_len = 4;
        }),
        mutation(I::PromptLen, Some(2), "no token is sampled", |t| {
            let row = &mut t.rows[2];
            for mask in [&mut row.sampled_mask, &mut row.trainable_mask, &mut row.loss_mask] {
                mask.fill(0);
            }
            row.token_version.fill(-1);
            row.logprobs.fill(0.0);
            row.calls.clear();
        })
        .along_with(&[I::CapturedPresence]),
        mutation(I::RewardFinite, Some(0), "reward is Some(NaN)", |t| {
            t.rows.iter_mut().for_each(|row| row.reward = Some(f64::NAN));
        }),
        mutation(I::RewardFinite, Some(0), "advantage is Some(inf)", |t| {
            t.rows.iter_mut().for_each(|row| row.advantage = Some(f64::INFINITY));
        }),
        mutation(I::RewardFinite, Some(0), "rewards[\"tests\"] is inf", |t| {
            t.rows.iter_mut().for_each(|row| row.rewards.extend([("tests".into(), f64::INFINITY)]));
        }),
        mutation(I::Status, Some(0), "status is \"done\"", |t| t.rows[0].status = "done".into()),
        mutation(I::Truncation, Some(0), "is_truncated is true", |t| t.rows[0].is_truncated = true),
        mutation(I::Truncation, Some(0), "stop_reason is Some(\"tool_calls\")", |t| {
            t.rows[0].stop_reason = Some("tool_calls".into());
        }),
        mutation(I::Truncation, Some(0), "status is \"truncated\", and stop_reason Some(\"stop\")", |t| {
            t.rows[0].status = "truncated".into();
            t.rows[0].is_truncated = true;
        }),
        mutation(I::BranchPosition, Some(2), "is_last_branch is false", |t| t.rows[2].is_last_branch = false),
        mutation(I::BranchPosition, Some(0), "is_last_branch is true", |t| t.rows[0].is_last_branch = true),
        mutation(I::BranchPosition, Some(3), "branch_index is 3, of 3 branches", |t| {
            t.rows[2].branch_index = 3
        })
        .along_with(&[I::BranchOrder]),
        mutation(I::BranchReprefilled, Some(2), "is Some(4), the longest prompt has 3", |t| {
            t.rows[2].branch_reprefilled = Some(4);
        }),
        mutation(I::BranchReprefilled, Some(2), "is Some(-1)", |t| t.rows[2].branch_reprefilled = Some(-1)),
        mutation(I::GroupPosition, Some(0), "sample_index is 10", |t| {
            t.rows.iter_mut().for_each(|row| row.sample_index = 10);
        }),
        mutation(I::Origin, Some(2), "origin is Some(\"hearsay\"), not one of captured, agent", |t| {
            t.rows.iter_mut().for_each(|row| row.origin = Some("hearsay".into()));
        }),
        mutation(I::GroupPosition, Some(0), "attempt is -1", |t| {
            t.rows.iter_mut().for_each(|row| row.attempt = -1)
        }),
    ]
}

fn mutations_of_the_trial() -> Vec<Mutation> {
    use Invariant as I;
    vec![
        mutation(I::TrialAdjacent, Some(1), "rows of another trial", |t| {
            let mut other = t.rows[2].clone();
            other.trial_id = "other".into();
            (other.branch_index, other.num_branches) = (0, 1);
            t.rows.insert(1, other);
        })
        .along_with(&[I::BranchOrder, I::LossOwner, I::CapturedPresence]),
        mutation(I::BranchOrder, Some(2), "branch_index is 2 on row 1", |t| t.rows.swap(1, 2)),
        mutation(I::BranchOrder, Some(1), "branch_index is 1 on row 2", |t| {
            let again = t.rows[1].clone();
            t.rows.insert(2, again);
        })
        .along_with(&[I::LossOwner]),
        mutation(I::BranchOrder, None, "num_branches is 3, and the trial has 2 rows", |t| drop(t.rows.pop()))
            .along_with(&[I::CapturedPresence]),
        mutation(I::TrialColumns, Some(2), "reward is Some(0.0), on the trial's first row Some(1.0)", |t| {
            t.rows[2].reward = Some(0.0);
        }),
        mutation(I::TrialColumns, Some(2), "reward is None", |t| t.rows[2].reward = None),
        mutation(I::TrialColumns, Some(1), "task_id is \"other\"", |t| t.rows[1].task_id = "other".into()),
        mutation(I::TrialColumns, Some(1), "group_id is None", |t| t.rows[1].group_id = None),
        mutation(I::TrialColumns, Some(1), "superseded is true", |t| t.rows[1].superseded = true),
        mutation(I::SharedSpan, Some(1), "has another token 2 ", |t| t.rows[1].token_ids[5] = 7)
            .along_with(&[I::CapturedAnswer, I::CapturedPrompt]),
        mutation(I::SharedSpan, Some(1), "stands after other tokens", |t| t.rows[1].token_ids[0] = 7)
            .along_with(&[I::CapturedPrompt]),
        mutation(I::SharedSpan, Some(1), "has another logprob at its token 1", |t| {
            t.rows[1].logprobs[4] = 0.0
        })
        .along_with(&[I::CapturedAnswer]),
        mutation(I::SharedSpan, Some(1), "has another trainable_mask at its token 1", |t| {
            t.rows[1].trainable_mask[4] = 0;
        }),
        mutation(I::SharedSpan, Some(1), "has another version at its token 1", |t| {
            t.rows[1].token_version[4] = 4;
        })
        .along_with(&[I::CapturedAnswer]),
        mutation(I::LossOwner, None, "token 1 of choice 0 of call call-0000 is in no", |t| {
            t.rows[0].loss_mask[4] = 0
        }),
        mutation(I::LossOwner, None, "is in loss_mask of the branches [0, 1]", |t| {
            t.rows[1].loss_mask[4] = 1
        }),
        mutation(I::LossOwnerLowest, None, "of branch 1, though branch 0 has it", |t| {
            t.rows[0].loss_mask[4] = 0;
            t.rows[1].loss_mask[4] = 1;
        }),
    ]
}

fn mutations_of_what_was_captured() -> Vec<Mutation> {
    use Invariant as I;
    vec![
        mutation(I::CapturedCall, Some(2), "choice 0 of call call-0003 was not captured", |t| {
            drop(t.calls.pop())
        }),
        mutation(I::CapturedCall, Some(2), "choice 0 of call call-0003", |t| t.calls[3].choices[0].index = 1)
            .along_with(&[I::CapturedPresence]),
        mutation(I::CapturedModel, Some(2), "calls[0].model is \"policy\", captured was \"adapter\"", |t| {
            t.calls[3].served_model = Some("adapter".into());
        }),
        mutation(I::CapturedPrompt, Some(0), "calls[1]: token 8 of the prompt", |t| {
            let prompt = &mut t.calls[1].prompt_token_ids;
            *prompt =
                prompt.iter().enumerate().map(|(at, &id)| if at == 8 { token(7) } else { id }).collect();
        }),
        mutation(I::CapturedPrompt, Some(0), "10 tokens stand before it, 9 were captured", |t| {
            t.calls[1].prompt_token_ids = t.calls[1].prompt_token_ids.prefix(9);
        }),
        mutation(I::CapturedAnswer, Some(0), "calls[1]: sampled token 3 is Some(24)", |t| {
            t.calls[1].choices[0].token_ids[3] = token(7);
        }),
        mutation(I::CapturedAnswer, Some(0), "calls[1]: sampled token 4 is None", |t| {
            t.calls[1].choices[0].token_ids.push(token(7));
            t.calls[1].choices[0].logprobs.push(None);
        }),
        mutation(
            I::CapturedAnswer,
            Some(0),
            "calls[1]: logprob of sampled token 1 is -0, captured was Some(0.0)",
            |t| {
                t.calls[1].choices[0].logprobs[1] = Some(Logprob::try_from(0.0).unwrap());
            },
        ),
        mutation(I::CapturedAnswer, Some(2), "token 0 is 3, captured was 4", |t| {
            t.calls[3].policy_version = 4
        }),
        mutation(I::CapturedAnswer, Some(2), "version of sampled token 2 is 3, captured was 4", |t| {
            t.calls[3].choices[0].versions = vec![VersionSpan { start: 2, version: 4 }];
        }),
        mutation(I::CapturedAnswer, Some(2), "finish_reason is Some(\"stop\"), captured was None", |t| {
            t.calls[3].choices[0].finish_reason = None;
        }),
        mutation(I::CapturedTrainable, Some(2), "sampled token 3 is trainable, but no logprob", |t| {
            t.rows[2].trainable_mask[6] = 1;
            t.rows[2].loss_mask[6] = 1;
        }),
        mutation(I::CapturedTrainable, Some(2), "its call is Cancelled", |t| {
            t.calls[3].status = CallStatus::Cancelled;
        }),
        mutation(I::CapturedTrainable, Some(2), "with [MissingChoice]", |t| {
            t.calls[3].flaws.push(Flaw::MissingChoice);
        }),
        mutation(
            I::CapturedOrigin,
            Some(2),
            "origin is Some(\"agent\"), that of calls[0] is \"captured\"",
            |t| {
                t.rows.iter_mut().for_each(|row| row.origin = Some("agent".into()));
            },
        ),
        mutation(I::CapturedRole, Some(2), "calls[0].role is \"probe\", by what was captured", |t| {
            t.rows[2].calls[0].role = "probe".into();
        }),
        mutation(I::CapturedTrainable, Some(2), "the trial masks calls of role title", |t| {
            t.calls[3].role = CallRole::Title;
            t.rows[2].calls[0].role = "title".into();
        }),
        mutation(I::CapturedPresence, None, "choice 1 of call call-0003 is complete and in no branch", |t| {
            let mut other = t.calls[3].choices[0].clone();
            other.index = 1;
            t.calls[3].choices.push(other);
        }),
    ]
}

fn token(id: u32) -> TokenId {
    TokenId::try_from(id).unwrap()
}

pub(super) fn mutations() -> Vec<Mutation> {
    [mutations_of_one_row(), mutations_of_the_trial(), mutations_of_what_was_captured()]
        .into_iter()
        .flatten()
        .collect()
}
