//! The fields that name the branch of a line, for formats whose trainer ignores them.

use serde::Serialize;

use super::float_text::finite;
use crate::row::RolloutRow;

/// The branch of a line, and the reward to train on.
#[derive(Serialize)]
pub(crate) struct LineSource<'a> {
    trial_id: &'a str,
    task_id: &'a str,
    group_id: Option<&'a str>,
    sample_index: i32,
    branch_index: i32,
    #[serde(serialize_with = "finite")]
    reward: Option<f64>,
}

impl<'a> LineSource<'a> {
    pub(crate) fn of(row: &'a RolloutRow, reward: Option<f64>) -> Self {
        Self {
            trial_id: &row.trial_id,
            task_id: &row.task_id,
            group_id: row.group_id.as_deref(),
            sample_index: row.sample_index,
            branch_index: row.branch_index,
            reward,
        }
    }
}
