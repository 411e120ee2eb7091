//! The invariants of rollout rows, by name.

use std::fmt;

macro_rules! invariants {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// An invariant of rollout rows. The names are stable.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Invariant {
            $($(#[$doc])* $variant,)*
        }

        impl Invariant {
            /// Every invariant.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name in reports.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

invariants! {
    // Invariants of each row alone.
    /// `schema_version` is the version of this build.
    SchemaVersion = "schema_version",
    /// All per-token lists have the length of `token_ids`. Otherwise it is unknown which values belong together, and no
    /// other invariant of tokens is checked.
    ListLengths = "list_lengths",
    /// Masks contain only 0 and 1.
    MaskValues = "mask_values",
    /// `loss_mask` ⊆ `trainable_mask` ⊆ `sampled_mask`.
    MaskNesting = "mask_nesting",
    /// Logprobs are finite and at most 0.
    LogprobValues = "logprob_values",
    /// Logprobs are 0.0 for tokens that were not sampled.
    LogprobOffMask = "logprob_off_mask",
    /// `token_version` is −1 for tokens that were not sampled, and at least 0 for sampled ones.
    TokenVersion = "token_version",
    /// Token ids are at least 0 and below the size of the vocabulary, if that is known.
    TokenIdRange = "token_id_range",
    /// Each span of `calls` has at least one token and is within the row.
    SpanBounds = "span_bounds",
    /// The spans of `calls` are in order and disjoint, and no answer appears twice.
    SpanOrder = "span_order",
    /// The spans of `calls` cover `sampled_mask` exactly.
    SpanCoverage = "span_coverage",
    /// A span's `version` is the `token_version` of its first token.
    SpanVersion = "span_version",
    /// A span starts where its prompt ends.
    SpanPromptLen = "span_prompt_len",
    /// A span's parent is the span before it.
    SpanParent = "span_parent",
    /// A span's `sampling` is a JSON object, its `messages` and `tools` JSON arrays, its temperature and nucleus finite.
    SpanSampling = "span_sampling",
    /// A span's `role` is a known role.
    SpanRole = "span_role",
    /// All spans of a row that name a model name the same one.
    SpanModel = "span_model",
    /// `origin` is a known origin.
    Origin = "origin",
    /// `prompt_len` is the index of the first sampled token, and there is one.
    PromptLen = "prompt_len",
    /// `reward`, `advantage` and `rewards` are finite.
    RewardFinite = "reward_finite",
    /// `status` is a known status.
    Status = "status",
    /// `status`, `is_truncated`, `stop_reason` and the last call's finish reason agree.
    Truncation = "truncation",
    /// `branch_index` is below `num_branches`, and `is_last_branch` is set on the last branch only.
    BranchPosition = "branch_position",
    /// `branch_reprefilled` is at most the length of the longest prompt of the branch's calls.
    BranchReprefilled = "branch_reprefilled",
    /// `sample_index` is below `group_size`, and neither `sample_index` nor `attempt` is negative.
    GroupPosition = "group_position",

    // Invariants of the rows of one trial together.
    /// The rows of a trial are adjacent.
    TrialAdjacent = "trial_adjacent",
    /// A trial has each branch from 0 to `num_branches` (exclusive) once, in order.
    BranchOrder = "branch_order",
    /// The columns that describe the trial are equal in all of its rows.
    TrialColumns = "trial_columns",
    /// An answer that branches share has the same position, the same tokens before and in it, and the same logprobs,
    /// versions and `trainable_mask` in each.
    SharedSpan = "shared_span",
    /// Each trainable token of a trial is in the `loss_mask` of exactly one branch.
    LossOwner = "loss_owner",
    /// The lowest branch among those that share a trainable token owns it.
    LossOwnerLowest = "loss_owner_lowest",

    // Invariants of rows compared with the captured or agent-reported calls.
    /// Each span is a captured answer.
    CapturedCall = "captured_call",
    /// A branch, truncated at a span's start, equals the captured prompt.
    CapturedPrompt = "captured_prompt",
    /// A span's tokens, logprobs, versions and finish reason equal the captured ones.
    CapturedAnswer = "captured_answer",
    /// A row's `origin` is that of its calls.
    CapturedOrigin = "captured_origin",
    /// A span's role is the role that the captured calls determine.
    CapturedRole = "captured_role",
    /// A span's model is the model that the answer named.
    CapturedModel = "captured_model",
    /// A trainable token belongs to a trainable call, of a role that the trial trains, and has a captured logprob.
    CapturedTrainable = "captured_trainable",
    /// Every answer of a complete call with ids is in a branch.
    CapturedPresence = "captured_presence",
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
