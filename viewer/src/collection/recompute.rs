//! Reads the report of `rolltap check --recompute-report`, of which a page shows the lines of one trial.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use rolltap_rollout::check::recomputation::{LineError, RECOMPUTED_SCHEMA, RecomputedRow};

use super::trial::TrialContent;

/// The maximum number of unreadable lines that a page lists.
const LISTED: usize = 10;

/// Reads the lines of the trial. The problems name lines that cannot be read, whatever their trial is.
pub(super) fn read_lines(file: &Path, content: &mut TrialContent) {
    let mut unreadable = 0_usize;
    let mut failed = |number: usize, problem: String, problems: &mut Vec<String>| {
        unreadable += 1;
        if unreadable <= LISTED {
            problems.push(format!("{}, line {number}: {problem}", file.display()));
        } else if unreadable == LISTED + 1 {
            problems.push(format!("{}: further lines cannot be read", file.display()));
        }
    };
    let lines = match File::open(file) {
        Ok(opened) => BufReader::new(opened).split(b'\n'),
        Err(error) => return content.problems.push(format!("cannot read {}: {error}", file.display())),
    };
    for (line, number) in lines.zip(1..) {
        match line.map_err(Problem::Read).and_then(|line| of_trial(&line, &content.entry.id)) {
            Ok(row) => content.recomputed.extend(row),
            Err(problem) => {
                let is_last = matches!(problem, Problem::Read(_));
                failed(number, problem.to_string(), &mut content.problems);
                if is_last {
                    return;
                }
            }
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("cannot read the file: {0}")]
    Read(io::Error),
    #[error(transparent)]
    Line(#[from] LineError),
}

/// Returns the row of a line, if it is of this trial.
fn of_trial(line: &[u8], trial: &str) -> Result<Option<RecomputedRow>, Problem> {
    // Most lines are of other trials, and need no decoding if rolltap wrote them whole.
    let start = format!("{{\"schema_version\":\"{RECOMPUTED_SCHEMA}\",\"trial_id\":");
    if let Some(rest) = line.strip_prefix(start.as_bytes())
        && line.ends_with(b"]}")
        && !rest.starts_with(serde_json::Value::from(trial).to_string().as_bytes())
    {
        return Ok(None);
    }
    let row = RecomputedRow::parse(line)?;
    Ok(Some(row).filter(|row| row.trial_id == trial))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_line_is_read_or_refused(line: Vec<u8>, trial: String) {
            let _ = of_trial(&line, &trial);
        }
    }
}
