//! Checks each row alone.

use std::collections::{HashMap, HashSet};

use serde::de::IgnoredAny;

use super::{Findings, Invariant};
use crate::call::CallRole;
use crate::origin::Origin;
use crate::rollout::BranchStatus;
use crate::row::{CallSpan, RolloutRow, SCHEMA_VERSION};

/// Checks the row. Returns whether its per-token lists have equal lengths, so that its tokens were checked.
pub(super) fn check(row: &RolloutRow, vocab_size: Option<u32>, found: &mut Findings<'_>) -> bool {
    schema_version(row, found);
    rewards(row, found);
    ending(row, found);
    positions(row, found);
    origin(row, found);
    models(row, found);
    for (index, span) in row.calls.iter().enumerate() {
        sampling(index, span, found);
        role(index, span, found);
    }
    let is_aligned = list_lengths(row, found);
    if is_aligned {
        masks(row, found);
        logprobs(row, found);
        token_versions(row, found);
        token_ids(row, vocab_size, found);
        prompt_len(row, found);
        spans(row, found);
        coverage(row, found);
    }
    is_aligned
}

fn schema_version(row: &RolloutRow, found: &mut Findings<'_>) {
    let version = &row.schema_version;
    found.require(version == SCHEMA_VERSION, Invariant::SchemaVersion, || {
        format!("schema_version is {version:?}, this build knows {SCHEMA_VERSION:?}")
    });
}

fn list_lengths(row: &RolloutRow, found: &mut Findings<'_>) -> bool {
    let expected = row.token_ids.len();
    let lengths = [
        ("sampled_mask", row.sampled_mask.len()),
        ("trainable_mask", row.trainable_mask.len()),
        ("loss_mask", row.loss_mask.len()),
        ("logprobs", row.logprobs.len()),
        ("token_version", row.token_version.len()),
    ];
    for (name, length) in lengths {
        found.require(length == expected, Invariant::ListLengths, || {
            format!("{name} has {length} values, token_ids has {expected}")
        });
    }
    // Values of lists with different lengths cannot be matched, so every check of tokens would report noise.
    lengths.iter().all(|&(_, length)| length == expected)
}

fn masks(row: &RolloutRow, found: &mut Findings<'_>) {
    let masks = [
        ("sampled_mask", &row.sampled_mask),
        ("trainable_mask", &row.trainable_mask),
        ("loss_mask", &row.loss_mask),
    ];
    for (name, mask) in masks {
        for (index, &value) in mask.iter().enumerate() {
            let is_mask = matches!(value, 0 | 1);
            found.require(is_mask, Invariant::MaskValues, || {
                format!("{name}[{index}] is {value}, not 0 or 1")
            });
        }
    }
    for ((outer_name, outer), (name, mask)) in masks.into_iter().zip(masks.into_iter().skip(1)) {
        for (index, (&value, &outer_value)) in mask.iter().zip(outer).enumerate() {
            found.require(value == 0 || outer_value != 0, Invariant::MaskNesting, || {
                format!("{name}[{index}] is {value}, but {outer_name}[{index}] is 0")
            });
        }
    }
}

fn logprobs(row: &RolloutRow, found: &mut Findings<'_>) {
    for (index, (&logprob, &sampled)) in row.logprobs.iter().zip(&row.sampled_mask).enumerate() {
        found.require(logprob.is_finite() && logprob <= 0.0, Invariant::LogprobValues, || {
            format!("logprobs[{index}] is {logprob}, not a finite number of at most 0")
        });
        found.require(sampled != 0 || logprob == 0.0, Invariant::LogprobOffMask, || {
            format!("logprobs[{index}] is {logprob}, but sampled_mask[{index}] is 0")
        });
    }
}

fn token_versions(row: &RolloutRow, found: &mut Findings<'_>) {
    for (index, (&version, &sampled)) in row.token_version.iter().zip(&row.sampled_mask).enumerate() {
        let holds = if sampled == 0 { version == -1 } else { version >= 0 };
        found.require(holds, Invariant::TokenVersion, || {
            format!("token_version[{index}] is {version}, and sampled_mask[{index}] is {sampled}")
        });
    }
}

fn token_ids(row: &RolloutRow, vocab_size: Option<u32>, found: &mut Findings<'_>) {
    // The smaller bound applies: a row's own `vocab_size` may be as wrong as the rest of the row.
    let bounds = [row.vocab_size.map(i64::from), vocab_size.map(i64::from)];
    let bound = bounds.into_iter().flatten().min();
    for (index, &id) in row.token_ids.iter().enumerate() {
        let holds = id >= 0 && bound.is_none_or(|bound| i64::from(id) < bound);
        found.require(holds, Invariant::TokenIdRange, || match bound {
            Some(bound) => {
                format!("token_ids[{index}] is {id}, the vocabulary has ids 0 to {bound}, exclusive")
            }
            None => format!("token_ids[{index}] is {id}"),
        });
    }
}

fn prompt_len(row: &RolloutRow, found: &mut Findings<'_>) {
    // A row without a sampled token is a breach too: such a branch has no row.
    let first = row.sampled_mask.iter().position(|&sampled| sampled != 0);
    let holds = first.is_some_and(|first| usize::try_from(row.prompt_len) == Ok(first));
    found.require(holds, Invariant::PromptLen, || match first {
        Some(first) => format!("prompt_len is {}, the first sampled token is at {first}", row.prompt_len),
        None => "no token is sampled".to_owned(),
    });
}

/// Checks each span, and its order relative to the span before it.
fn spans(row: &RolloutRow, found: &mut Findings<'_>) {
    let mut seen = HashMap::new();
    let mut before: Option<&CallSpan> = None;
    for (index, span) in row.calls.iter().enumerate() {
        let CallSpan { call_id, choice_index, start, end, .. } = span;
        found.require(span_tokens(span, &row.token_ids).is_some(), Invariant::SpanBounds, || {
            format!("calls[{index}] is {start}..{end}, in a row of {} tokens", row.token_ids.len())
        });
        found.require(before.is_none_or(|before| before.end <= *start), Invariant::SpanOrder, || {
            format!("calls[{index}] starts at {start}, before the span before it ends")
        });
        if let Some(first) = seen.insert((call_id.as_str(), *choice_index), index) {
            found.add(Invariant::SpanOrder, || {
                format!("calls[{index}] and calls[{first}] are both choice {choice_index} of call {call_id}")
            });
        }
        found.require(span.prompt_len == *start, Invariant::SpanPromptLen, || {
            format!("calls[{index}] has a prompt of {} tokens and starts at {start}", span.prompt_len)
        });
        let parent = before.map(|before| &before.call_id);
        found.require(span.parent_call_id.as_ref() == parent, Invariant::SpanParent, || {
            format!(
                "calls[{index}].parent_call_id is {:?}, the span before is of {parent:?}",
                span.parent_call_id
            )
        });
        span_version(index, span, row, found);
        before = Some(span);
    }
}

fn span_version(index: usize, span: &CallSpan, row: &RolloutRow, found: &mut Findings<'_>) {
    let Some(first) = span_tokens(span, &row.token_version).and_then(<[i32]>::first) else { return };
    found.require(*first == span.version, Invariant::SpanVersion, || {
        format!("calls[{index}].version is {}, its first token has token_version {first}", span.version)
    });
}

fn coverage(row: &RolloutRow, found: &mut Findings<'_>) {
    let mut is_covered = vec![false; row.token_ids.len()];
    for span in &row.calls {
        let range = range(span).and_then(|range| is_covered.get_mut(range));
        range.into_iter().flatten().for_each(|covered| *covered = true);
    }
    for (index, (&is_covered, &sampled)) in is_covered.iter().zip(&row.sampled_mask).enumerate() {
        found.require(is_covered == (sampled != 0), Invariant::SpanCoverage, || {
            let spans = if is_covered { "a span" } else { "no span" };
            format!("sampled_mask[{index}] is {sampled}, and {spans} of calls covers it")
        });
    }
}

fn sampling(index: usize, span: &CallSpan, found: &mut Findings<'_>) {
    let params = serde_json::from_str::<HashMap<String, IgnoredAny>>(&span.sampling);
    if let Err(error) = params {
        found.add(Invariant::SpanSampling, || {
            format!("calls[{index}].sampling is not a JSON object: {error}")
        });
    }
    for (name, list) in [("messages", &span.messages), ("tools", &span.tools)] {
        if let Some(Err(error)) = list.as_deref().map(serde_json::from_str::<Vec<IgnoredAny>>) {
            found.add(Invariant::SpanSampling, || {
                format!("calls[{index}].{name} is not a JSON array: {error}")
            });
        }
    }
    for (name, value) in [("temperature", span.temperature), ("top_p", span.top_p)] {
        found.require(value.is_none_or(f64::is_finite), Invariant::SpanSampling, || {
            format!("calls[{index}].{name} is {value:?}")
        });
    }
}

/// Requires one model for all spans that name one, because two models' tokens are not one sequence of either policy.
fn models(row: &RolloutRow, found: &mut Findings<'_>) {
    let mut named = row.calls.iter().enumerate().filter_map(|(at, span)| Some((at, span.model.as_deref()?)));
    let Some((first, model)) = named.next() else { return };
    for (index, other) in named {
        found.require(other == model, Invariant::SpanModel, || {
            format!("calls[{index}].model is {other:?}, calls[{first}].model is {model:?}")
        });
    }
}

fn role(index: usize, span: &CallSpan, found: &mut Findings<'_>) {
    // The role is text in a file, so it may be the name of a future role.
    let is_known = CallRole::ALL.into_iter().any(|role| role.as_str() == span.role);
    found.require(is_known, Invariant::SpanRole, || {
        let known = CallRole::ALL.map(CallRole::as_str).join(", ");
        format!("calls[{index}].role is {:?}, not one of {known}", span.role)
    });
}

fn origin(row: &RolloutRow, found: &mut Findings<'_>) {
    found.require(Origin::of(row).is_some(), Invariant::Origin, || {
        let known = Origin::ALL.map(Origin::as_str).join(", ");
        format!("origin is {:?}, not one of {known}", row.origin)
    });
}

fn rewards(row: &RolloutRow, found: &mut Findings<'_>) {
    found.require(row.reward.is_none_or(f64::is_finite), Invariant::RewardFinite, || {
        format!("reward is {:?}; a reward that is not there is null", row.reward)
    });
    found.require(row.advantage.is_none_or(f64::is_finite), Invariant::RewardFinite, || {
        format!("advantage is {:?}", row.advantage)
    });
    for (name, value) in &row.rewards {
        found.require(value.is_finite(), Invariant::RewardFinite, || format!("rewards[{name:?}] is {value}"));
    }
}

fn ending(row: &RolloutRow, found: &mut Findings<'_>) {
    let status = BranchStatus::ALL.into_iter().find(|status| status.as_str() == row.status);
    found.require(status.is_some(), Invariant::Status, || {
        format!(
            "status is {:?}, not one of {}",
            row.status,
            BranchStatus::ALL.map(BranchStatus::as_str).join(", ")
        )
    });
    if let Some(status) = status {
        let is_cut_off = status != BranchStatus::Completed;
        found.require(row.is_truncated == is_cut_off, Invariant::Truncation, || {
            format!("is_truncated is {}, and status {:?}", row.is_truncated, row.status)
        });
        let stop_reason = row.stop_reason.as_deref();
        let holds = match status {
            BranchStatus::Completed => !matches!(stop_reason, Some("length" | "abort")),
            BranchStatus::Truncated => stop_reason == Some("length"),
            // These answers broke off, and may have any stop reason or none.
            BranchStatus::Aborted | BranchStatus::Failed => true,
        };
        found.require(holds, Invariant::Truncation, || {
            format!("status is {:?}, and stop_reason {stop_reason:?}", row.status)
        });
    }
    if let Some(last) = row.calls.last() {
        found.require(row.stop_reason == last.finish_reason, Invariant::Truncation, || {
            format!(
                "stop_reason is {:?}, the last call's finish_reason {:?}",
                row.stop_reason, last.finish_reason
            )
        });
    }
}

fn positions(row: &RolloutRow, found: &mut Findings<'_>) {
    let RolloutRow { branch_index, num_branches, is_last_branch, sample_index, group_size, attempt, .. } =
        row;
    found.require((0..*num_branches).contains(branch_index), Invariant::BranchPosition, || {
        format!("branch_index is {branch_index}, of {num_branches} branches")
    });
    let is_last = i64::from(*branch_index) + 1 == i64::from(*num_branches);
    found.require(*is_last_branch == is_last, Invariant::BranchPosition, || {
        format!("is_last_branch is {is_last_branch} on branch {branch_index} of {num_branches}")
    });
    // The branch starts with one of its calls, so this bounds the tokens that were prefilled again.
    let longest_prompt = row.calls.iter().map(|span| span.prompt_len).max().unwrap_or(i32::MAX);
    let reprefilled = row.branch_reprefilled;
    let holds = reprefilled.is_none_or(|tokens| (0..=longest_prompt).contains(&tokens));
    found.require(holds, Invariant::BranchReprefilled, || {
        format!("branch_reprefilled is {reprefilled:?}, the longest prompt has {longest_prompt} tokens")
    });
    let bound = group_size.unwrap_or(i32::MAX);
    found.require((0..bound).contains(sample_index), Invariant::GroupPosition, || {
        format!("sample_index is {sample_index}, in a group of {group_size:?}")
    });
    found.require(*attempt >= 0, Invariant::GroupPosition, || format!("attempt is {attempt}"));
}

/// Returns the part of a per-token list that a span covers, or `None` if the span is empty or not within the list.
pub(super) fn span_tokens<'a, T>(span: &CallSpan, list: &'a [T]) -> Option<&'a [T]> {
    list.get(range(span)?)
}

fn range(span: &CallSpan) -> Option<std::ops::Range<usize>> {
    let (start, end) = (usize::try_from(span.start).ok()?, usize::try_from(span.end).ok()?);
    (start < end).then_some(start..end)
}

/// The key of an answer within its trial: call id and choice index.
pub(super) type AnswerKey = (String, i32);

/// Returns the answers that a row names.
pub(super) fn answers(row: &RolloutRow) -> HashSet<AnswerKey> {
    row.calls.iter().map(|span| (span.call_id.clone(), span.choice_index)).collect()
}
