//! A window of a branch's tokens as HTML. The common properties of consecutive tokens are written once.

use maud::{Markup, html};
use rolltap_rollout::row::RolloutRow;
use tokenizers::Tokenizer;

use crate::collection::TrialContent;
use crate::figures::prompts::{Audit, PromptSource, verdict};
use crate::figures::recompute::{Difference, Recomputed};
use crate::figures::runs::{Run, runs};

/// The number of tokens in a window. With 2 000 a window stays below 200 kB.
pub(crate) const WINDOW: usize = 2_000;

/// The bounds of the classes of logprobs in nats, from certain to improbable.
const CLASSES: [(f32, &str); 5] = [
    (-0.01, "above −0.01"),
    (-0.1, "−0.1 to −0.01"),
    (-0.7, "−0.7 to −0.1"),
    (-2.3, "−2.3 to −0.7"),
    (f32::NEG_INFINITY, "below −2.3"),
];

/// Makes texts of token ids. Without a tokenizer, the text of a token is its id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenTexts<'t>(pub(crate) Option<&'t Tokenizer>);

impl TokenTexts<'_> {
    /// Whether the texts are those of a tokenizer, and not ids.
    pub(super) fn are_words(self) -> bool {
        self.0.is_some()
    }

    /// Returns the text of one token. A part of a character is U+FFFD.
    pub(crate) fn text(self, id: i32) -> String {
        let decoded = self.0.and_then(|tokenizer| tokenizer.decode(&[u32::try_from(id).ok()?], false).ok());
        decoded.unwrap_or_else(|| format!("{id} "))
    }

    /// Returns the text as a page shows it, and whether the line ends behind it. Newlines are visible.
    pub(super) fn shown(self, id: i32) -> (String, bool) {
        let text = self.text(id);
        match text.strip_suffix('\n') {
            Some(line) => (format!("{line}⏎"), true),
            None => (text, false),
        }
    }

    /// Whether the token is one of the tokenizer's special tokens.
    fn is_special(self, id: i32) -> bool {
        let token = self.0.and_then(|tokenizer| tokenizer.id_to_token(u32::try_from(id).ok()?));
        let added = self.0.map(|tokenizer| tokenizer.get_added_tokens_decoder());
        token.is_some()
            && added.is_some_and(|added| {
                u32::try_from(id).is_ok_and(|id| added.get(&id).is_some_and(|token| token.special))
            })
    }
}

/// Returns the tokens from `from` on, at most [`WINDOW`]. If tokens follow, the last element has the address of the next
/// window. `address` returns the address of the window that begins with a token.
pub(crate) fn window(
    trial: &TrialContent,
    row: &RolloutRow,
    from: usize,
    texts: &TokenTexts<'_>,
    address: impl Fn(usize) -> String,
) -> Markup {
    let end = from.saturating_add(WINDOW).min(row.token_ids.len());
    let recomputed = Recomputed::of(trial, row);
    let sources: Vec<_> = row.calls.iter().map(|span| PromptSource::of(trial, span)).collect();
    html! {
        @for run in runs(row, from..end) { (run_of(trial, row, &run, &sources, recomputed.as_ref(), texts)) }
        @if end < row.token_ids.len() {
            a.more href=(address(end)) data-next=(address(end)) { "Tokens from " (end) " on" }
        }
    }
}

/// Returns a run. `sources` has those of the prompts of all calls, of which the next one may have the run as captured.
fn run_of(
    trial: &TrialContent,
    row: &RolloutRow,
    run: &Run,
    sources: &[Option<PromptSource>],
    recomputed: Option<&Recomputed<'_>>,
    texts: &TokenTexts<'_>,
) -> Markup {
    let call = run.call.and_then(|call| row.calls.get(call));
    let kind = match (run.is_sampled, run.is_trainable, run.has_loss) {
        (false, ..) => "prompt",
        (true, false, _) => "masked",
        (true, true, false) => "elsewhere",
        (true, true, true) => "trained",
    };
    let upstream = call.and_then(|call| trial.call(&call.call_id)?.upstream.as_deref());
    let next = run.call.and_then(|call| sources.get(call + 1)?.as_ref());
    let splice = next.filter(|next| next.splices(run.tokens.end));
    let spliced = splice.and_then(PromptSource::class).map(verdict);
    let audit = splice.and_then(PromptSource::audit).map(Audit::as_str);
    html! {
        span class={ "run " (kind) @if spliced.is_some() { " spliced" } } data-kind=(kind) data-version=(run.version)
            data-version-class=(run.version.rem_euclid(6))
            data-call=(run.call.map_or(0, |call| call + 1)) data-call-class=(run.call.unwrap_or(0) % 6)
            data-call-id=[call.map(|call| &call.call_id)] data-role=[call.map(|call| &call.role)]
            data-upstream=[upstream] data-spliced=[spliced] data-audit=[audit] {
            @for at in run.tokens.clone() {
                @let difference = recomputed.and_then(|recomputed| recomputed.tokens.get(&at));
                (token(row, run.is_sampled, at, difference, texts))
            }
        }
    }
}

/// Returns one token. Only a sampled token has a logprob.
pub(super) fn token(
    row: &RolloutRow,
    is_sampled: bool,
    at: usize,
    difference: Option<&Difference>,
    texts: &TokenTexts<'_>,
) -> Markup {
    let id = row.token_ids.get(at).copied().unwrap_or_default();
    let logprob = row.logprobs.get(at).copied().unwrap_or_default();
    let (shown, breaks) = texts.shown(id);
    let special = texts.is_special(id);
    html! {
        i id={ "t" (at) } class=[class(is_sampled, logprob, special)] data-i=(id)
            data-l=[is_sampled.then_some(logprob)] data-d=[difference.map(|difference| difference.class())]
            data-r=[difference.map(recomputed)] { (shown) }
        @if breaks { br; }
    }
}

/// Returns the recomputed logprob as the script shows it.
fn recomputed(difference: &Difference) -> String {
    difference.recomputed.map_or_else(|| "no number".to_owned(), |logprob| logprob.to_string())
}

/// Returns the class of a logprob, from 0 for certain to 4 for improbable.
pub(crate) fn class_of(logprob: f32) -> usize {
    CLASSES.iter().position(|(bound, _)| logprob > *bound).unwrap_or(CLASSES.len() - 1)
}

/// Returns the classes of a token. `None` for an ordinary token of a prompt.
fn class(is_sampled: bool, logprob: f32, is_special: bool) -> Option<String> {
    let class = class_of(logprob);
    match (is_sampled, is_special) {
        (true, true) => Some(format!("l{class} special")),
        (true, false) => Some(format!("l{class}")),
        (false, true) => Some("special".to_owned()),
        (false, false) => None,
    }
}

/// Returns the explanation of the colours.
pub(crate) fn legend(has_differences: bool) -> Markup {
    html! {
        p.legend aria-hidden="true" {
            span.of-logprob { "Logprob in nats: "
                @for (class, (_, words)) in CLASSES.iter().enumerate() { span class=(format!("swatch l{class}")) { (words) } " " }
            }
            span.of-mask { span.swatch.trained { "trained" } " " span.swatch.elsewhere { "trained on another branch" } " "
                span.swatch.masked { "sampled, not trainable" } " " span.swatch.prompt { "prompt" } }
            span.of-splices { span.swatch.spliced { "dotted" } " captured ids that the next prompt has again as they are; "
                span.swatch.spliced data-audit="equal" { "solid" } " audited with equal ids; "
                span.swatch.spliced data-audit="different" { "double" } " audited with other ids " }
            @if has_differences { (super::recompute::legend()) }
        }
    }
}
