//! The calls that belong to the steps of a terminal agent.

use rolltap_rollout::row::{CallSpan, RolloutRow};

use crate::collection::screens::Step;

/// The place of a call among the branches of its trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CallPlace<'r> {
    pub(crate) call_id: &'r str,
    /// The index of the first branch that has the call.
    pub(crate) branch: usize,
    /// The index of the first sampled token in the branch.
    pub(crate) start: usize,
}

/// Returns the call whose answer is that of the step: the last one before the step was written. `None` if there is none,
/// or if it has another number of tokens.
pub(crate) fn call_of<'r>(rows: &'r [RolloutRow], step: &Step) -> Option<CallPlace<'r>> {
    let written = step.at?;
    let spans =
        rows.iter().enumerate().flat_map(|(branch, row)| row.calls.iter().map(move |span| (branch, span)));
    let sampled_at = |span: &CallSpan| span.sampled_at.as_microsecond() as f64 / 1e6;
    let before = spans.filter(|(_, span)| sampled_at(span) <= written);
    // Among equal times the first counts, because later branches repeat the calls of earlier ones.
    let (branch, span) =
        before.reduce(|one, other| if sampled_at(other.1) > sampled_at(one.1) { other } else { one })?;
    let length = u64::try_from(span.end.checked_sub(span.start)?).ok()?;
    if step.sampled.is_some_and(|sampled| sampled != length) {
        return None;
    }
    Some(CallPlace { call_id: &span.call_id, branch, start: usize::try_from(span.start).ok()? })
}

#[cfg(test)]
mod tests {
    use rolltap_testing::rollout_row;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_step_has_the_last_call_before_it_if_the_lengths_are_equal() {
        let mut row = rollout_row("one", "task", None, 6);
        let span = row["calls"][0].clone();
        row["calls"] = json!([span, span]);
        for (index, (start, end, second)) in [(2, 4, "01"), (5, 8, "03")].into_iter().enumerate() {
            row["calls"][index]["call_id"] = format!("call-{index}").into();
            row["calls"][index]["start"] = start.into();
            row["calls"][index]["end"] = end.into();
            row["calls"][index]["sampled_at"] = format!("1970-01-01T00:00:{second}Z").into();
        }
        let rows: Vec<RolloutRow> = vec![serde_json::from_value(row).unwrap()];
        let found = |at, sampled| {
            let step = Step {
                number: 1,
                at,
                is_before_typing: true,
                message: String::new(),
                keystrokes: Vec::new(),
                sampled,
            };
            call_of(&rows, &step).map(|place| (place.call_id, place.start))
        };
        assert_eq!(found(Some(0.5), None), None);
        assert_eq!(found(Some(2.9), Some(2)), Some(("call-0", 2)));
        assert_eq!(found(Some(9.0), None), Some(("call-1", 5)));
        assert_eq!((found(Some(9.0), Some(2)), found(None, Some(3))), (None, None));
    }
}
