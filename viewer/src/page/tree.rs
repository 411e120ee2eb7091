//! The forest of branches as a drawing. The table of branches below it has the same facts as text.

use maud::{Markup, html};
use rolltap_rollout::row::RolloutRow;

use super::format::count;
use super::link::Links;
use super::timeline::CALLS;
use crate::collection::{Job, TrialContent};
use crate::figures::tree::{Lane, Place, Tree};

/// The width of the column with the names of the branches, in pixels.
const NAMES: usize = 210;
/// The distances of columns and lanes, and the radius of a call, in pixels.
const COLUMN: usize = 34;
const LANE: usize = 36;
const RADIUS: usize = 7;
/// The longest cause in letters. Causes of rolltap are shorter.
const CAUSE: usize = 26;

/// Returns the drawing. It scrolls within its own part of the page.
pub(super) fn tree(links: &Links, job: &Job, trial: &TrialContent) -> Markup {
    let tree = Tree::of(&trial.rows, CALLS);
    let (width, height) = (NAMES + tree.columns() * COLUMN, tree.lanes.len() * LANE);
    html! {
        p.facts #tree-legend {
            "Each line is a branch, and each circle on it a call: filled for the role main, hollow for other roles. A branch \
             that continues a call of another branch begins at that call."
            @if tree.left_out > 0 { " " (count(tree.left_out as u64)) " further calls are not drawn." }
        }
        div.scrolls tabindex="0" role="group" aria-label="Tree of the branches" aria-describedby="tree-legend" {
            svg.tree width=(width) height=(height) viewBox=(format!("0 0 {width} {height}"))
                aria-label="Branches, each with its cause and the tokens that were prefilled again for it" {
                @for (index, lane) in tree.lanes.iter().enumerate() {
                    @if let Some(row) = trial.rows.get(lane.branch) {
                        path d=(line(index, lane)) {}
                        (name(links, job, trial, index, lane, row))
                        (calls(links, job, trial, index, lane, row))
                    }
                }
            }
        }
    }
}

/// Returns the centre of a call.
fn centre(place: Place) -> (usize, usize) {
    (NAMES + place.column * COLUMN + COLUMN / 2, place.lane * LANE + LANE / 2)
}

/// Returns the path from the call that the branch continues, through all calls of the lane. It turns between columns, so
/// that it crosses no call.
fn line(index: usize, lane: &Lane) -> String {
    let at = |column| centre(Place { lane: index, column });
    let (Some(first), Some(last)) = (lane.nodes.first(), lane.nodes.last()) else { return String::new() };
    let ((first, level), (last, _)) = (at(first.column), at(last.column));
    match lane.from.map(centre) {
        Some((x, y)) => format!("M{x} {y}H{}V{level}H{last}", first.saturating_sub(COLUMN / 2)),
        None => format!("M{first} {level}H{last}"),
    }
}

/// Returns the name of a branch with its cause and cost.
fn name(
    links: &Links,
    job: &Job,
    trial: &TrialContent,
    index: usize,
    lane: &Lane,
    row: &RolloutRow,
) -> Markup {
    let cause: String = row.branch_cause.chars().take(CAUSE).collect();
    html! {
        a href=(links.branch(job.name(), &trial.entry.id, lane.branch)) {
            text x="2" y=(index * LANE + 15) { (row.branch_index) ": " (cause) }
        }
        @if let Some(tokens) = row.branch_reprefilled {
            text x="2" y=(index * LANE + 28) {
                (count(tokens.unsigned_abs())) " tokens prefilled" @if index > 0 { " again" }
            }
        }
    }
}

/// Returns the circles of a lane. Each leads to the first token of its call; the page of the branch has these links for
/// the keyboard.
fn calls(
    links: &Links,
    job: &Job,
    trial: &TrialContent,
    index: usize,
    lane: &Lane,
    row: &RolloutRow,
) -> Markup {
    let spans = lane.nodes.iter().filter_map(|node| Some((node, row.calls.get(node.column)?)));
    html! {
        @for (node, span) in spans {
            @let (x, y) = centre(Place { lane: index, column: node.column });
            @let start = usize::try_from(span.start).unwrap_or_default();
            @let sampled = count(span.end.saturating_sub(span.start).unsigned_abs());
            a tabindex="-1" href=(links.token(job.name(), &trial.entry.id, lane.branch, start))
                aria-label=(format!("call {} of branch {}", node.column + 1, row.branch_index)) {
                circle.other[span.role != "main"] cx=(x) cy=(y) r=(RADIUS) {
                    title { (span.call_id) ": " (span.role) ", " (sampled) " tokens sampled" }
                }
            }
        }
    }
}
