//! Reads the files in which agents record tokens. Agents write them, so their content is not trusted.

use std::collections::{HashSet, VecDeque};
use std::fs;
use std::io;
use std::path::Path;

use jiff::Timestamp;
use rolltap_rollout::agent_reported::{Segment, calls, rollout_details, trajectory};
use rolltap_rollout::call::{Call, CallRole};
use rolltap_rollout::ids::TrialId;

use crate::failure::chain;
use crate::job_dir::TrialDir;

/// The largest file that is read, in bytes. Each turn repeats the conversation before it, so the file of a long trial
/// is large.
const LARGEST: u64 = 1 << 30;
/// The most files of one trajectory.
const MOST_FILES: usize = 256;

const DETAILS: &str = "rollout_details.json";
const TRAJECTORY: &str = "trajectory.json";

/// The tokens that an agent recorded for a trial.
#[derive(Debug)]
pub(crate) struct FromAgent {
    /// The path of the file, relative to the trial's folder.
    pub(crate) file: String,
    /// The turns, as calls of the trial.
    pub(crate) calls: Vec<Call>,
}

impl FromAgent {
    /// Returns the number of calls that can be trained on.
    pub(crate) fn trainable(&self) -> usize {
        let is_trainable = |call: &&Call| {
            let logprobs =
                call.choices.iter().flat_map(|choice| choice.aligned_logprobs().unwrap_or_default());
            call.is_trainable() && logprobs.flatten().next().is_some()
        };
        self.calls.iter().filter(is_trainable).count()
    }
}

/// Searches the trial's folder for recorded tokens. If there are several records, returns the one with the most
/// trainable calls. Also returns the problems of unreadable files. `at` is the time at which the agent ended.
pub(crate) fn look(dir: &TrialDir, trial_id: &TrialId, at: Timestamp) -> (Option<FromAgent>, Vec<String>) {
    let mut problems = Vec::new();
    let mut best: Option<FromAgent> = None;
    let agent = dir.agent();
    let records = [
        ("result.json".to_owned(), details(&dir.result())),
        (format!("agent/{DETAILS}"), details(&agent.join(DETAILS))),
        (format!("agent/{TRAJECTORY}"), Ok(trajectories(&agent, &mut problems))),
    ];
    for (file, segments) in records {
        let segments = segments.unwrap_or_else(|problem| {
            problems.push(format!("{file}: {problem}"));
            Vec::new()
        });
        let found = FromAgent { file, calls: calls(trial_id, at, segments) };
        // `>` prefers the earlier record: `result.json` over the files of the agent.
        let is_better = best.as_ref().is_none_or(|best| found.trainable() > best.trainable());
        if is_better && !found.calls.is_empty() {
            best = Some(found);
        }
    }
    (best, problems)
}

fn details(path: &Path) -> Result<Vec<Segment>, String> {
    let Some(text) = read(path).map_err(|error| error.to_string())? else { return Ok(Vec::new()) };
    rollout_details(&text).map_err(|error| chain(&error))
}

/// Reads the agent's trajectory, its continuation files and those of sub-agents. The main agent's segments come first.
/// Files outside the trajectory's directory are ignored and reported.
fn trajectories(folder: &Path, problems: &mut Vec<String>) -> Vec<Segment> {
    let mut waiting = VecDeque::from([(TRAJECTORY.to_owned(), CallRole::Main)]);
    let mut seen: HashSet<_> = HashSet::from([TRAJECTORY.to_owned()]);
    let mut segments = Vec::new();
    while let Some((name, role)) = waiting.pop_front() {
        let document = match read_trajectory(&folder.join(&name)) {
            Ok(Some(document)) => document,
            Ok(None) if name == TRAJECTORY => return Vec::new(),
            Ok(None) => {
                problems.push(format!("agent/{name} is missing, to which {TRAJECTORY} refers"));
                continue;
            }
            Err(problem) => {
                problems.push(format!("agent/{name}: {problem}"));
                continue;
            }
        };
        let of_file = |segment: Segment| Segment { role: segment.role.max(role), ..segment };
        segments.extend(document.segments.into_iter().map(of_file));
        let continued = document.continued_in.into_iter().map(|name| (name, role));
        let sub_agents = document.sub_agents_in.into_iter().map(|name| (name, CallRole::SubAgent));
        for (name, role) in continued.chain(sub_agents) {
            // The agent chose the name. A path could lead out of the trial's folder.
            if Path::new(&name).file_name() != Some(name.as_ref()) {
                problems.push(format!("{TRAJECTORY} refers to {name:?}, which is not beside it"));
            // `seen` also ends a cycle of references.
            } else if seen.len() < MOST_FILES && seen.insert(name.clone()) {
                waiting.push_back((name, role));
            }
        }
    }
    // The sort is stable, so segments of one role keep their order.
    segments.sort_by_key(|segment| segment.role);
    segments
}

fn read_trajectory(path: &Path) -> Result<Option<rolltap_rollout::agent_reported::Document>, String> {
    let Some(text) = read(path).map_err(|error| error.to_string())? else { return Ok(None) };
    trajectory(&text).map(Some).map_err(|error| chain(&error))
}

/// Reads a file, or returns `None` if there is none. Does not follow symbolic links, since the agent may have made
/// them.
fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if !found.is_file() {
        return Err(io::Error::other("not a plain file"));
    }
    if found.len() > LARGEST {
        return Err(io::Error::other(format!(
            "{} bytes, more than the {LARGEST} that are read",
            found.len()
        )));
    }
    fs::read(path).map(Some)
}

#[cfg(test)]
mod tests {
    use rolltap_rollout::ids::TrialId;

    use super::*;

    const STEPS: &str = r#"[{"source": "agent", "message": "", "metrics":
        {"prompt_token_ids": [PROMPT], "completion_token_ids": [2], "logprobs": [-0.5]}}]"#;

    fn document(prompt: &str, more: &str) -> String {
        let steps = STEPS.replace("PROMPT", prompt);
        format!(r#"{{"schema_version": "ATIF-v1.8", "steps": {steps}{more}}}"#)
    }

    /// Returns the result of a search in a trial's folder with these files.
    fn found(files: &[(&str, &str)]) -> (Option<(String, Vec<usize>)>, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        let trial = crate::job_dir::JobDir::at(dir.path()).create_trial("one").unwrap();
        for (name, text) in files {
            fs::write(trial.path().join(name), text).unwrap();
        }
        let (found, problems) = look(&trial, &TrialId::new("one").unwrap(), Timestamp::UNIX_EPOCH);
        let prompts = |found: FromAgent| {
            let lengths = found.calls.iter().map(|call| call.prompt_token_ids.len()).collect();
            (found.file, lengths)
        };
        (found.map(prompts), problems)
    }

    #[test]
    fn a_folder_without_tokens_has_none() {
        assert_eq!(found(&[]), (None, vec![]));
        assert_eq!(found(&[("result.json", r#"{"agent_result": {"n_input_tokens": 1}}"#)]), (None, vec![]));
    }

    #[test]
    fn the_record_of_which_most_can_be_trained_on_counts() {
        let details =
            r#"[{"prompt_token_ids": [[1, 1]], "completion_token_ids": [[2]], "logprobs": [[-1.0]]}]"#;
        let without = details.replace("-1.0", "");
        let trajectory = document("1", "");
        let seen = found(&[("agent/rollout_details.json", details), ("agent/trajectory.json", &trajectory)]);
        assert_eq!(seen, (Some(("agent/rollout_details.json".to_owned(), vec![2])), vec![]));
        let seen = found(&[("agent/rollout_details.json", &without), ("agent/trajectory.json", &trajectory)]);
        assert_eq!(seen, (Some(("agent/trajectory.json".to_owned(), vec![1])), vec![]));
        let result = format!(r#"{{"agent_result": {{"rollout_details": {details}}}}}"#);
        assert_eq!(found(&[("result.json", &result)]).0.unwrap().0, "result.json");
    }

    #[test]
    fn files_beside_the_trajectory_are_followed_and_no_others() {
        let refer = |path: &str| {
            format!(
                r#", "continued_trajectory_ref": "next.json", "subagent_trajectories": [{}]"#,
                document("1, 2, 3", "").replace(
                    r#""message": "","#,
                    &format!(r#""observation": {{"results": [{{"subagent_trajectory_ref": [{{"trajectory_path": {path:?}}}]}}]}}, "#)
                )
            )
        };
        let (seen, problems) = found(&[
            ("agent/trajectory.json", &document("1", &refer("sub.json"))),
            ("agent/next.json", &document("1, 2", r#", "continued_trajectory_ref": "trajectory.json""#)),
            ("agent/sub.json", &document("1, 2, 3, 4", "")),
        ]);
        assert_eq!((seen.unwrap().1, problems), (vec![1, 2, 3, 4], vec![]));
        let (seen, problems) = found(&[("agent/trajectory.json", &document("1", &refer("../result.json")))]);
        assert_eq!(seen.unwrap().1, [1, 3]);
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].contains("\"../result.json\", which is not beside it"), "{problems:?}");
        assert!(problems[1].contains("agent/next.json is missing"), "{problems:?}");
    }

    #[test]
    fn what_cannot_be_read_is_told_and_a_link_is_not_followed() {
        let (seen, problems) = found(&[("agent/trajectory.json", "{\"steps\": NaN}")]);
        assert_eq!(seen, None);
        assert!(
            matches!(&*problems, [problem] if problem.starts_with("agent/trajectory.json: not of the form"))
        );
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("secret"), document("1", "")).unwrap();
        let trial = crate::job_dir::JobDir::at(dir.path()).create_trial("one").unwrap();
        std::os::unix::fs::symlink("../../secret", trial.agent().join(TRAJECTORY)).unwrap();
        let (seen, problems) = look(&trial, &TrialId::new("one").unwrap(), Timestamp::UNIX_EPOCH);
        assert!(seen.is_none());
        assert_eq!(problems, ["agent/trajectory.json: not a plain file"]);
    }
}
