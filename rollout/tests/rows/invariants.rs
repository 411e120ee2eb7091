//! The checks: valid trials pass, and whatever is broken is named.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::Index;
use rolltap_rollout::call::{CallRole, CallStatus, Flaw, VersionSpan};
use rolltap_rollout::check::{Breach, Captured, Checker, Invariant, Options, check_trial};
use rolltap_rollout::ids::TrialId;
use rolltap_rollout::row::RolloutRow;
use rolltap_rollout::token::{Logprob, TokenId};
use rolltap_rollout::training::TrainingPolicy;

use crate::trials::{Facts, Trial, VOCAB_SIZE, example, trials};

fn breaches(trial: &Trial) -> Vec<Breach> {
    let captured = Captured::new(&trial.calls).training(TrainingPolicy::default());
    check_trial(&TrialId::new("trial").unwrap(), &trial.rows, Some(&captured), Options::default())
}

fn breaches_of_rows<'a>(rows: impl IntoIterator<Item = &'a RolloutRow>, options: Options) -> Vec<Breach> {
    let mut checker = Checker::new(options);
    let mut breaches: Vec<_> = rows.into_iter().flat_map(|row| checker.row(row, None)).collect();
    breaches.extend(checker.finish());
    breaches
}

/// A way to break the example, and what must be said of it: the invariant, on which branch (none: the trial as a
/// whole), with what in the detail, and nothing but that and `along_with`.
struct Mutation {
    invariant: Invariant,
    branch: Option<i32>,
    detail: &'static str,
    along_with: &'static [Invariant],
    mutate: fn(&mut Trial),
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
    /// Other invariants that cannot hold either once this one is broken.
    fn along_with(self, along_with: &'static [Invariant]) -> Self {
        Self { along_with, ..self }
    }
}

/// The example has these rows, `P` prompt and `a` to `d` sampled, the fourth token of each answer without a logprob:
/// `PPPaaaaPPPbbbb`, `PPPaaaaPPPcccc` and `PPPdddd`.
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
            t.rows[0].calls[1].messages = Some("[".into())
        }),
        mutation(I::SpanSampling, Some(0), "calls[1].top_p", |t| t.rows[0].calls[1].top_p = Some(f64::NAN)),
        mutation(I::SpanRole, Some(2), "calls[0].role is \"chore\", not one of main, ", |t| {
            t.rows[2].calls[0].role = "chore".into();
        })
        .along_with(&[I::CapturedRole]),
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

fn mutations() -> Vec<Mutation> {
    [mutations_of_one_row(), mutations_of_the_trial(), mutations_of_what_was_captured()]
        .into_iter()
        .flatten()
        .collect()
}

#[test]
fn the_example_is_valid() {
    assert_eq!(breaches(&example()), []);
    assert_eq!(example().rows.len(), 3);
}

#[test]
fn each_broken_invariant_is_named_with_its_place_and_no_other() {
    for (number, mutation) in mutations().into_iter().enumerate() {
        let Mutation { invariant, branch, detail, along_with, mutate } = mutation;
        let mut trial = example();
        mutate(&mut trial);
        let breaches = breaches(&trial);
        let is_it = |breach: &Breach| {
            breach.invariant == invariant && breach.branch_index == branch && breach.detail.contains(detail)
        };
        assert!(breaches.iter().any(is_it), "mutation {number}, {invariant} ({detail}): {breaches:#?}");
        let named: BTreeSet<_> = breaches.iter().map(|breach| breach.invariant).collect();
        let expected: BTreeSet<_> = along_with.iter().copied().chain([invariant]).collect();
        assert_eq!(named, expected, "mutation {number}, {invariant} ({detail}): {breaches:#?}");
    }
}

#[test]
fn each_invariant_has_a_mutation_and_a_name_of_its_own() {
    let broken: BTreeSet<_> = mutations().iter().map(|mutation| mutation.invariant).collect();
    assert_eq!(broken, Invariant::ALL.iter().copied().collect());
    let names: BTreeSet<_> = Invariant::ALL.iter().map(|invariant| invariant.to_string()).collect();
    assert_eq!(names.len(), Invariant::ALL.len());
    assert!(names.iter().all(|name| name.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase())));
}

/// One change of one token's value, anywhere.
fn change_one_value(row: &mut RolloutRow, column: u8, place: Index) {
    let at = place.index(row.token_ids.len());
    match column {
        0 => row.token_ids[at] ^= 1,
        1 => row.sampled_mask[at] ^= 1,
        2 => row.trainable_mask[at] ^= 1,
        3 => row.loss_mask[at] ^= 1,
        4 => row.logprobs[at] -= 1.0 + row.logprobs[at].abs() / 2.0,
        _ => row.token_version[at] ^= 1,
    }
}

proptest! {
    #[test]
    fn valid_trials_pass(trial in trials()) {
        prop_assert_eq!(breaches(&trial), []);
        let options = Options { vocab_size: Some(VOCAB_SIZE), ..Options::default() };
        prop_assert_eq!(breaches_of_rows(&trial.rows, options), []);
    }

    #[test]
    fn no_changed_token_goes_unnoticed(trial in trials(), row in any::<Index>(), column in 0_u8..6, at in any::<Index>()) {
        let mut changed = trial;
        let row = row.index(changed.rows.len());
        change_one_value(&mut changed.rows[row], column, at);
        prop_assert!(!breaches(&changed).is_empty());
    }

    /// Foreign rows can hold anything.
    #[test]
    fn nonsense_is_told_without_panic(
        trial in trials(),
        cuts in prop::collection::vec((any::<Index>(), 0_u8..6, any::<Index>()), 0..4),
        spans in prop::collection::vec((any::<Index>(), any::<Index>(), any::<i32>(), any::<i32>()), 0..4),
        branch_index: i32,
        num_branches: i32,
    ) {
        let mut trial = trial;
        for (row, column, length) in cuts {
            let row = row.index(trial.rows.len());
            let row = &mut trial.rows[row];
            let length = length.index(row.token_ids.len() + 1);
            match column {
                0 => row.token_ids.truncate(length),
                1 => row.sampled_mask.truncate(length),
                2 => row.trainable_mask.truncate(length),
                3 => row.loss_mask.truncate(length),
                4 => row.logprobs.truncate(length),
                _ => row.token_version.truncate(length),
            }
        }
        for (row, span, start, end) in spans {
            let row = row.index(trial.rows.len());
            let calls = &mut trial.rows[row].calls;
            let span = span.index(calls.len());
            (calls[span].start, calls[span].end) = (start, end);
        }
        trial.rows[0].branch_index = branch_index;
        trial.rows[0].num_branches = num_branches;
        drop(breaches(&trial));
    }
}

#[test]
fn trials_one_after_the_other_pass() {
    let other = crate::trials::build(&Facts::new("other"), &[crate::trials::Answer::new(None)]);
    let rows: Vec<_> = example().rows.into_iter().chain(other.rows).collect();
    assert_eq!(breaches_of_rows(&rows, Options::default()), []);
}

#[test]
fn the_lower_of_two_vocabularies_counts() {
    let options = Options { vocab_size: Some(24), ..Options::default() };
    let found = breaches_of_rows(&example().rows, options);
    assert!(found.iter().all(|breach| breach.invariant == Invariant::TokenIdRange), "{found:#?}");
    assert_eq!(found.len(), 5, "token 24 stands five times: {found:#?}");
}

#[test]
fn many_breaches_of_one_kind_are_counted() {
    let mut trial = example();
    let row = &mut trial.rows[0];
    row.token_ids.fill(-7);
    let found = breaches_of_rows([&*row], Options { details_per_invariant: 3, ..Options::default() });
    let of_ids: Vec<_> = found.iter().filter(|breach| breach.invariant == Invariant::TokenIdRange).collect();
    assert_eq!(of_ids.len(), 4, "{of_ids:#?}");
    assert_eq!(of_ids[3].detail, "11 more of this kind");
}

#[test]
fn captured_answers_of_a_trial_without_rows_are_missed() {
    let trial = Trial { rows: Vec::new(), ..example() };
    let found = breaches(&trial);
    assert_eq!(found.len(), 4, "{found:#?}");
    assert!(found.iter().all(|breach| breach.invariant == Invariant::CapturedPresence), "{found:#?}");
}

#[test]
fn a_breach_reads_as_one_line() {
    let mut trial = example();
    trial.rows[1].loss_mask[4] = 1;
    let lines: Vec<_> = breaches(&trial).iter().map(ToString::to_string).collect();
    let expected = "trial trial: loss_owner: token 1 of choice 0 of call call-0000 is in loss_mask of the branches [0, 1]";
    assert_eq!(lines, [expected]);
    for row in &mut trial.rows {
        row.trial_id = "line\nbreak".to_owned();
    }
    let lines: Vec<_> = breaches(&trial).iter().map(ToString::to_string).collect();
    assert!(lines.len() == 1 && lines[0].starts_with("trial line\\nbreak: loss_owner: "), "{lines:?}");
}
