//! The key of a trial in the bucket.

use std::fmt;

use uuid::Uuid;

/// A trial of a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TrialKey {
    /// The id of the job.
    pub job: Uuid,
    /// The name of the trial in the job: letters, digits, `.`, `_` and `-`.
    pub trial: String,
}

impl TrialKey {
    /// The beginning of the keys of a job.
    pub(super) fn prefix(job: Uuid) -> String {
        format!("trial.{job}.")
    }

    /// Reads a key. `None` for a text that is no key of a trial.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let job = text.strip_prefix("trial.")?.split('.').next()?.parse().ok()?;
        Self::of_job(job, text)
    }

    /// Returns the trial of a key of this job. `None` for another key.
    pub(super) fn of_job(job: Uuid, key: &str) -> Option<Self> {
        let trial = key.strip_prefix(&Self::prefix(job))?;
        Some(Self { job, trial: trial.replace("=2E", ".") })
    }
}

/// The key as NATS gets it. A `.` separates the parts of a key, and a part must not be empty, so a `.` of a name is written
/// as `=2E`. No name has a `=`.
impl fmt::Display for TrialKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Self::prefix(self.job), self.trial.replace('.', "=2E"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_job_and_the_name() {
        let job = Uuid::from_u128(7);
        let key = TrialKey { job, trial: "a..b__x.y".to_owned() };
        assert_eq!(key.to_string(), format!("trial.{job}.a=2E=2Eb__x=2Ey"));
        assert_eq!(TrialKey::of_job(job, &key.to_string()), Some(key.clone()));
        assert_eq!(TrialKey::of_job(Uuid::nil(), &key.to_string()), None);
        assert_eq!(TrialKey::parse(&key.to_string()), Some(key));
        for bad in ["", "trial.", "trial.x.y", "worker.1"] {
            assert_eq!(TrialKey::parse(bad), None, "{bad}");
        }
    }
}
