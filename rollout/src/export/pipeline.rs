//! The passes of an export over its input: survey, plan, selection and masks.

pub mod advantage;
pub(super) mod mask;
pub mod plan;
pub mod prepare;
pub mod projection;
pub mod rules;
pub mod sampling_report;
pub mod select;
pub(crate) mod stand_in;
pub mod survey;
