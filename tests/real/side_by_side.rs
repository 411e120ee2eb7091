//! The terminal agent compared with Harbor's own Terminus-2: the same model with the same scripts, in containers of the
//! same image. Their actions are the same, except for the differences in
//! docs/explanation/terminal-agent-differences.md.

mod model;
mod script;
mod scripts;
mod seen;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::terminal_image;
use model::Model;
use script::Script;

/// The page that lists every difference.
const PAGE: &str = include_str!("../../docs/explanation/terminal-agent-differences.md");

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker and Harbor: run ./scripts/test"]
async fn the_terminal_agent_does_what_terminus_2_does_but_for_what_is_listed() {
    let scripts = scripts::sampled();
    let image = terminal_image::built();
    let (our_model, ours_at) = Model::start(scripts.clone()).await;
    let (their_model, theirs_at) = Model::start(scripts.clone()).await;
    let ours = seen::ours("beside-terminus-2", &scripts, &image, ours_at, json!({}));
    let theirs = seen::theirs(&scripts, &image, theirs_at);
    let (ours, theirs) = tokio::join!(ours, theirs);

    let mut differences = BTreeSet::new();
    let mut told = String::new();
    for Script { name, .. } in &scripts {
        let (our, their) = (&ours[*name], &theirs[*name]);
        let calls = [&our_model, &their_model].map(|model| model.calls(name));
        let aspects = [
            ("commands", our.commands != their.commands),
            ("keystrokes", our.typed != their.typed),
            ("end", our.ended != their.ended),
            ("reward", our.reward != their.reward),
            ("calls", calls[0] != calls[1]),
        ];
        let differing: Vec<_> =
            aspects.into_iter().filter(|(_, differs)| *differs).map(|(aspect, _)| aspect).collect();
        if differing.is_empty() {
            assert_eq!(our.reward, Some(1.0), "{name} does not do what it is for: {our:?}");
        } else {
            let differing = differing.join(", ");
            told +=
                &format!("`{name}` | {differing} (calls {calls:?})\n  ours   {our:?}\n  theirs {their:?}\n");
            differences.insert(format!("`{name}` | {differing}"));
        }
    }
    let names = scripts::names();
    let unknown: Vec<_> = listed().filter(|row| !names.contains(script_of(row))).collect();
    assert!(unknown.is_empty(), "listed, and no script: {unknown:?}");
    let played = |row: &String| scripts.iter().any(|script| script.name == script_of(row));
    let listed: BTreeSet<_> = listed().filter(played).collect();
    let wrong: Vec<_> = listed.symmetric_difference(&differences).collect();
    assert!(wrong.is_empty(), "listed or seen, not both: {wrong:#?}\n{told}");
}

/// Returns the script and the aspects of each row of the page's table.
fn listed() -> impl Iterator<Item = String> {
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| format!("`{}", row.splitn(3, " | ").take(2).collect::<Vec<_>>().join(" | ")))
}

/// Returns the name of the script in a row.
fn script_of(row: &str) -> &str {
    row.trim_start_matches('`').split('`').next().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker: run ./scripts/test"]
async fn programs_of_the_whole_screen_are_seen_and_steered_in_our_own_terminal() {
    full_screen("full-screen", json!({})).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker: run ./scripts/test"]
async fn programs_of_the_whole_screen_are_seen_and_steered_in_tmux() {
    full_screen("full-screen-tmux", json!({"tmux": true})).await;
}

/// Runs an editor, a pager, an interpreter and a program that draws. The agent waits for each program, reads its
/// screen, and controls it.
async fn full_screen(job: &'static str, options: Value) {
    let scripts = scripts::full_screen();
    let image = terminal_image::built();
    let (_, address) = Model::start(scripts.clone()).await;
    let seen = seen::ours(job, &scripts, &image, address, options).await;
    for (name, seen) in &seen {
        assert_eq!((seen.ended.as_str(), seen.reward), ("completed", Some(1.0)), "{name}: {seen:?}");
    }
    assert_eq!(seen.len(), scripts.len());
}
