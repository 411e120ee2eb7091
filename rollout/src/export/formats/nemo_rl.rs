//! NeMo-RL (commit 7ea279a, without a usable release in a package index): one line per trial, the result of its Gym
//! environment for the trainer.
//!
//! `message_log` is the branch as consecutive pieces. `user` pieces have `token_ids` only and are not trained.
//! `assistant` pieces have `token_ids` and `generation_logprobs` and are trained. The first piece is the prompt up to
//! the first sampled token, which the trainer calls `input_message_log`, so it is not written again.
//! `full_result.reward` is the reward, and `loss_multiplier` is 0.0 if nothing is trained. `trial_id`, `task_id`,
//! `group_id` and `sample_index` identify the trial.
//!
//! The trainer asserts that each turn continues the one before, so a trial with several branches is rejected. It
//! compares trials with the same first piece. If the prompts of a group differ (a date, a container's name), each trial
//! is its own baseline and is not trained effectively. The export reports the number of such trials. It also reports
//! the reverse: the trainer merges two groups with the same first piece.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;

use serde::Serialize;

use crate::export::exporter::ExportError;
use crate::export::shared::compared::{ComparedExporter, ComparedShape, ComparedTrial, TrialLines};
use crate::export::shared::positions::only_branch;
use crate::export::shared::row_queries::{is_filler, is_trained};
use crate::export::shared::runs::trained_runs;
use crate::export::shared::sequence::Sequence;

/// Writes results of a Gym environment.
pub type NemoRlExporter<W> = ComparedExporter<W, NemoRl>;

/// The shape of a result.
#[derive(Debug, Default)]
pub struct NemoRl {
    /// The group of the previous trial, and the first prompt of that group.
    group: Option<(usize, Vec<i32>)>,
    /// The first owner of each prompt, by the prompt's hash. The prompts of all groups would need too much memory.
    owners: HashMap<u64, Owner>,
    hasher: RandomState,
}

/// The trials that the trainer must compare only with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Group(usize),
    /// A trial without a group, by its ordinal.
    Trial(usize),
}

#[derive(Serialize)]
struct NemoRlLine<'a> {
    message_log: Vec<NemoRlMessage<'a>>,
    loss_multiplier: f64,
    full_result: FullResult,
    trial_id: &'a str,
    task_id: &'a str,
    group_id: Option<&'a str>,
    sample_index: i32,
}

#[derive(Serialize)]
struct FullResult {
    reward: f64,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum NemoRlMessage<'a> {
    User { content: &'static str, token_ids: &'a [i32] },
    Assistant { content: &'static str, token_ids: &'a [i32], generation_logprobs: &'a [f32] },
}

impl ComparedShape for NemoRl {
    fn write<W: Write>(
        &mut self,
        trial: &ComparedTrial,
        out: &mut TrialLines<'_, W>,
    ) -> Result<(), ExportError> {
        let Some(mut branch) = only_branch(trial)? else { return Ok(()) };
        let row = branch.row;
        let prompt = self.prompt_of_group(trial).filter(|_| is_filler(row)).map(<[i32]>::to_vec);
        if let Some(prompt) = &prompt {
            branch.prompt = prompt;
        }
        out.leave_out_advantage(trial);
        out.leave_out_versions(row);
        out.leave_out_rewards_by_name(row);
        out.tally.add(
            "trials: that they are of their group (the trainer goes by the first prompt, and theirs is another)",
            usize::from(!self.has_prompt_of_group(trial, &branch)),
        );
        out.tally.add(
            "trials: that they are of another group (the trainer goes by the first prompt, and an earlier group has the same)",
            usize::from(!self.has_prompt_of_its_own(trial, &branch)),
        );
        let line = NemoRlLine {
            message_log: messages(&branch),
            loss_multiplier: if is_trained(row) { 1.0 } else { 0.0 },
            full_result: FullResult { reward: trial.reward },
            trial_id: &row.trial_id,
            task_id: &row.task_id,
            group_id: row.group_id.as_deref(),
            sample_index: row.sample_index,
        };
        out.lines.write(&row.trial_id, &line)
    }
}

impl NemoRl {
    /// Returns the prompt of the first trial of the group, if an earlier line has it. A trial that sampled nothing takes
    /// this prompt, because the trainer finds its group by the prompt.
    fn prompt_of_group(&self, trial: &ComparedTrial) -> Option<&[i32]> {
        let group = trial.group?;
        self.group
            .as_ref()
            .filter(|(ordinal, _)| *ordinal == group.ordinal)
            .map(|(_, prompt)| prompt.as_slice())
    }

    /// Whether no earlier trial of another group has the same prompt.
    fn has_prompt_of_its_own(&mut self, trial: &ComparedTrial, branch: &Sequence<'_>) -> bool {
        let owner = trial.group.map_or(Owner::Trial(trial.ordinal), |group| Owner::Group(group.ordinal));
        // A hash collision only adds one to a reported count, so the prompts themselves are not stored.
        *self.owners.entry(self.hasher.hash_one(branch.prompt)).or_insert(owner) == owner
    }

    /// Whether the trial's prompt equals that of the first trial of its group.
    fn has_prompt_of_group(&mut self, trial: &ComparedTrial, branch: &Sequence<'_>) -> bool {
        let Some(group) = trial.group else { return true };
        match &self.group {
            Some((ordinal, prompt)) if *ordinal == group.ordinal => prompt == branch.prompt,
            // The first trial of its group. The trials of a group are consecutive, so one prompt is enough.
            _ => {
                self.group = Some((group.ordinal, branch.prompt.to_vec()));
                true
            }
        }
    }
}

/// Splits the branch into pieces that cover each of its tokens once.
fn messages<'a>(branch: &Sequence<'a>) -> Vec<NemoRlMessage<'a>> {
    let user = |token_ids| NemoRlMessage::User { content: "", token_ids };
    let mut messages = vec![user(branch.prompt)];
    let mut end = 0;
    for run in trained_runs(branch.mask) {
        // The masked tokens before the run, such as tool output, become a piece that is not trained.
        messages.extend(between(branch, end, run.start).map(user));
        end = run.end;
        let token_ids = branch.response.get(run.clone()).unwrap_or_default();
        let generation_logprobs = branch.logprobs.get(run).unwrap_or_default();
        messages.push(NemoRlMessage::Assistant { content: "", token_ids, generation_logprobs });
    }
    messages.extend(between(branch, end, branch.response.len()).map(user));
    messages
}

/// Returns the tokens of that range of the response, or `None` if there are none: the trainer rejects an empty piece.
fn between<'a>(branch: &Sequence<'a>, start: usize, end: usize) -> Option<&'a [i32]> {
    branch.response.get(start..end).filter(|tokens| !tokens.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::export::exporter::{GroupPlace, Trial};
    use crate::export::pipeline::projection::RowFacts;
    use crate::export::pipeline::stand_in;
    use crate::export::testing::any_trial::{any_group, compared_rows, one_branch};
    use crate::export::testing::fixture::{forked, straight};
    use crate::export::testing::read_back::{float_bits, ints, objects, told, written};

    #[test]
    fn a_branch_is_pieces_that_are_trained_or_not() {
        let mut trial = Trial { group: None, ..straight() };
        trial.rows[0].version_labels.insert("0".into(), "step-7".into());
        let (lines, omissions) = written(NemoRlExporter::new, [trial]).unwrap();
        let expected = [
            r#"{"message_log":[{"role":"user","content":"","token_ids":[1,2]},{"role":"assistant","content":"","token_ids":[3],"generation_logprobs":[-3.0]},{"role":"user","content":"","token_ids":[4]},{"role":"assistant","content":"","token_ids":[5,6],"generation_logprobs":[-5.0,-6.0]}],"loss_multiplier":1.0,"full_result":{"reward":1.0},"trial_id":"straight","task_id":"org/task","group_id":"group","sample_index":0}"#,
        ];
        assert_eq!(lines, expected);
        let expected = [
            "1 trials: their advantage, which the trainer works out itself",
            "1 trials: the policy versions of their tokens",
        ];
        assert_eq!(told(&omissions), expected);
    }

    #[test]
    fn a_forked_trial_is_refused() {
        let refusal = written(NemoRlExporter::new, [straight(), forked()]).unwrap_err().to_string();
        assert!(refusal.starts_with("trial forked, branch 0: 2 of its branches are trained"), "{refusal}");
    }

    #[test]
    fn a_group_of_several_prompts_is_told_of() {
        let mut other = one_branch(forked());
        other.rows[0].token_ids[0] = 7;
        let (_, omissions) = written(NemoRlExporter::new, [straight(), other]).unwrap();
        let what = "1 trials: that they are of their group (the trainer goes by the first prompt, and theirs is another)";
        assert!(told(&omissions).contains(&what.to_owned()));
        let (_, omissions) = written(NemoRlExporter::new, [straight(), one_branch(forked())]).unwrap();
        assert!(!told(&omissions).contains(&what.to_owned()));
    }

    #[test]
    fn two_groups_of_one_prompt_are_told_of() {
        let of = |ordinal| {
            let group = Some(GroupPlace { ordinal, trials: 2 });
            [straight(), one_branch(forked())].map(|trial| Trial { group, ..trial })
        };
        let what = "2 trials: that they are of another group (the trainer goes by the first prompt, and an earlier group has the same)";
        let (_, omissions) = written(NemoRlExporter::new, of(0).into_iter().chain(of(1))).unwrap();
        assert!(told(&omissions).contains(&what.to_owned()), "{omissions:?}");
        let other = of(1).map(|mut trial| {
            trial.rows[0].token_ids[0] = 7;
            trial
        });
        let (_, omissions) = written(NemoRlExporter::new, of(0).into_iter().chain(other)).unwrap();
        assert!(!told(&omissions).iter().any(|told| told.contains("of another group")), "{omissions:?}");
    }

    #[test]
    fn a_masked_trial_has_no_trained_piece() {
        let mut masked = Trial { reward: None, advantage: None, ..straight() };
        masked.rows[0].loss_mask.fill(0);
        let line = objects(NemoRlExporter::new, [masked, one_branch(forked())]).remove(0);
        let roles: Vec<_> =
            line["message_log"].as_array().unwrap().iter().map(|message| &message["role"]).collect();
        assert_eq!(roles, ["user", "user"]);
        assert_eq!((&line["loss_multiplier"], &line["full_result"]["reward"]), (&0.0.into(), &0.0.into()));
    }

    /// The trainer finds the group of a trial by its prompt.
    #[test]
    fn a_trial_that_sampled_nothing_has_the_prompt_of_its_group() {
        let mut filler = straight();
        filler.rows = vec![stand_in::row(&RowFacts::from(&filler.rows[0]))];
        let (lines, omissions) = written(NemoRlExporter::new, [filler, one_branch(forked())]).unwrap();
        assert!(
            lines[1].starts_with(r#"{"message_log":[{"role":"user","content":"","token_ids":[1,2]}"#),
            "{lines:?}"
        );
        assert!(lines[1].contains(r#""loss_multiplier":0.0,"full_result":{"reward":1.0}"#), "{lines:?}");
        assert!(!told(&omissions).iter().any(|told| told.contains("first prompt")), "{omissions:?}");
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(group in any_group()) {
            let group: Vec<_> = group.into_iter().map(one_branch).collect();
            prop_assume!(group.iter().any(|trial| trial.rows[0].loss_mask.contains(&1)));
            let lines = objects(NemoRlExporter::new, group.clone());
            prop_assert_eq!(lines.len(), group.len());
            for (line, trial) in lines.iter().zip(&group) {
                let row = compared_rows(trial).remove(0);
                let (mut ids, mut mask) = (Vec::new(), Vec::new());
                for message in line["message_log"].as_array().unwrap() {
                    let tokens = ints(&message["token_ids"]);
                    let start = ids.len();
                    prop_assert!(!tokens.is_empty());
                    ids.extend(tokens);
                    mask.resize(ids.len(), u8::from(message["role"] == "assistant"));
                    if message["role"] == "assistant" {
                        let expected: Vec<_> = row.logprobs[start..ids.len()].iter().map(|value| value.to_bits()).collect();
                        prop_assert_eq!(float_bits(&message["generation_logprobs"]), expected);
                    }
                }
                prop_assert_eq!(&ids, &row.token_ids);
                prop_assert_eq!(&mask, &row.loss_mask);
            }
        }
    }
}
