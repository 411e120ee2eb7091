//! The flaws of a call whose answer is complete.

use rolltap_rollout::call::{Call, Choice, Flaw};

/// Whether as many choices as were asked for have their finish reason.
pub(super) fn are_all_finished(choices: &[Choice], expected: u32) -> bool {
    let finished = choices.iter().filter(|choice| choice.finish_reason.is_some()).count();
    finished >= expected as usize
}

/// The parts that the record of a complete call lacks, or that do not fit each other.
pub(super) fn of_complete(call: &Call, expected_choices: u32) -> Vec<Flaw> {
    let choices = &call.choices;
    let any = |fits: fn(&Choice) -> bool| choices.iter().any(fits);
    let lacks_choice =
        choices.len() != expected_choices as usize || !are_all_finished(choices, expected_choices);
    let found = [
        (call.prompt_token_ids.is_empty(), Flaw::MissingPromptIds),
        (any(|choice| choice.token_ids.is_empty()), Flaw::MissingTokenIds),
        (any(|choice| choice.logprobs.is_empty()), Flaw::MissingLogprobs),
        (any(|choice| choice.logprobs.len() != choice.token_ids.len()), Flaw::LengthMismatch),
        (any(|choice| choice.logprobs.contains(&None)), Flaw::InvalidLogprob),
        (lacks_choice, Flaw::MissingChoice),
    ];
    found.into_iter().filter_map(|(is_so, flaw)| is_so.then_some(flaw)).collect()
}
