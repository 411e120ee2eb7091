//! Parts that several formats use.

pub(super) mod call_run;
pub(super) mod compared;
pub(super) mod float_text;
pub(super) mod json;
pub(super) mod line_source;
pub(super) mod lines;
pub(super) mod naming;
pub(super) mod one_number;
pub(super) mod open_groups;
pub(super) mod policy_number;
pub(super) mod positions;
pub(super) mod refusal;
pub(super) mod row_queries;
pub(super) mod runs;
pub(super) mod sequence;
pub(super) mod temperature;
pub(super) mod training_message;
pub(super) mod transcript;
pub(super) mod turn;
