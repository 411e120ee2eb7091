use std::path::Path;

use rolltap_rollout::export::formats::jsonl::JsonlWriter;
use rolltap_rollout::export::pipeline::advantage::Advantage;
use rolltap_rollout::export::pipeline::rules::{Comparison, Failed, OnFork};

use super::*;
use crate::check::sound_rows;

fn settings(dir: &Path) -> ExportSettings {
    let input = dir.join("in.jsonl");
    let mut rows = JsonlWriter::new(std::fs::File::create(&input).unwrap());
    for trial in ["one", "two", "three"] {
        sound_rows(trial).iter().for_each(|row| rows.write(row).unwrap());
    }
    rows.finish().unwrap();
    ExportSettings {
        input,
        reward_version: None,
        output: Output::File { path: dir.join("out.jsonl"), replaces: false },
        format: Format::Jsonl,
        options: FormatOptions::default(),
        messages: false,
        rules: Rules {
            on_fork: OnFork::All,
            failed: Failed::Mask,
            advantage: Advantage::None,
            comparison: Comparison::Never,
            open_groups: false,
            untrained_groups: true,
            superseded: false,
            train_constrained: false,
            reward: None,
            staleness: None,
            min_reward: None,
            best_of_group: None,
        },
    }
}

fn files(dir: &Path) -> usize {
    dir.read_dir().unwrap().count()
}

#[test]
fn an_export_that_is_stopped_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    let failure = export(&settings, &ExportProgress::Quiet, &cancelled).unwrap_err();
    assert!(matches!(failure, ExportFailure::Cancelled), "{failure}");
    assert_eq!(files(dir.path()), 1);
}

/// The export ends when half of a trial is written.
#[test]
fn an_export_that_is_stopped_while_it_writes_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let input = Input::open(&settings.input, None).unwrap();
    let mut survey = Survey::new(settings.rules.clone());
    input.survey(&mut survey, |_| Ok(())).unwrap();
    let mut draft = settings.output.draft().unwrap();
    let plan = survey.plan().unwrap();
    let stop = |written| if written == 2 { Err(ExportFailure::Cancelled) } else { Ok(()) };
    let failure = write(&settings, &input, &plan, &mut draft, stop).unwrap_err();
    assert!(matches!(failure, ExportFailure::Cancelled), "{failure}");
    assert_eq!(files(dir.path()), 2, "the draft is there");
    drop(draft);
    assert_eq!(files(dir.path()), 1);
}

/// Another process rewrites the input between the passes.
#[test]
fn an_input_that_changed_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let input = Input::open(&settings.input, None).unwrap();
    let mut survey = Survey::new(settings.rules.clone());
    input.survey(&mut survey, |_| Ok(())).unwrap();
    std::fs::write(&settings.input, "").unwrap();
    let plan = survey.plan().unwrap();
    let (progress, cancelled) = (ExportProgress::Quiet, CancellationToken::new());
    let failure = write_all(&settings, &input, &plan, 0, &progress, &cancelled).unwrap_err();
    assert!(matches!(failure, ExportFailure::Changed), "{failure}");
    assert_eq!(files(dir.path()), 1);
}

#[test]
fn a_file_that_appears_meanwhile_is_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let draft = settings.output.draft().unwrap();
    std::fs::write(dir.path().join("out.jsonl"), "precious").unwrap();
    assert!(matches!(draft.keep(), Err(OutputError::Exists(_))));
    assert_eq!(std::fs::read_to_string(dir.path().join("out.jsonl")).unwrap(), "precious");
    assert_eq!(files(dir.path()), 2);
}
