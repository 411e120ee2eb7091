//! The screens of a terminal agent, from the files that it leaves in the directory of its trial: a recording of the
//! terminal (`*.cast`), or else the observations in its trajectory.

mod cast;
mod trajectory;

use super::files::TrialFile;

/// The maximum number of screens of a trial, and of the agent's steps among them.
const MOST: usize = 2_000;
const MOST_STEPS: usize = 1_000;
/// The maximum number of bytes that are read of one file.
const MOST_READ: u64 = 16_000_000;
/// The number of bytes at the beginning of a trajectory in which the agent's name is.
const HEAD: u64 = 2_000;

/// The screens of a trial in order of time.
#[derive(Debug, Default)]
pub(crate) struct Screens {
    /// The files that the screens are from.
    pub(crate) sources: Vec<String>,
    pub(crate) screens: Vec<Screen>,
    /// The steps of the agent, in order.
    pub(crate) steps: Vec<Step>,
    /// What could not be read, for the reader of the page.
    pub(crate) problems: Vec<String>,
}

/// The terminal at one moment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Screen {
    /// Seconds since 1970. They count from 0 in a recording without a date.
    pub(crate) at: f64,
    /// The text. It has no escape sequences if it is from a recording, and may have any characters otherwise.
    pub(crate) text: String,
    /// The index of the step in which the screen was shown. `None` if it is not known.
    pub(crate) step: Option<usize>,
}

/// A turn of the agent: its answer and the keystrokes that it asks for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    /// The number in the trajectory.
    pub(crate) number: u64,
    /// When the step was written, in seconds since 1970.
    pub(crate) at: Option<f64>,
    /// Whether the step was written before its keystrokes were typed. Otherwise it was written after their result.
    pub(crate) is_before_typing: bool,
    /// The analysis and the plan, or the whole answer.
    pub(crate) message: String,
    pub(crate) keystrokes: Vec<String>,
    /// The number of tokens of the answer.
    pub(crate) sampled: Option<u64>,
}

impl Screens {
    /// Whether a trial with these files has screens. Reads the beginnings of trajectories only.
    pub(crate) fn are_in(files: &[TrialFile]) -> bool {
        files.iter().any(|file| is_recording(file) || is_trajectory(file))
    }

    /// Reads the screens of a trial with these files. `None` if there are no files of a terminal agent.
    pub(crate) fn read(files: &[TrialFile]) -> Option<Self> {
        if !Self::are_in(files) {
            return None;
        }
        let mut read = Self::default();
        let (mut observed, mut is_dated) = (Vec::new(), true);
        for file in files.iter().filter(|file| is_trajectory(file)) {
            let Some(bytes) = read.start_of(file) else { continue };
            let trajectory = trajectory::read(&bytes, MOST_STEPS.saturating_sub(read.steps.len()));
            read.problems.extend(trajectory.problem.map(|problem| format!("{}: {problem}", file.name)));
            for (step, text) in trajectory.steps {
                let at = step.at.or_else(|| observed.last().map(|screen: &Screen| screen.at));
                let of_step = Some(read.steps.len());
                observed.extend(text.map(|text| Screen { at: at.unwrap_or_default(), text, step: of_step }));
                read.steps.push(step);
            }
            read.sources.push(file.name.clone());
        }
        for file in files.iter().filter(|file| is_recording(file)) {
            let Some(bytes) = read.start_of(file) else { continue };
            let cast = cast::read(&bytes, MOST.saturating_sub(read.steps.len() + read.screens.len()));
            read.problems
                .extend(cast.problems.into_iter().map(|problem| format!("{}: {problem}", file.name)));
            // Without a date, the times of the recording and of the steps cannot be compared.
            let steps = if cast.is_dated { &*read.steps } else { &[] };
            let screens = cast.screens.into_iter();
            let screens = screens.map(|(at, text)| Screen { at, text, step: step_at(steps, at) });
            read.screens.extend(screens.collect::<Vec<_>>());
            is_dated &= cast.is_dated;
            read.sources.push(file.name.clone());
        }
        if read.screens.is_empty() {
            read.screens = observed;
        } else if is_dated {
            read.add_silent_steps();
        }
        Some(read)
    }

    /// Adds the screen at the time of each step without output, which the recording has no screen of.
    fn add_silent_steps(&mut self) {
        let mut silent = Vec::new();
        for (index, step) in self.steps.iter().enumerate() {
            let Some(at) = step.at else { continue };
            if self.screens.iter().any(|screen| screen.step == Some(index)) {
                continue;
            }
            let before = self.screens.iter().rev().find(|screen| screen.at <= at);
            let text = before.map(|screen| screen.text.clone()).unwrap_or_default();
            silent.push(Screen { at, text, step: Some(index) });
        }
        self.screens.extend(silent);
        self.screens.sort_by(|one, other| one.at.total_cmp(&other.at));
    }

    /// Reads a file up to the limit. `None` if it cannot be read. Notes both.
    fn start_of(&mut self, file: &TrialFile) -> Option<Vec<u8>> {
        if file.length > MOST_READ {
            self.problems.push(format!(
                "{}: only the first {} MB are read",
                file.name,
                MOST_READ / 1_000_000
            ));
        }
        match file.read_start(MOST_READ) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                self.problems.push(format!("{} cannot be read: {error}", file.name));
                None
            }
        }
    }
}

/// Whether the file is a recording among the agent's logs. Artifacts may have recordings of other programs.
fn is_recording(file: &TrialFile) -> bool {
    let folder = file.name.rsplit_once('/').map(|(folder, _)| folder);
    file.name.ends_with(".cast") && folder.is_some_and(|folder| folder.ends_with("agent"))
}

/// Whether the file is the trajectory of an agent whose observations are those of a terminal: rolltap's own, or
/// Terminus-2. Other agents write trajectories too.
fn is_trajectory(file: &TrialFile) -> bool {
    if !file.name.ends_with("agent/trajectory.json") {
        return false;
    }
    let head = file.read_start(HEAD).unwrap_or_default();
    let head: String = String::from_utf8_lossy(&head).split_whitespace().collect();
    [r#""name":"terminal""#, r#""name":"terminus"#].iter().any(|name| head.contains(name))
}

/// Returns the index of the step in which the terminal was at this time.
fn step_at(steps: &[Step], at: f64) -> Option<usize> {
    let is_before_typing = steps.first()?.is_before_typing;
    if is_before_typing {
        steps.iter().rposition(|step| step.at.is_some_and(|written| written <= at))
    } else {
        steps.iter().position(|step| step.at.is_some_and(|written| written >= at))
    }
}

#[cfg(test)]
mod tests;
