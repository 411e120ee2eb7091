//! How the prompts of a branch's calls came to be, as the proxy recorded it.

use rolltap_proxy::store::CallNoteKind;
use rolltap_rollout::branch_cause::BranchCause;
use rolltap_rollout::call::{Call, Choice};
use rolltap_rollout::continuation::{AnswerRef, Class, Continuation};
use rolltap_rollout::row::{CallSpan, RolloutRow};

use crate::collection::TrialContent;

/// The source of a prompt's token ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PromptSource {
    /// The server rendered a new conversation.
    Fresh { cause: BranchCause },
    /// The prompt was sent as ids: the captured ids of an earlier prompt with its answer, and new ids behind them.
    Spliced {
        /// The number of captured ids. `None` if the earlier call cannot be read.
        tokens: Option<usize>,
        /// How the template's rendering of the answer compares with the sampled tokens.
        class: Class,
        /// The result of the audit. `None` if the prompt was not audited.
        audit: Option<Audit>,
    },
    /// The server rendered the whole conversation again.
    Rendered {
        cause: BranchCause,
        /// How the template's rendering of the answer compares with the sampled tokens, if it was compared.
        class: Option<Class>,
    },
}

/// The comparison of two renderings of a spliced prompt's messages: the server's and the proxy's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audit {
    /// The token ids are equal.
    Equal,
    /// The token ids differ.
    Different,
}

impl Audit {
    fn of(trial: &TrialContent, call_id: &str) -> Option<Self> {
        let mut notes = trial.notes.iter().filter(|note| note.call_id.as_str() == call_id);
        notes.find_map(|note| match note.kind {
            CallNoteKind::Audited { is_equal: true } => Some(Self::Equal),
            CallNoteKind::Audited { is_equal: false } => Some(Self::Different),
            CallNoteKind::Replayed => None,
        })
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Different => "different",
        }
    }
}

impl PromptSource {
    /// Returns the source of a call's prompt. `None` if it was not recorded.
    pub(crate) fn of(trial: &TrialContent, span: &CallSpan) -> Option<Self> {
        let mut source =
            Self::recorded(trial.call(&span.call_id)?.continuation.as_ref()?, |id| trial.call(id))?;
        if let Self::Spliced { audit, .. } = &mut source {
            *audit = Audit::of(trial, &span.call_id);
        }
        Some(source)
    }

    fn recorded<'c>(continuation: &Continuation, call: impl Fn(&str) -> Option<&'c Call>) -> Option<Self> {
        Some(match continuation {
            Continuation::Fresh { cause } => Self::Fresh { cause: *cause },
            Continuation::Spliced { parent, class, .. } => {
                let length =
                    |(call, choice): (&Call, &Choice)| call.prompt_token_ids.len() + choice.token_ids.len();
                let tokens = call(parent.call_id.as_str()).and_then(|call| answer(call, parent)).map(length);
                Self::Spliced { tokens, class: *class, audit: None }
            }
            Continuation::Rendered { cause, class, .. } => Self::Rendered { cause: *cause, class: *class },
        })
    }

    /// Whether the prompt has the first `end` tokens of its predecessor as captured.
    pub(crate) fn splices(&self, end: usize) -> bool {
        matches!(self, Self::Spliced { tokens: Some(tokens), .. } if end <= *tokens)
    }

    /// Returns how the template renders the spliced answer. `None` if the prompt is not spliced.
    pub(crate) fn class(&self) -> Option<Class> {
        match self {
            Self::Spliced { class, .. } => Some(*class),
            Self::Fresh { .. } | Self::Rendered { .. } => None,
        }
    }

    /// Returns the result of the audit of a spliced prompt, or `None` if there was no audit.
    pub(crate) fn audit(&self) -> Option<Audit> {
        match self {
            Self::Spliced { audit, .. } => *audit,
            Self::Fresh { .. } | Self::Rendered { .. } => None,
        }
    }
}

/// Describes how the template's rendering of an answer compares with the sampled tokens.
pub(crate) fn verdict(class: Class) -> &'static str {
    match class {
        Class::Equal => "equal",
        Class::Respelled => "respelled",
        Class::Rewritten => "rewritten",
    }
}

/// The prompt that starts a branch, beside the conversation that it was to continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Departure {
    /// The call whose answer the messages continue.
    pub(crate) parent: String,
    pub(crate) cause: Option<BranchCause>,
    /// The prompt and the answer of the parent.
    pub(crate) before: Vec<i32>,
    /// The prompt that starts the branch.
    pub(crate) after: Vec<i32>,
}

/// Returns the departure of a branch. `None` if its first own call continues no answer, or continues it token for token.
pub(crate) fn departure(trial: &TrialContent, row: &RolloutRow) -> Option<Departure> {
    let earlier = trial.rows.iter().filter(|other| other.branch_index < row.branch_index);
    let spans: Vec<&CallSpan> = earlier.flat_map(|other| &other.calls).collect();
    let is_own = |span: &&CallSpan| {
        !spans.iter().any(|other| (&other.call_id, other.choice_index) == (&span.call_id, span.choice_index))
    };
    let call = trial.call(&row.calls.iter().find(is_own)?.call_id)?;
    let continuation = call.continuation.as_ref()?;
    let parent = continuation.parent()?;
    let (before, choice) = trial.call(parent.call_id.as_str()).and_then(|call| answer(call, parent))?;
    let before: Vec<i32> =
        before.prompt_token_ids.iter().chain(&choice.token_ids).map(|id| id.as_i32()).collect();
    let after: Vec<i32> = call.prompt_token_ids.iter().map(|id| id.as_i32()).collect();
    let departs = !after.starts_with(&before);
    departs.then(|| Departure {
        parent: parent.call_id.to_string(),
        cause: continuation.cause(),
        before,
        after,
    })
}

fn answer<'c>(call: &'c Call, of: &AnswerRef) -> Option<(&'c Call, &'c Choice)> {
    call.choices.iter().find(|choice| choice.index == of.choice).map(|choice| (call, choice))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use rolltap_rollout::ids::{CallId, TrialId};
    use rolltap_rollout::token::TokenId;

    use super::*;

    #[test]
    fn a_splice_covers_the_prompt_and_the_answer_before_it() {
        let ids = |ids: &[u32]| ids.iter().map(|id| TokenId::try_from(*id).unwrap()).collect::<Vec<_>>();
        let mut parent =
            Call::begun(CallId::generate(), TrialId::new("one").unwrap(), 0, Timestamp::UNIX_EPOCH);
        parent.prompt_token_ids = ids(&[1, 2, 3]).into_iter().collect();
        parent.choices = vec![Choice { index: 1, token_ids: ids(&[4, 5]), ..Choice::default() }];
        let spliced = |choice| Continuation::Spliced {
            parent: AnswerRef { call_id: parent.call_id.clone(), choice },
            class: Class::Respelled,
            is_edited: false,
        };
        let source = |choice| {
            PromptSource::recorded(&spliced(choice), |id| {
                Some(&parent).filter(|call| call.call_id.as_str() == id)
            })
        };
        let known = source(1).unwrap();
        assert_eq!(known, PromptSource::Spliced { tokens: Some(5), class: Class::Respelled, audit: None });
        assert_eq!((known.splices(5), known.splices(6)), (true, false));
        assert_eq!(
            source(0),
            Some(PromptSource::Spliced { tokens: None, class: Class::Respelled, audit: None })
        );
    }
}
