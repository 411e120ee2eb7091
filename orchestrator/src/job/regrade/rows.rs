//! The rollouts of a job with the rewards of a version.

use std::collections::BTreeMap;
use std::path::Path;

use rolltap_rollout::ids::RewardVersion;
use rolltap_rollout::rollout::{Reward, TrialRewards};
use rolltap_rollout::row::RolloutRow;

use super::report::RegradedTrial;
use crate::failure::chain;
use crate::job::RolloutFiles;
use crate::job::rollouts::{GatherError, Writers, remove_drafts};
use crate::job_dir::RegradeDir;
use crate::source;

/// Copies the rows of the file `from`, each with the reward that its trial has in the version. A trial without one gets
/// the reward of a missing version.
///
/// # Errors
/// Returns the problem as text.
pub(super) fn write(
    from: &Path,
    dir: &RegradeDir,
    version: &RewardVersion,
    trials: &[RegradedTrial],
) -> Result<RolloutFiles, String> {
    let (jsonl, parquet) = (dir.rollouts_jsonl(), dir.rollouts_parquet());
    let rewards = trials
        .iter()
        .filter_map(|trial| Some((trial.trial.to_string(), trial.after.as_ref()?.to_reward(version))));
    let rewards: BTreeMap<String, Reward> = rewards.collect();
    let missing = TrialRewards::default().of(Some(version));
    let copied = copy(from, &jsonl, &parquet, |row| {
        rewards.get(&row.trial_id).unwrap_or(&missing).replace_in(row);
    });
    match copied {
        Ok(rows) => Ok(RolloutFiles { jsonl, parquet, rows }),
        Err(problem) => {
            remove_drafts(&[&jsonl, &parquet]);
            Err(format!("the rollouts of version {version} are not written: {problem}"))
        }
    }
}

fn copy(
    from: &Path,
    jsonl: &Path,
    parquet: &Path,
    change: impl Fn(&mut RolloutRow),
) -> Result<usize, String> {
    let failed = |error: GatherError| chain(&error);
    let mut writers = Writers::create(jsonl, parquet).map_err(failed)?;
    for row in source::rows::<RolloutRow>(from).map_err(|error| chain(&error))? {
        let mut row = row.map_err(|problem| format!("{}: {problem}", from.display()))?;
        change(&mut row);
        writers.write(std::slice::from_ref(&row)).map_err(failed)?;
    }
    writers.finish().map_err(failed)
}
