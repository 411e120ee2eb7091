//! Judges the records of calls: whether a trainer can use their tokens.

use rolltap_proxy::RefutedKind;
use rolltap_rollout::branch_cause::BranchCause;
use rolltap_rollout::call::{Call, CallStatus, Flaw};
use rolltap_rollout::continuation::Continuation;
use rolltap_rollout::token_list::TokenList;

use super::ledger::Ledger;

/// The parts of a record, each with the flaws that concern it.
const PARTS: [(&str, &[Flaw]); 4] = [
    ("prompt ids", &[Flaw::MissingPromptIds]),
    ("sampled ids", &[Flaw::MissingTokenIds, Flaw::MissingChoice]),
    ("logprobs", &[Flaw::MissingLogprobs, Flaw::InvalidLogprob, Flaw::LengthMismatch]),
    ("format", &[Flaw::Unreadable]),
];

/// Adds a line for each part of a call's record.
pub(super) fn judge_parts(call: &Call, ledger: &mut Ledger) {
    let sampled = call.choices.iter().map(|choice| choice.token_ids.len()).sum::<usize>();
    for (part, concerned) in PARTS {
        let flaws: Vec<Flaw> = call.flaws.iter().copied().filter(|flaw| concerned.contains(flaw)).collect();
        if !flaws.is_empty() {
            ledger.broken(part, names(&flaws), remedies(&flaws));
            continue;
        }
        match part {
            "prompt ids" => ledger.ok(part, format!("{} of the prompt", call.prompt_token_ids.len())),
            "format" => {}
            _ => ledger.ok(part, format!("{sampled} of the answer")),
        }
    }
    if call.sampling.temperature.is_none() {
        ledger.degraded(
            "defaults",
            "the sampling parameters of a request without any are unknown: the model's files are not on this machine",
            "give them to rolltap with --generation-defaults, as in the model's generation_config.json",
        );
    } else {
        let text = |value: Option<f64>| value.map_or_else(|| "unknown".to_owned(), |value| value.to_string());
        let (temperature, top_p) = (text(call.sampling.temperature), text(call.sampling.top_p));
        ledger.ok("defaults", format!("temperature {temperature}, top_p {top_p}"));
    }
}

/// Returns why the records cannot be used, and the remedy. `None` for sound records.
pub(super) fn problem(calls: &[Call]) -> Option<(String, String)> {
    let Some(bad) = calls.iter().find(|call| call.status != CallStatus::Complete || !call.flaws.is_empty())
    else {
        return calls.is_empty().then(|| ("the proxy recorded no call".to_owned(), String::new()));
    };
    match &bad.error {
        Some(error) => Some((error.clone(), "see the log of the server".to_owned())),
        None => Some((names(&bad.flaws), remedies(&bad.flaws))),
    }
}

fn names(flaws: &[Flaw]) -> String {
    flaws.iter().map(|flaw| flaw.as_str().replace('_', " ")).collect::<Vec<_>>().join(", ")
}

fn remedies(flaws: &[Flaw]) -> String {
    let known: Vec<&str> = flaws.iter().filter_map(|flaw| flaw.remedy()).collect();
    if known.is_empty() { "compare with a call to vLLM itself".to_owned() } else { known.join("; ") }
}

/// Judges the second turn of a conversation, whose prompt should continue the tokens of the first.
pub(super) fn judge_turns(calls: &[Call], ledger: &mut Ledger) {
    let [first, second] = calls else {
        return ledger.broken(
            "second turn",
            format!("the proxy recorded {} of 2 calls", calls.len()),
            "see above",
        );
    };
    match &second.continuation {
        Some(Continuation::Spliced { .. }) => {
            ledger.ok("second turn", "the server took the exact token ids of the first turn");
        }
        Some(Continuation::Rendered { cause, .. } | Continuation::Fresh { cause }) => {
            ledger.degraded(
                "second turn",
                format!("the server rendered the prompt again: {cause}"),
                advice(*cause),
            );
        }
        None => {
            ledger.degraded("second turn", "the server rendered the prompt again", "give --history faithful")
        }
    }
    let sampled = first.choices.first().map(|choice| choice.token_ids.as_slice()).unwrap_or_default();
    let expected: TokenList = first.prompt_token_ids.iter().chain(sampled).copied().collect();
    if second.prompt_token_ids.starts_with(&expected) {
        ledger.ok(
            "one sequence",
            format!("the second prompt begins with all {} ids of the first turn", expected.len()),
        );
    } else {
        let same = second.prompt_token_ids.common_prefix(&expected);
        ledger.degraded(
            "one sequence",
            format!("the second prompt differs from the first turn after {same} of {} ids", expected.len()),
            "each later turn starts a branch of its own; docs/how-to/explain-branches.md lists the causes",
        );
    }
}

/// Adds a line for each way in which the server rendered prompts otherwise than the proxy. Such prompts are not continued
/// token for token, even if the second turn of the examination was.
pub(super) fn judge_renderings(refuted: &[RefutedKind], ledger: &mut Ledger) {
    let by_reason = refuted.chunk_by(|kind, next| kind.reason == next.reason);
    for kinds in by_reason {
        let [RefutedKind { reason, remedy, .. }, ..] = kinds else { continue };
        let requests = kinds.iter().map(|kind| format!("({})", kind.requests)).collect::<Vec<_>>().join(", ");
        ledger.degraded(
            "rendering",
            format!("the server's prompt is not rolltap's for requests of {requests}: {reason}"),
            *remedy,
        );
    }
}

fn advice(cause: BranchCause) -> &'static str {
    match cause {
        BranchCause::UpstreamUnable => {
            "use vLLM 0.31 or later, without a router that removes kv_transfer_params from requests"
        }
        BranchCause::Unproven => {
            "give the directory of the model's tokenizer and chat template to --tokenizer, if it is not the one that vLLM \
             loaded; a line about the rendering says more"
        }
        BranchCause::TemplateRewroteHistory => {
            "the chat template removes or rewrites earlier answers; --history sampled keeps the sampled tokens"
        }
        _ => "see docs/how-to/explain-branches.md",
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use rolltap_rollout::call::Choice;
    use rolltap_rollout::ids::{CallId, TrialId};
    use rolltap_rollout::token::TokenId;

    use super::*;
    use crate::doctor::report::{Finding, Verdict};

    fn call(prompt: Vec<u32>, sampled: Vec<u32>) -> Call {
        let ids =
            |ids: Vec<u32>| ids.into_iter().map(|id| TokenId::try_from(id).unwrap()).collect::<Vec<_>>();
        let (id, trial) = (CallId::generate(), TrialId::new("doctor").unwrap());
        let choice = Choice { token_ids: ids(sampled), ..Choice::default() };
        Call {
            status: CallStatus::Complete,
            prompt_token_ids: ids(prompt).into(),
            choices: vec![choice],
            ..Call::begun(id, trial, 0, Timestamp::UNIX_EPOCH)
        }
    }

    #[test]
    fn differences_with_one_reason_are_a_line_with_its_remedy() {
        let kind = |requests: &str, reason: &str| RefutedKind {
            requests: requests.to_owned(),
            reason: reason.to_owned(),
            remedy: "do this",
        };
        let mut ledger = Ledger::default();
        let refuted = [kind("user", "other ids"), kind("tools, user", "other ids"), kind("tool", "no text")];
        judge_renderings(&refuted, &mut ledger);
        let findings = ledger.into_findings();
        assert_eq!(verdicts(&findings), [("rendering", Verdict::Degraded); 2]);
        assert!(findings[0].found.contains("(user), (tools, user): other ids"), "{findings:?}");
        assert_eq!(findings[1].remedy.as_deref(), Some("do this"));
    }

    fn verdicts(findings: &[Finding]) -> Vec<(&str, Verdict)> {
        findings.iter().map(|finding| (finding.check, finding.verdict)).collect()
    }

    #[test]
    fn each_missing_part_is_a_line_with_its_remedy() {
        let mut ledger = Ledger::default();
        let flaws = vec![Flaw::MissingPromptIds, Flaw::MissingLogprobs];
        judge_parts(&Call { flaws, ..call(vec![], vec![1]) }, &mut ledger);
        let findings = ledger.into_findings();
        let expected = [
            ("prompt ids", Verdict::Broken),
            ("sampled ids", Verdict::Ok),
            ("logprobs", Verdict::Broken),
            ("defaults", Verdict::Degraded),
        ];
        assert_eq!(verdicts(&findings), expected);
        assert!(findings[0].remedy.as_deref().unwrap().contains("router"), "{findings:?}");
    }

    #[test]
    fn a_second_turn_that_differs_is_degraded() {
        for (second, verdict) in [(vec![1, 2, 3, 9], Verdict::Ok), (vec![1, 2, 4, 9], Verdict::Degraded)] {
            let mut ledger = Ledger::default();
            judge_turns(&[call(vec![1, 2], vec![3]), call(second, vec![5])], &mut ledger);
            let findings = ledger.into_findings();
            assert_eq!(verdicts(&findings)[1], ("one sequence", verdict), "{findings:?}");
        }
    }
}
