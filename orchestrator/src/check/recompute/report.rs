//! The result of a recomputation as text.

use std::fmt;

use rolltap_rollout::check::recomputation::{Comparison, Figures, LeftOut, Policy};

use super::plan::Plan;

/// The result of a recomputation. Its text is the table of differences per policy version.
#[derive(Debug)]
pub struct Recomputed {
    plan: Plan,
    comparison: Comparison,
    left_out: LeftOut,
    refused: u64,
    named: u64,
}

impl Recomputed {
    pub(super) fn new(
        plan: Plan,
        comparison: Comparison,
        beyond_context: LeftOut,
        refused: u64,
        named: u64,
    ) -> Self {
        let mut left_out = plan.left_out.clone();
        for (reason, tokens) in beyond_context {
            *left_out.entry(reason).or_default() += tokens;
        }
        Self { plan, comparison, left_out, refused, named }
    }

    /// Returns the sums per policy version.
    pub fn policies(&self) -> impl Iterator<Item = (&Policy, &Figures)> {
        self.comparison.policies.iter()
    }

    /// Returns the sums over all compared tokens.
    pub fn all(&self) -> &Figures {
        &self.comparison.all
    }

    /// Returns the trained tokens that were not compared, by reason.
    pub fn left_out(&self) -> &LeftOut {
        &self.left_out
    }

    /// Returns the number of rows with a difference over a bound.
    pub fn beyond(&self) -> u64 {
        self.comparison.beyond
    }

    /// Returns the number of rows whose token ids the server refused.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns whether each row was recomputed within the bounds, and at least one token was compared.
    pub fn is_within(&self) -> bool {
        self.comparison.beyond == 0 && self.refused == 0 && self.comparison.all.tokens > 0
    }
}

impl fmt::Display for Recomputed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failing = self.comparison.beyond + self.refused;
        if failing > self.named {
            writeln!(f, "{} more rows are beyond a bound or refused", failing - self.named)?;
        }
        let weights = match &self.plan.server.weights {
            Some(name) => format!("weights {name:?}"),
            None => "weights without a name".to_owned(),
        };
        let url = &self.plan.server.url;
        writeln!(f, "recomputed by {url}, {weights}: {} of {} rows", self.plan.rows, self.plan.eligible)?;
        let policies = self.comparison.policies.iter().map(|(policy, figures)| (policy.to_string(), figures));
        let lines: Vec<_> = policies.chain([("all".to_owned(), &self.comparison.all)]).collect();
        let width = lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default().max(14);
        write!(
            f,
            "{:<width$}  {:>8}  {:>10}  {:>10}  {:>10}  {:>10}  {:>10}",
            "policy version", "rows", "tokens", "mean |d|", "max |d|", "KL (k1)", "KL (k3)"
        )?;
        for (name, figures) in lines {
            write!(
                f,
                "\n{name:<width$}  {:>8}  {:>10}  {:>10.2e}  {:>10.2e}  {:>10.2e}  {:>10.2e}",
                figures.rows,
                figures.tokens,
                figures.mean(),
                figures.largest,
                figures.kl_k1(),
                figures.kl_k3()
            )?;
        }
        self.left_out.iter().try_for_each(|(reason, tokens)| {
            write!(f, "\nnot compared: {tokens} trained tokens {}", reason.about())
        })
    }
}

/// Lists tokens that are not compared, as the end of a sentence.
pub(super) fn listed(left_out: &LeftOut) -> String {
    if left_out.is_empty() {
        return ": there is no trained token".to_owned();
    }
    let each = left_out.iter().map(|(reason, tokens)| format!("{tokens} trained tokens {}", reason.about()));
    format!(": {}", each.collect::<Vec<_>>().join(", "))
}
