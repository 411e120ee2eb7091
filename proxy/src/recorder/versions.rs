//! The weights that sampled each token, as policy versions.

use std::collections::BTreeSet;

use rolltap_rollout::call::{Call, Choice, VersionSpan};

use crate::upstream::ServedBy;

/// Records that `version` sampled the tokens from index `start` on, if it differs from the version before. `sent` is the
/// version at the time of the request.
pub(super) fn stamp(choice: &mut Choice, start: usize, sent: i32, version: i32) {
    let before = choice.versions.last().map_or(sent, |span| span.version);
    if version != before {
        choice.versions.push(VersionSpan { start: u32::try_from(start).unwrap_or(u32::MAX), version });
    }
}

/// Sets the labels of the call's versions, and whether the call straddles several.
pub(super) fn summarize(call: &mut Call, by: &ServedBy, is_stream: bool) {
    let spans = call.choices.iter().flat_map(|choice| &choice.versions);
    let versions: BTreeSet<_> = spans.map(|span| span.version).chain([call.policy_version]).collect();
    let has_tokens = call.choices.iter().any(|choice| !choice.token_ids.is_empty());
    // The tokens of a whole answer arrive at once: a version that changed meanwhile may have sampled some of them.
    let has_changed = !is_stream && by.version_now() != call.policy_version;
    call.straddles_versions = versions.len() > 1 || (has_changed && has_tokens);
    call.version_labels = by.labels_of(versions);
}
