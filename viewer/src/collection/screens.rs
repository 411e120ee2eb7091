//! The screens of a terminal agent, from the files that it leaves in the directory of its trial: a recording of the
//! terminal (`*.cast`), or else the observations in its trajectory.

mod cast;
mod trajectory;

use super::files::TrialFile;

/// The maximum number of screens of a trial, and of the agent's steps among them.
const MOST: usize = 2_000;
const MOST_STEPS: usize = 1_000;
/// The maximum number of bytes that are read of all files of a trial together.
const MOST_READ: u64 = 16_000_000;
/// The maximum number of bytes of all screens of a trial together.
const MOST_TEXT: usize = 16_000_000;
/// The maximum number of bytes of a problem, because problems quote texts of the agent.
const PROBLEM: usize = 300;
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
    /// The parts of the files that could not be read or shown, with the reasons.
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
        let mut reading = Reading { unread_bytes: MOST_READ, ..Reading::default() };
        let observed = reading.trajectories(files.iter().filter(|file| is_trajectory(file)));
        let recordings: Vec<_> = files.iter().filter(|file| is_recording(file)).collect();
        let is_dated = reading.recordings(&recordings);
        if reading.found.screens.is_empty() {
            reading.found.screens = observed;
        } else if is_dated {
            reading.add_silent_steps();
        }
        Some(reading.found)
    }
}

/// The screens of a trial while its files are read.
#[derive(Default)]
struct Reading {
    found: Screens,
    /// The number of bytes that may still be read.
    unread_bytes: u64,
    /// The times of the first step of each trajectory that is not read, because the trial has too many steps.
    unread_steps: Vec<f64>,
    /// The number of bytes of all recorded screens.
    text: usize,
}

impl Reading {
    /// Reads the steps in order of time. Returns the screens that the trajectories have.
    fn trajectories<'f>(&mut self, files: impl Iterator<Item = &'f TrialFile>) -> Vec<Screen> {
        let mut steps = Vec::new();
        for file in files {
            let Some(bytes) = self.start_of(file) else { continue };
            let trajectory = trajectory::read(&bytes, MOST_STEPS.saturating_sub(steps.len()));
            self.add_problems(file, trajectory.problems);
            self.unread_steps.extend(trajectory.unread_from);
            let mut last = 0.0;
            for (step, text) in trajectory.steps {
                last = step.at.unwrap_or(last);
                steps.push((last, step, text));
            }
        }
        // The files of a task with several steps are in the order of their names.
        steps.sort_by(|(one, ..), (other, ..)| one.total_cmp(other));
        let mut observed = Vec::new();
        for (index, (at, step, text)) in steps.into_iter().enumerate() {
            observed.extend(text.map(|text| Screen { at, text, step: Some(index) }));
            self.found.steps.push(step);
        }
        observed
    }

    /// Reads the screens of recordings. Returns whether all of them have a date.
    fn recordings(&mut self, files: &[&TrialFile]) -> bool {
        let mut is_dated = true;
        for (file, rest) in files.iter().zip((1..=files.len()).rev()) {
            // Each of the remaining recordings has the same share of the screens.
            let room = MOST.saturating_sub(self.found.steps.len() + self.found.screens.len());
            let bytes = MOST_TEXT.saturating_sub(self.text);
            if room == 0 || bytes == 0 {
                self.found
                    .problems
                    .push("further recordings are not shown: the screens are too many".to_owned());
                break;
            }
            let Some(content) = self.start_of(file) else { continue };
            let cast = cast::read(&content, room.div_ceil(rest), bytes);
            self.add_problems(file, cast.problems);
            is_dated &= cast.is_dated;
            for (at, text) in cast.screens {
                self.text += text.len();
                // Without a date, the times of the recording and of the steps cannot be compared.
                let step = if cast.is_dated { self.step_at(at) } else { None };
                self.found.screens.push(Screen { at, text, step });
            }
        }
        is_dated
    }

    /// Adds the screen at the time of each step without output, which the recording has no screen of.
    fn add_silent_steps(&mut self) {
        let Self { found, text: bytes, .. } = self;
        let mut silent = Vec::new();
        for (index, step) in found.steps.iter().enumerate() {
            let Some(at) = step.at else { continue };
            if found.screens.iter().any(|screen| screen.step == Some(index)) {
                continue;
            }
            let before = found.screens.iter().filter(|screen| screen.at <= at);
            let before = before.max_by(|one, other| one.at.total_cmp(&other.at));
            let text = before.map(|screen| screen.text.clone()).unwrap_or_default();
            *bytes += text.len();
            if *bytes > MOST_TEXT {
                found
                    .problems
                    .push(format!("from step {} on, steps without output are not shown", step.number));
                break;
            }
            silent.push(Screen { at, text, step: Some(index) });
        }
        found.screens.extend(silent);
        found.screens.sort_by(|one, other| one.at.total_cmp(&other.at));
    }

    /// Returns the index of the step in which the terminal was at this time.
    fn step_at(&self, at: f64) -> Option<usize> {
        let steps = &self.found.steps;
        let is_before_typing = steps.first()?.is_before_typing;
        let index = if is_before_typing {
            steps.iter().rposition(|step| step.at.is_some_and(|written| written <= at))
        } else {
            steps.iter().position(|step| step.at.is_some_and(|written| written >= at))
        }?;
        let written = steps.get(index)?.at?;
        // The screen may be of a step between the two that is not read.
        let between = written.min(at)..=written.max(at);
        (!self.unread_steps.iter().any(|unread| between.contains(unread))).then_some(index)
    }

    /// Reads a file as far as the limit of the trial permits. `None` if it cannot be read. Notes both.
    fn start_of(&mut self, file: &TrialFile) -> Option<Vec<u8>> {
        let megabytes = MOST_READ / 1_000_000;
        if self.unread_bytes == 0 {
            let problem =
                format!("further files are not read: the files of a trial are read up to {megabytes} MB");
            self.found.problems.push(problem);
            return None;
        }
        let bytes = match file.read_start(self.unread_bytes) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.add_problems(file, [format!("cannot be read: {error}")]);
                return None;
            }
        };
        let read = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.unread_bytes = self.unread_bytes.saturating_sub(read);
        if file.length > read {
            let problem =
                format!("only {read} bytes are read: the files of a trial are read up to {megabytes} MB");
            self.add_problems(file, [problem]);
        }
        self.found.sources.push(file.name.clone());
        Some(bytes)
    }

    fn add_problems(&mut self, file: &TrialFile, problems: impl IntoIterator<Item = String>) {
        let of_file = problems.into_iter().map(|problem| format!("{}: {}", file.name, cut(problem, PROBLEM)));
        self.found.problems.extend(of_file);
    }
}

/// Returns a text of at most `most` bytes, with `…` in the place of the rest.
fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
        text.push('…');
    }
    text
}

/// Returns the path of a file in the agent's logs, which the trial and each step of its task have. `None` if the file is
/// elsewhere: artifacts may have recordings and trajectories of other programs.
fn in_agent_logs(name: &str) -> Option<&str> {
    let of_step = name.strip_prefix("steps/").and_then(|name| name.split_once('/'));
    of_step.map_or(name, |(_, name)| name).strip_prefix("agent/")
}

/// Whether the file is a recording among the agent's logs.
fn is_recording(file: &TrialFile) -> bool {
    in_agent_logs(&file.name).is_some_and(|name| name.ends_with(".cast") && !name.contains('/'))
}

/// Whether the file is the trajectory of an agent whose observations are those of a terminal: rolltap's own, or
/// Terminus-2. Other agents write trajectories too.
fn is_trajectory(file: &TrialFile) -> bool {
    if in_agent_logs(&file.name) != Some("trajectory.json") {
        return false;
    }
    let head = file.read_start(HEAD).unwrap_or_default();
    let head: String = String::from_utf8_lossy(&head).split_whitespace().collect();
    [r#""name":"terminal""#, r#""name":"terminus"#].iter().any(|name| head.contains(name))
}

#[cfg(test)]
mod tests;
