//! Every format that an export can have, by name: what it is, and what it takes where a user did not say.

use std::io::{Seek, Write};

use super::advantage::Advantage;
use super::exporter::{ExportError, Exporter};
use super::named::named;
use super::rules::OnFork;
use super::whole_rows::{JsonlExporter, ParquetExporter};

named! {
    /// A form in which rollouts leave for a trainer.
    pub enum Format {
        /// rollout/1, a JSON line per branch
        Jsonl = "jsonl",
        /// rollout/1, a Parquet row per branch
        Parquet = "parquet",
    }
}

impl Format {
    /// What becomes of forked trials where nobody said: all branches where the trainer takes several sequences of one
    /// trial, the longest where it would take each for a trial.
    pub fn on_fork(self) -> OnFork {
        match self {
            Self::Jsonl | Self::Parquet => OnFork::All,
        }
    }

    /// How trials are weighed where nobody said: by GRPO's rule where the trainer takes advantages, not at all where it
    /// makes them of rewards.
    pub fn advantage(self) -> Advantage {
        match self {
            Self::Jsonl | Self::Parquet => Advantage::None,
        }
    }

    /// Starts a file of this format. Some write at its end what stands at its beginning, so it can seek.
    ///
    /// # Errors
    /// The output failed.
    pub fn exporter<'a>(
        self,
        out: impl Write + Seek + Send + 'a,
    ) -> Result<Box<dyn Exporter + 'a>, ExportError> {
        Ok(match self {
            Self::Jsonl => Box::new(JsonlExporter::new(out)),
            Self::Parquet => Box::new(ParquetExporter::new(out)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::named::Named;
    use super::*;

    #[test]
    fn names_are_unique_and_find_their_format() {
        let names: HashSet<_> = Format::ALL.iter().map(|format| format.name()).collect();
        assert_eq!(names.len(), Format::ALL.len());
        assert!(Format::ALL.iter().all(|format| Format::named(format.name()) == Some(*format)));
        assert_eq!(Format::named("csv"), None);
    }
}
