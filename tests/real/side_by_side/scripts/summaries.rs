//! A full context, and the summary of the conversation.

use crate::side_by_side::script::{Answer, Script, Setting, done, echoes, left, replies, types};

/// A server's error if the context of its model is full.
const FULL: Answer = Answer::Refuses(
    400,
    "This model's maximum context length is 4096 tokens. However, your request has 5000 input tokens.",
);

pub(super) fn scripts() -> Vec<Script> {
    let helpers = || ["One is there.", "1. What is left?", "Two is left."].map(replies).to_vec();
    let (one, two) = (vec![replies(echoes("one"))], vec![replies(echoes("two"))]);
    let (full, ends) = (|times| vec![FULL; times], vec![done(), done()]);
    let cut_off = vec![Answer::IsCutOff(echoes("no"))];
    let script = |name, parts: &[Vec<Answer>]| Script::json(name, left("one two"), parts.concat());
    // The second question is so long that the agent summarises the conversation before the third.
    let long = vec![types(&[("echo one >> out; seq 10000 13000\n", 1.0)])];
    let ahead = [long, two.clone(), helpers(), vec![replies(echoes("three"))], ends.clone()];
    vec![
        script("summary", &[one.clone(), full(1), helpers(), two.clone(), ends.clone()]),
        script(
            "two-summaries",
            &[one.clone(), full(1), helpers(), two.clone(), full(1), helpers(), ends.clone()],
        ),
        script(
            "short-summary",
            &[one.clone(), full(2), vec![replies("Two is left.")], two.clone(), ends.clone()],
        ),
        script("no-summary", &[one.clone(), full(3), two.clone(), ends.clone()]),
        // The agent gets no answer, and continues.
        script("full-for-good", &[one.clone(), full(4), two.clone(), ends.clone()]),
        Script::json("full-at-once", left("one"), [full(1), one.clone(), ends.clone()].concat()),
        script("summary-after-a-cut", &[one, cut_off, full(1), helpers(), two, ends]),
        Script {
            setting: Setting::SmallContext,
            ..Script::json("summary-ahead", left("one two three"), ahead.concat())
        },
    ]
}
