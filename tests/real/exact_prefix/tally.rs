//! Counts of calls by kind of conversation, and their printed table.

use std::collections::BTreeMap;

use rolltap_proxy::History;
use rolltap_rollout::continuation::{Class, Continuation};

use super::conversation::{Kind, Plan, Step};

/// Later calls of one kind in one mode.
#[derive(Default)]
struct Count {
    calls: usize,
    kept: usize,
    /// The counts by their record: the class for spliced calls, class and cause for others.
    told: BTreeMap<String, usize>,
}

/// All later calls, by kind, by the part that the agent sends back, and by mode.
#[derive(Default)]
pub(super) struct Tally {
    counts: BTreeMap<(Kind, String, String), Count>,
    conversations: usize,
}

impl Tally {
    pub(super) fn add(&mut self, plan: Plan, history: History, steps: &[Step<'_>]) {
        self.conversations += 1;
        let count = self
            .counts
            .entry((plan.kind, format!("{:?}", plan.manner.echo), history.to_string()))
            .or_default();
        for step in steps {
            count.calls += 1;
            count.kept += usize::from(step.tail.is_some());
            if let Some(told) = record_of(step) {
                *count.told.entry(told).or_default() += 1;
            }
        }
    }

    pub(super) fn print(&self, model: &str) {
        println!(
            "\n{model}: {} conversations; later calls whose prompt keeps the tokens before it",
            self.conversations
        );
        println!("{:<14} {:<12} {:<9} {:>12}  records", "kind", "echo", "history", "kept");
        for ((kind, echo, history), count) in &self.counts {
            let told: Vec<String> =
                count.told.iter().map(|(what, times)| format!("{what} {times}")).collect();
            let kept = format!("{}/{}", count.kept, count.calls);
            println!("{:<14} {echo:<12} {history:<9} {kept:>12}  {}", format!("{kind:?}"), told.join(", "));
        }
    }
}

fn record_of(step: &Step<'_>) -> Option<String> {
    let class = |class: &Class| format!("{class:?}").to_lowercase();
    Some(match step.call.continuation.as_ref()? {
        Continuation::Fresh { cause } => format!("fresh ({cause})"),
        Continuation::Spliced { class: of, .. } => format!("spliced ({})", class(of)),
        Continuation::Rendered { class: None, cause, .. } => format!("rendered ({cause})"),
        Continuation::Rendered { class: Some(of), cause, .. } => format!("rendered ({}, {cause})", class(of)),
    })
}
