//! How the prompts of a branch came to be: spliced or rendered, and where a prompt departs from the conversation before it.

use maud::{Markup, html};
use rolltap_rollout::row::RolloutRow;

use super::format::count;
use super::tokens::TokenTexts;
use crate::collection::TrialContent;
use crate::figures::diff::{Step, TokenDiff, diff};
use crate::figures::prompts::{Audit, Departure, PromptSource, departure, verdict};

/// Describes the source of a prompt. Nothing if it was not recorded.
pub(crate) fn source(source: Option<&PromptSource>) -> Markup {
    html! { @match source {
        None => {},
        Some(PromptSource::Fresh { cause }) => { "rendered: new conversation (" (cause) ")" },
        Some(PromptSource::Spliced { tokens, class, audit }) => {
            "spliced"
            @if let Some(tokens) = tokens { " " (count(*tokens as u64)) " tokens" }
            "; rendered by the template, the answer is " (verdict(*class))
            @match audit {
                None => {},
                Some(Audit::Equal) => { "; audited: the server renders the same ids" },
                Some(Audit::Different) => { "; " span.failure { "audited: the server renders other ids" } },
            }
        },
        Some(PromptSource::Rendered { cause, class }) => {
            "rendered again: " (cause)
            @if let Some(class) = class { "; rendered by the template, the answer is " (verdict(*class)) }
        },
    } }
}

/// Returns the difference between the prompt that starts a branch and the conversation that it continues. Nothing if it
/// continues the conversation token for token, or if there are no captures.
pub(crate) fn rewritten(trial: &TrialContent, row: &RolloutRow, texts: &TokenTexts<'_>) -> Markup {
    let Some(Departure { parent, cause, before, after }) = departure(trial, row) else { return html! {} };
    let TokenDiff { equal, steps, rest } = diff(&before, &after);
    html! {
        h2 #history { "Changed history" }
        p.facts {
            "The first prompt of this branch continues call " code { (parent) } " and has other tokens"
            @if let Some(cause) = cause { " (" (cause) ")" }
            ": " (count(equal as u64)) " equal tokens, then the tokens of that call are struck through and those of this \
            prompt underlined."
        }
        div.tokens.diff role="group" aria-labelledby="history" {
            @for run in steps.chunk_by(|one, other| std::mem::discriminant(one) == std::mem::discriminant(other)) {
                (run_of(run, texts))
            }
        }
        @if rest != (0, 0) {
            p { (count(rest.0 as u64)) " further tokens of that call and " (count(rest.1 as u64)) " of this prompt are not shown." }
        }
        details { summary { "Token ids" } pre tabindex="0" { (ids(&steps)) } }
    }
}

/// Returns consecutive steps of one kind.
fn run_of(run: &[Step], texts: &TokenTexts<'_>) -> Markup {
    let tokens = html! { @for step in run { (token(*step, texts)) } };
    html! { @match run.first() {
        Some(Step::Removed(_)) => del { (tokens) },
        Some(Step::Inserted(_)) => ins { (tokens) },
        Some(Step::Same(_)) | None => (tokens),
    } }
}

fn token(step: Step, texts: &TokenTexts<'_>) -> Markup {
    let (Step::Same(id) | Step::Removed(id) | Step::Inserted(id)) = step;
    let (shown, breaks) = texts.shown(id);
    html! { i data-i=(id) title={ "id " (id) } { (shown) } @if breaks { br; } }
}

/// Returns the removed and inserted ids as lines of a text.
fn ids(steps: &[Step]) -> String {
    let changed = steps.chunk_by(|one, other| std::mem::discriminant(one) == std::mem::discriminant(other));
    let line = |run: &[Step]| {
        let sign = match run.first()? {
            Step::Same(_) => return None,
            Step::Removed(_) => '−',
            Step::Inserted(_) => '+',
        };
        let ids = run.iter().map(|(Step::Same(id) | Step::Removed(id) | Step::Inserted(id))| id.to_string());
        Some(format!("{sign} {}\n", ids.collect::<Vec<_>>().join(" ")))
    };
    changed.filter_map(line).collect()
}

#[cfg(test)]
mod tests;
