//! A trial as text with colours, for a terminal: `rolltap view --text`.

use std::fmt::Write;

use anstyle::{AnsiColor, Color, Style};
use rolltap_rollout::row::RolloutRow;
use tokenizers::Tokenizer;

use crate::collection::TrialContent;
use crate::figures::runs::{Run, runs};
use crate::page::tokens::{TokenTexts, class_of};

/// The styles of the classes of logprobs, from certain to improbable.
const CLASSES: [Style; 5] = [
    Style::new(),
    color(AnsiColor::Cyan),
    color(AnsiColor::Yellow),
    color(AnsiColor::Magenta),
    color(AnsiColor::Red).bold(),
];
const DIM: Style = Style::new().dimmed();
const HEAD: Style = Style::new().bold();

const fn color(color: AnsiColor) -> Style {
    Style::new().fg_color(Some(Color::Ansi(color)))
}

/// Returns all branches of a trial. Tokens of prompts are dim, sampled tokens are coloured by logprob, and tokens that
/// are not trained on their branch are crossed out. Without a tokenizer, tokens are ids. Control characters of the agent
/// are replaced, so that the text cannot control the terminal.
pub fn trial_text(trial: &TrialContent, tokenizer: Option<&Tokenizer>) -> String {
    let entry = &trial.entry;
    let mut out = String::new();
    let reward = entry.reward().map_or_else(|| "none".to_owned(), |reward| reward.to_string());
    line(&mut out, HEAD, &format!("trial {}: task {}, reward {reward}", entry.id, entry.task));
    trial.problems.iter().for_each(|problem| line(&mut out, HEAD, &format!("problem: {problem}")));
    if trial.rows.is_empty() {
        line(&mut out, DIM, "no token of this trial was sampled");
    }
    for row in &trial.rows {
        branch_text(row, TokenTexts(tokenizer), &mut out);
    }
    out
}

fn branch_text(row: &RolloutRow, texts: TokenTexts<'_>, out: &mut String) {
    let facts = format!(
        "\nbranch {}: {}, {} tokens, ends {}",
        row.branch_index,
        row.branch_cause,
        row.token_ids.len(),
        row.status
    );
    line(out, HEAD, &facts);
    let mut call = None;
    for run in runs(row, 0..row.token_ids.len()) {
        if run.is_sampled && run.call != call {
            call = run.call;
            if let Some(span) = call.and_then(|call| row.calls.get(call)) {
                let facts = format!(
                    "\n[answer {}: {}, version {}]",
                    call.map_or(0, |call| call + 1),
                    span.role,
                    run.version
                );
                line(out, HEAD, &facts);
            }
        }
        run_text(row, &run, texts, out);
    }
    out.push('\n');
}

fn run_text(row: &RolloutRow, run: &Run, texts: TokenTexts<'_>, out: &mut String) {
    for at in run.tokens.clone() {
        let id = row.token_ids.get(at).copied().unwrap_or_default();
        let style = match row.logprobs.get(at) {
            Some(&logprob) if run.is_sampled => {
                let style = CLASSES.get(class_of(logprob)).copied().unwrap_or_default();
                if run.has_loss { style } else { style.strikethrough() }
            }
            _ => DIM,
        };
        put(out, style, &texts.text(id));
    }
}

fn line(out: &mut String, style: Style, text: &str) {
    put(out, style, text);
    out.push('\n');
}

/// Appends text in a style, without control characters except newlines and tabs.
fn put(out: &mut String, style: Style, text: &str) {
    let plain = text.chars().map(|letter| match letter {
        '\n' | '\t' => letter,
        letter if letter.is_control() => char::REPLACEMENT_CHARACTER,
        letter => letter,
    });
    let plain: String = plain.collect();
    // Writing to a string does not fail.
    let _ = write!(out, "{style}{plain}{style:#}");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_text_controls_the_terminal(text in any::<String>()) {
            let mut out = String::new();
            put(&mut out, Style::new(), &text);
            prop_assert!(!out.contains(|letter: char| letter.is_control() && letter != '\n' && letter != '\t'));
            prop_assert_eq!(out.chars().count(), text.chars().count());
        }
    }
}
