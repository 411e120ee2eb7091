//! `rolltap clean`

use std::time::Duration;

use clap::Args;
use rolltap_orchestrator::common::words::counted;
use rolltap_orchestrator::environment::{Cleaner, EngineObject, FoundKind, OwnerState};
use serde::Serialize;

use crate::{Outcome, terminal};

/// Remove the Docker objects of runs that died
///
/// The command removes containers, networks and volumes of runs on this machine whose process has ended. The end of a
/// job removes them too, and so does the start of the next job. Objects of running jobs stay. Images of tasks and the
/// two shared networks serve several jobs, and stay without --images and --networks.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Print the objects to remove, and remove nothing.
    #[arg(long)]
    dry_run: bool,
    /// Also remove the images of tasks that no job has used for --unused-for days.
    #[arg(long)]
    images: bool,
    /// Keep images that a job has used within this many days; 0 removes all images of tasks.
    #[arg(long, value_name = "DAYS", default_value_t = 7, requires = "images")]
    unused_for: u32,
    /// Also remove the networks that all jobs share, if no job runs. The next job creates them again.
    #[arg(long)]
    networks: bool,
    /// Also remove objects of processes on another machine or in another container. These processes may be running.
    #[arg(long)]
    unseen: bool,
    /// Print one JSON object with all objects, instead of text.
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Examples:
  rolltap clean --dry-run
  rolltap clean --images --unused-for 30

Exit codes: 0 done; 1 something could not be removed; 2 there is no Docker engine.";

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The result for one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Fate {
    Removed,
    WouldBeRemoved,
    Kept,
    Failed,
}

#[derive(Serialize)]
struct Line {
    fate: Fate,
    #[serde(flatten)]
    found: EngineObject,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<Outcome> {
    let cleaner = Cleaner::connect().await?;
    let mut lines = Vec::new();
    let all = cleaner.find().await?;
    let a_job_runs = all.iter().any(|found| found.owner == Some(OwnerState::Alive));
    for found in all {
        let (fate, problem) = match (arguments.is_to_go(&found, a_job_runs), arguments.dry_run) {
            (false, _) => (Fate::Kept, None),
            (true, true) => (Fate::WouldBeRemoved, None),
            (true, false) => match cleaner.remove(&found).await {
                Ok(()) => (Fate::Removed, None),
                Err(error) => (Fate::Failed, Some(format!("{:#}", anyhow::Error::from(error)))),
            },
        };
        lines.push(Line { fate, found, problem });
    }
    if arguments.json {
        terminal::say(serde_json::json!({ "found": lines }));
    } else {
        tell(&lines, &arguments);
    }
    let failed = lines.iter().any(|line| line.fate == Fate::Failed);
    Ok(if failed { Outcome::Failed } else { Outcome::Done })
}

impl Arguments {
    fn is_to_go(&self, found: &EngineObject, a_job_runs: bool) -> bool {
        match found.owner {
            Some(OwnerState::Gone) => true,
            // A process in another container is invisible here, and may run.
            Some(OwnerState::Unseen) => self.unseen,
            Some(OwnerState::Alive) => false,
            // Shared networks and images have no owner. A running job needs its networks until its end.
            None if found.kind == FoundKind::Network => self.networks && !a_job_runs,
            None => self.images && self.is_unused(found),
        }
    }

    /// Whether no job has used an image for the given days. An image without a known last use is old.
    fn is_unused(&self, found: &EngineObject) -> bool {
        found.unused_for().is_none_or(|unused| unused >= DAY * self.unused_for)
    }
}

fn tell(lines: &[Line], arguments: &Arguments) {
    for Line { fate, found, problem } in lines {
        let what = format!("{:<9} {}  {}", found.kind.to_string(), found.name, belongs_to(found));
        match fate {
            Fate::Removed => terminal::say(format_args!("removed       {what}")),
            Fate::WouldBeRemoved => terminal::say(format_args!("would remove  {what}")),
            Fate::Failed => {
                terminal::say(format_args!(
                    "not removed   {what}: {}",
                    problem.as_deref().unwrap_or_default()
                ));
            }
            Fate::Kept => {}
        }
    }
    let count = |fate: Fate| lines.iter().filter(|line| line.fate == fate).count();
    let kept = |owner| {
        let of_owner = |line: &&Line| line.fate == Fate::Kept && line.found.owner == owner;
        lines.iter().filter(of_owner).collect::<Vec<_>>()
    };
    let removed = count(Fate::Removed) + count(Fate::WouldBeRemoved);
    if removed + count(Fate::Failed) == 0 {
        terminal::say("nothing to remove");
    }
    let running = kept(Some(OwnerState::Alive)).len();
    if running > 0 {
        terminal::note(format_args!("{running} left alone: their jobs are running"));
    }
    let unseen = kept(Some(OwnerState::Unseen)).len();
    if unseen > 0 {
        terminal::note(format_args!(
            "{unseen} left alone: they belong to processes of another machine or container, which cannot be seen from here \
             (--unseen removes them)"
        ));
    }
    let (networks, images): (Vec<_>, Vec<_>) =
        kept(None).into_iter().partition(|line| line.found.kind == FoundKind::Network);
    if !networks.is_empty() {
        let hint = if arguments.networks { "" } else { " (--networks removes them)" };
        terminal::note(format_args!(
            "{}, which jobs share{hint}",
            counted(networks.len() as u64, "kept network")
        ));
    }
    if !images.is_empty() {
        let hint = if arguments.images { "" } else { " (--images removes those that are not used any more)" };
        terminal::note(format_args!("{} for later jobs{hint}", counted(images.len() as u64, "kept image")));
    }
}

fn belongs_to(found: &EngineObject) -> String {
    let job = found.job.as_deref().unwrap_or_default();
    match (found.kind, found.owner) {
        (FoundKind::Image, _) => {
            let task = found.task.as_deref().unwrap_or("unknown");
            let used = found.last_used.map(|used| format!(", last used {}", used.strftime("%F")));
            let size = found.bytes.map(|bytes| format!(", {} MB with its base", bytes / 1_000_000));
            format!("(of task {task}{}{})", used.unwrap_or_default(), size.unwrap_or_default())
        }
        (_, Some(OwnerState::Gone)) => format!("(of job {job:?}, whose process is gone)"),
        (_, None) => "(which all jobs share)".to_owned(),
        _ => format!("(of job {job:?})"),
    }
}
