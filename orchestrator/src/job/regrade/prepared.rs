//! What a later verification reads before it starts: the job, its trials and tasks, and the version to make.

use std::path::PathBuf;

use rolltap_rollout::ids::RewardVersion;
use serde_json::Value;

use super::recorded::Recorded;
use super::tasks::Tasks;
use super::{RegradeError, RegradeSettings, place, records};
use crate::environment::EnvironmentKind;
use crate::job::config::JobFile;
use crate::job::resume;
use crate::job_dir::{Claim, JobDir};
use crate::trial::TrialExtras;

/// A job whose trials can be verified again.
pub(super) struct Prepared {
    pub(super) job: JobDir,
    pub(super) file: JobFile,
    /// What the job adds to its tasks.
    pub(super) extras: TrialExtras,
    pub(super) kind: EnvironmentKind,
    pub(super) tasks: Tasks,
    pub(super) trials: Vec<Recorded>,
    /// The file with the rollouts of the job.
    pub(super) rollouts: PathBuf,
    pub(super) version: RewardVersion,
    pub(super) config: Value,
    /// Whether an earlier run began this version.
    pub(super) is_continued: bool,
    /// Keeps the directory for this process.
    _claim: Claim,
}

impl Prepared {
    pub(super) async fn read(settings: &RegradeSettings) -> Result<Self, RegradeError> {
        let not_a_job = || RegradeError::NotAJob(settings.job_dir.clone());
        let path = settings.job_dir.canonicalize().map_err(|_| not_a_job())?;
        let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str()))
        else {
            return Err(not_a_job());
        };
        if !path.join("config.json").is_file() {
            return Err(not_a_job());
        }
        let claim = JobDir::claim(parent, name)?;
        let job = claim.dir.clone();
        let file = JobFile::read(&job.config())?;
        let left = resume::look(&job).await?.ok_or_else(not_a_job)?;
        if !left.has_ended {
            return Err(RegradeError::Unfinished(path));
        }
        // Reading JSON Lines needs no decoding of columns.
        let rollouts = [job.rollouts_jsonl(), job.rollouts_parquet()].into_iter().find(|file| file.is_file());
        let rollouts = rollouts.ok_or_else(|| RegradeError::NoRows(path.clone()))?;
        let trials = left.last_attempts().filter_map(|(name, result)| Recorded::read(name, result?));
        let trials: Vec<_> = trials.collect();
        if trials.is_empty() {
            return Err(RegradeError::NoTrials(path));
        }
        let kind = place::environment(settings, &file)?;
        let overrides = file.job.overrides()?;
        let extras = overrides.extras()?;
        let tasks = Tasks::load(settings, &file, &overrides, &extras).await?;
        tasks.check(&trials)?;
        let mut chosen = VersionChoice::of(settings, &job)?;
        let mut config = records::config(&chosen.version, settings, kind, &tasks, &trials);
        if let Some(before) = &chosen.before
            && let Err(differs) = records::is_same(&chosen.version, before, &config)
        {
            // An interrupted version with another verifier stays as it is, and a new one begins.
            chosen = VersionChoice { version: chosen.or_next.ok_or(differs)?, before: None, or_next: None };
            config = records::config(&chosen.version, settings, kind, &tasks, &trials);
        }
        let (version, is_continued) = (chosen.version, chosen.before.is_some());
        Ok(Self {
            job,
            file,
            extras,
            kind,
            tasks,
            trials,
            rollouts,
            version,
            config,
            is_continued,
            _claim: claim,
        })
    }
}

/// The version to make or to complete.
struct VersionChoice {
    version: RewardVersion,
    /// The settings of its earlier run.
    before: Option<Value>,
    /// The version to make if the settings differ. `None` if the user named the version.
    or_next: Option<RewardVersion>,
}

impl VersionChoice {
    fn of(settings: &RegradeSettings, job: &JobDir) -> Result<Self, RegradeError> {
        let read = |path: PathBuf| {
            std::fs::read(path).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok())
        };
        let config = |version: &RewardVersion| read(job.regrade(version).config());
        if let Some(version) = &settings.version {
            return Ok(Self { version: version.clone(), before: config(version), or_next: None });
        }
        let numbered =
            |number: u64| RewardVersion::new(format!("regrade-{number}")).map_err(resume::ResumeError::Name);
        let is_taken = |version: &RewardVersion| job.regrade(version).path().exists();
        let mut number = 1;
        while is_taken(&numbered(number)?) {
            number += 1;
        }
        let next = numbered(number)?;
        let Some(last) = number.checked_sub(1).filter(|last| *last > 0) else {
            return Ok(Self { version: next, before: None, or_next: None });
        };
        let last = numbered(last)?;
        let result = read(job.regrade(&last).result());
        let has_ended = result.is_some_and(|result| result.get("finished_at").is_some_and(Value::is_string));
        match (has_ended, config(&last)) {
            (false, Some(before)) => Ok(Self { version: last, before: Some(before), or_next: Some(next) }),
            _ => Ok(Self { version: next, before: None, or_next: None }),
        }
    }
}
