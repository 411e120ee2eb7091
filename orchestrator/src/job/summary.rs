//! The summary at the end of a job: rows per trial and task if they are few, totals, the causes of failures and of
//! branches with their remedies, and the paths of the rollouts.

mod next_steps;
mod notes;
mod rewards;
pub(super) mod table;
mod tables;
mod totals;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rolltap_proxy::api::Cost;

use self::totals::Totals;
use crate::common::shown_path::below;
use crate::common::style::{BAD, BOLD, GOOD, WEAK, of_reward, painted};
use crate::common::words::{clock, counted, number, spaced};
use crate::job::JobReport;

/// Displays a job's report as text for people, with colours. The writer removes these where they do not belong.
#[derive(Debug)]
pub struct Summary<'a> {
    report: &'a JobReport,
    rows: Rows,
    width: Option<usize>,
    current_dir: Option<PathBuf>,
}

/// The largest table with a row per trial or per task that a summary has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// A table of any size.
    All,
    /// A table with up to this many rows.
    UpTo(usize),
}

/// The given number of rows is neither a number nor `all`.
#[derive(Debug, thiserror::Error)]
#[error("expected a number or \"all\"")]
pub struct InvalidRows;

impl Default for Rows {
    fn default() -> Self {
        Self::UpTo(20)
    }
}

impl FromStr for Rows {
    type Err = InvalidRows;

    fn from_str(text: &str) -> Result<Self, InvalidRows> {
        match text {
            "all" => Ok(Self::All),
            number => number.parse().map(Self::UpTo).map_err(|_| InvalidRows),
        }
    }
}

impl fmt::Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::UpTo(most) => most.fmt(f),
        }
    }
}

impl Rows {
    fn allow(self, rows: usize) -> bool {
        match self {
            Self::All => true,
            Self::UpTo(most) => rows <= most,
        }
    }
}

impl<'a> Summary<'a> {
    /// Makes a summary with the default limit of rows, for a reader without a width.
    pub fn new(report: &'a JobReport) -> Self {
        Self { report, rows: Rows::default(), width: None, current_dir: None }
    }

    /// Limits the tables of trials and of tasks.
    #[must_use]
    pub fn rows(self, rows: Rows) -> Self {
        Self { rows, ..self }
    }

    /// Wraps tables at this width.
    #[must_use]
    pub fn width(self, width: Option<usize>) -> Self {
        Self { width, ..self }
    }

    /// Shortens paths below this directory.
    #[must_use]
    pub fn relative_to(self, current_dir: Option<PathBuf>) -> Self {
        Self { current_dir, ..self }
    }

    /// Returns the directory of the job as the summary shows it.
    pub fn job_dir(&self) -> &Path {
        self.path(self.report.dir.path())
    }

    fn path<'p>(&self, path: &'p Path) -> &'p Path {
        self.current_dir.as_ref().map_or(path, |here| below(path, here))
    }

    fn write_tables(&self, f: &mut fmt::Formatter<'_>, totals: &Totals) -> fmt::Result {
        let trials = &self.report.trials;
        let (has_trials, has_tasks) = (self.rows.allow(trials.len()), self.rows.allow(totals.tasks.len()));
        if has_trials && !trials.is_empty() {
            writeln!(f, "{}\n", tables::trials(trials, self.width))?;
        }
        // With one sample of each task, this table has the rows of the first.
        let has_samples = totals.tasks.len() < trials.len();
        if has_tasks && !totals.tasks.is_empty() && (has_samples || !has_trials) {
            writeln!(f, "{}\n", tables::tasks(totals, self.width))?;
        }
        if trials.len() > 1 {
            writeln!(f, "{}\n", tables::sets(totals, self.width))?;
        }
        if let Some(failures) = tables::failures(totals, self.width) {
            writeln!(f, "{failures}\n")?;
        }
        if let Some(causes) = tables::causes(&totals.causes, self.width) {
            writeln!(f, "{causes}\n")?;
        }
        if !has_trials {
            let (trials, tasks) =
                (counted(trials.len() as u64, "trial"), counted(totals.tasks.len() as u64, "task"));
            let work = if has_tasks { trials } else { format!("{trials} of {tasks}") };
            writeln!(f, "no row for each of {work}: --rows all prints them\n")?;
        }
        Ok(())
    }

    fn write_totals(&self, f: &mut fmt::Formatter<'_>, totals: &Totals) -> fmt::Result {
        let JobReport { trials, planned, took, .. } = self.report;
        let ended = painted(BOLD, &counted(trials.len() as u64, "trial"));
        let failed = format!("{} failed", totals.all.failed);
        let failed = if totals.all.failed > 0 { painted(BAD, &failed) } else { failed };
        write!(f, "{ended} in {}, {failed}", clock(*took))?;
        if let Some(mean) = totals.all.mean_reward() {
            let rewards = counted(totals.all.rewards.len() as u64, "reward");
            write!(f, ", mean reward {} of {rewards}", painted(of_reward(mean), &number(mean)))?;
        }
        writeln!(f)?;
        if totals.calls > 0 {
            let calls = counted(totals.calls, "call");
            let (prompts, sampled) = (spaced(totals.prompt_tokens), spaced(totals.sampled_tokens));
            writeln!(f, "tokens:   {prompts} in, {sampled} sampled, in {calls}")?;
        }
        let Cost { branches, tokens } = totals.further_branches();
        if branches > 0 {
            let branches = counted(branches, "further branch");
            writeln!(f, "branches: {branches}, whose first prompts have {} new tokens", spaced(tokens))?;
        }
        let missing = planned.saturating_sub(trials.len());
        if missing > 0 {
            let missing = format!("{missing} of {} did not run", counted(*planned as u64, "trial"));
            writeln!(f, "{}", painted(WEAK, &missing))?;
        }
        Ok(())
    }
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.report;
        let totals = Totals::of(&report.trials);
        self.write_tables(f, &totals)?;
        let empty = notes::empty_line(&report.trials);
        let warnings = empty.into_iter().chain(rewards::warnings(&report.trials));
        let warnings = warnings.chain(notes::suspicious_line(&report.trials));
        for line in warnings.chain(notes::returned_lines(&report.trials)) {
            writeln!(f, "{line}")?;
        }
        self.write_totals(f, &totals)?;
        for problem in &report.problems {
            writeln!(f, "{} {problem}", painted(BAD, "problem:"))?;
        }
        if let Some(files) = &report.rollouts {
            let rows = counted(files.rows as u64, "row");
            writeln!(f, "rollouts: {}", self.path(&files.jsonl).display())?;
            writeln!(f, "          {} ({rows})", self.path(&files.parquet).display())?;
        }
        let is_good = report.is_clean() && totals.all.failed == 0;
        let heading = if is_good { painted(GOOD, "job:") } else { painted(BOLD, "job:") };
        write!(f, "{heading}      {}", self.job_dir().display())?;
        next_steps::next_steps(report, self.job_dir()).iter().try_for_each(|line| write!(f, "\n{line}"))
    }
}
