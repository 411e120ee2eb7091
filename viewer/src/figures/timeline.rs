//! The calls of a trial in order of time, and which of them repeat a request.

use std::collections::HashMap;

use jiff::Timestamp;
use rolltap_proxy::store::{CallNote, CallNoteKind, StoredConversation};
use rolltap_rollout::call::Call;
use rolltap_rollout::ids::CallId;

use crate::collection::CapturedCall;

/// A call on the timeline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bar<'t> {
    pub(crate) call: &'t Call,
    pub(crate) conversation: Option<&'t StoredConversation>,
    /// The latest call with the same request that had ended before. `None` if there is none.
    pub(crate) repeats: Option<&'t Call>,
    /// When the recorded answer of the call was given to a retry. `None` if no retry got the answer.
    pub(crate) replayed_at: Option<Timestamp>,
}

/// Returns the first `most` calls, in order of their start.
pub(crate) fn bars<'t>(calls: &'t [CapturedCall], notes: &[CallNote], most: usize) -> Vec<Bar<'t>> {
    let replays = notes.iter().filter(|note| note.kind == CallNoteKind::Replayed);
    let replays: HashMap<&CallId, Timestamp> = replays.map(|note| (&note.call_id, note.at)).collect();
    let mut sorted: Vec<_> = calls.iter().collect();
    sorted.sort_by_key(|(call, _)| (call.started_at, &call.call_id));
    sorted.truncate(most);
    let mut bars: Vec<Bar<'_>> = Vec::with_capacity(sorted.len());
    for (call, conversation) in sorted {
        let replayed_at = replays.get(&call.call_id).copied();
        let mut bar = Bar { call, conversation: conversation.as_deref(), repeats: None, replayed_at };
        let repeated = bars.iter().rev().find(|earlier| {
            // Agents send equal requests at the same time to get several answers. Such a call repeats nothing.
            earlier.call.ended_at <= call.started_at && earlier.has_request_of(&bar)
        });
        bar.repeats = repeated.map(|earlier| earlier.call);
        bars.push(bar);
    }
    bars
}

impl Bar<'_> {
    /// Whether both calls have the same messages and inputs, or the same prompt where no messages are recorded.
    fn has_request_of(&self, other: &Self) -> bool {
        if self.call.dialect != other.call.dialect {
            return false;
        }
        match (self.conversation, other.conversation) {
            // The last message differs in most cases, so it is compared first.
            (Some(one), Some(other)) => {
                one.messages.len() == other.messages.len()
                    && one.messages.last() == other.messages.last()
                    && one.inputs == other.inputs
                    && one.messages == other.messages
            }
            (None, None) => {
                let prompt = &self.call.prompt_token_ids;
                !prompt.is_empty() && *prompt == other.call.prompt_token_ids
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rolltap_proxy::store::PromptMaker;
    use rolltap_rollout::ids::TrialId;
    use rolltap_rollout::token::TokenId;

    use super::*;

    /// Returns a call between these seconds with this message.
    fn call(name: &str, from: i64, to: i64, message: &str) -> CapturedCall {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut call = Call::begun(CallId::new(name).unwrap(), TrialId::new("trial").unwrap(), 0, at(from));
        call.ended_at = at(to);
        let conversation = StoredConversation {
            maker: PromptMaker::Server,
            messages: vec!["{}".into(), message.into()],
            inputs: "{}".into(),
            answers: Vec::new(),
        };
        (Arc::new(call), Some(Arc::new(conversation)))
    }

    #[test]
    fn a_call_repeats_the_latest_equal_call_that_had_ended() {
        let calls = [
            call("c", 4, 5, "one"),
            call("a", 0, 1, "one"),
            call("b", 2, 3, "one"),
            call("d", 4, 6, "one"),
            call("e", 7, 8, "two"),
        ];
        let bars = bars(&calls, &[], 10);
        let repeats: Vec<_> = bars
            .iter()
            .map(|bar| (bar.call.call_id.as_str(), bar.repeats.map(|call| call.call_id.as_str())))
            .collect();
        assert_eq!(repeats, [("a", None), ("b", Some("a")), ("c", Some("b")), ("d", Some("b")), ("e", None)]);
    }

    #[test]
    fn calls_without_recorded_messages_are_compared_by_their_prompts() {
        let of = |name, from, prompt: &[u32]| {
            let (mut call, _) = call(name, from, from + 1, "");
            Arc::make_mut(&mut call).prompt_token_ids =
                prompt.iter().map(|id| TokenId::try_from(*id).unwrap()).collect();
            (call, None)
        };
        let calls =
            [of("a", 0, &[1, 2]), of("b", 2, &[1, 2]), of("c", 4, &[1, 3]), of("d", 6, &[]), of("e", 8, &[])];
        let repeated = bars(&calls, &[], 10).iter().filter(|bar| bar.repeats.is_some()).count();
        assert_eq!(repeated, 1);
    }
}
