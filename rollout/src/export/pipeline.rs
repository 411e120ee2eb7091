//! The passes of an export over its input: survey, plan, selection and masks.

pub mod advantage;
pub mod choice;
pub(super) mod mask;
pub mod part;
pub mod plan;
pub mod rules;
pub mod sampled;
pub mod survey;
