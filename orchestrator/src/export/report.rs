//! The report of an export.

use std::fmt;

use rolltap_rollout::export::choices::Named;
use rolltap_rollout::export::exporter::Omission;
use rolltap_rollout::export::pipeline::advantage::Advantage;
use rolltap_rollout::export::pipeline::plan::{Plan, PlanCounts};
use rolltap_rollout::export::pipeline::rules::{Comparison, Failed, Rules};
use rolltap_rollout::export::pipeline::select::Tally;

use super::{ExportSettings, Output};
use crate::common::words::counted;

/// The report of an export, with one fact per line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportReport {
    /// The numbers of written trials, branches and tokens.
    pub tally: Tally,
    /// Values that the format cannot hold.
    pub omissions: Vec<Omission>,
    lines: Vec<String>,
}

impl fmt::Display for ExportReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines.join("\n"))
    }
}

impl ExportReport {
    pub(super) fn new(
        settings: &ExportSettings,
        plan: &Plan,
        unfinished: u64,
        tally: Tally,
        omissions: Vec<Omission>,
    ) -> Self {
        let mut lines = vec![headline(settings, plan, &tally)];
        lines.extend(left_out(plan, unfinished).into_iter().map(|line| format!("left out: {line}")));
        if tally.branches_left_out > 0 {
            let branches = counted(tally.branches_left_out, "branch");
            lines.push(format!("left out: {branches} of forked trials (--on-fork longest)"));
        }
        lines.extend(unchosen_rewards(plan).map(|line| format!("no reward: {line}")));
        lines.extend(failed(&settings.rules, plan.counts()));
        if tally.constrained > 0 {
            let tokens = counted(tally.constrained, "token");
            lines.push(format!("masked: {tokens} of constrained calls (--train-constrained trains them)"));
        }
        lines.extend(baselines(&settings.rules, plan.counts()));
        lines.extend(tally.sampled.told());
        if settings.messages && tally.calls_without_messages > 0 {
            let calls = counted(tally.calls_without_messages, "call");
            lines.push(format!("without messages: {calls} whose messages were not recorded"));
        }
        let format = settings.format.name();
        lines.extend(
            omissions.iter().map(|omission| format!("not in {format}: {} {}", omission.count, omission.what)),
        );
        Self { tally, omissions, lines }
    }
}

fn headline(settings: &ExportSettings, plan: &Plan, tally: &Tally) -> String {
    let to = match &settings.output {
        Output::Stdout => "standard output".to_owned(),
        Output::File { path, .. } => path.display().to_string(),
    };
    let groups = match plan.counts().groups {
        0 => String::new(),
        groups => format!(" in {}", counted(groups as u64, "group")),
    };
    format!(
        "{}{groups}, {}, {} trained of {} to {to} ({})",
        counted(tally.trials, "trial"),
        counted(tally.branches, "branch"),
        tally.trained,
        counted(tally.tokens, "token"),
        settings.format.name(),
    )
}

/// How the exported failed trials count.
fn failed(rules: &Rules, counts: PlanCounts) -> Option<String> {
    if counts.failed == 0 {
        return None;
    }
    let trials = counted(counts.failed, "trial");
    Some(match (rules.failed, rules.comparison) {
        (Failed::Zero, _) => format!("counted as 0: {trials} failed (--failed zero)"),
        (_, Comparison::Never) => format!("masked: {trials} failed (see --failed for the alternatives)"),
        (_, Comparison::Named | Comparison::Counted(_)) => format!(
            "masked: {trials} failed, with a stand-in for the reward (see --failed for the alternatives)"
        ),
    })
}

/// How trials without tokens and stand-ins enter the baselines of the groups.
fn baselines(rules: &Rules, counts: PlanCounts) -> Vec<String> {
    let mut lines = Vec::new();
    if counts.rewarded_without_tokens > 0 {
        let trials = counted(counts.rewarded_without_tokens, "trial");
        let effect = match (rules.comparison, rules.advantage) {
            (Comparison::Never, Advantage::None) => "not exported",
            (Comparison::Never, _) => "counted in the advantages of their group",
            (Comparison::Named | Comparison::Counted(_), _) => "exported as rows that train nothing",
        };
        lines.push(format!("without a sampled token, with a reward: {trials}, {effect}"));
    }
    if counts.fillers > 0 {
        let rows = counted(counts.fillers, "row");
        lines.push(format!("added: {rows} that train nothing, to fill short groups (--short-groups pad)"));
    }
    if counts.smaller_deviation > 0 {
        let groups = counted(counts.smaller_deviation, "group");
        let remedy = match rules.comparison {
            Comparison::Counted(_) => "--short-groups drop",
            Comparison::Named | Comparison::Never => "--failed drop",
        };
        lines.push(format!(
            "smaller deviation: {groups} with a single stand-in, so a trainer that divides by the standard deviation \
             computes larger advantages there ({remedy} avoids this)"
        ));
    }
    if counts.alone > 0 {
        let trials = counted(counts.alone, "trial");
        lines.push(format!("advantage 0: {trials}, of whose group no other trial counts"));
    }
    lines
}

fn left_out(plan: &Plan, unfinished: u64) -> Vec<String> {
    let under_way = (unfinished > 0)
        .then(|| format!("{} not complete: no seal or no reward yet", counted(unfinished, "trial")));
    let others = plan.left_out().map(|(why, count)| format!("{} {why}", counted(count, "trial")));
    under_way.into_iter().chain(others).collect()
}

/// Explains that trials have rewards by name and none to train on.
fn unchosen_rewards(plan: &Plan) -> Option<String> {
    let count = plan.counts().unchosen_rewards;
    (count > 0).then(|| {
        let trials = counted(count, "trial");
        let names = plan.reward_names().join(", ");
        format!(
            "{trials} with rewards by name and none to train on; choose one of {names} with --reward NAME"
        )
    })
}

/// Explains why all trials were left out.
pub(super) fn nothing(plan: &Plan, unfinished: u64) -> String {
    let why = left_out(plan, unfinished);
    if why.is_empty() {
        return "there is no trial in the input".to_owned();
    }
    why.into_iter().chain(unchosen_rewards(plan)).collect::<Vec<_>>().join("; ")
}
