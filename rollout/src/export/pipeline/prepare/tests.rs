use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::export::exporter::GroupPlace;
use crate::export::formats::jsonl::JsonlReader;
use crate::export::formats::verl::VerlExporter;
use crate::export::formats::whole_rows::JsonlExporter;
use crate::export::testing::arbitrary;
use crate::export::testing::fixture::{forked, straight};
use crate::export::testing::read_back::{bits, float_bits, ints, objects, written};

fn options() -> impl Strategy<Value = PrepareOptions> {
    let extent = prop::sample::select(vec![Extent::Mask, Extent::Train]);
    let on_fork = prop::sample::select(vec![OnFork::All, OnFork::Longest, OnFork::Error]);
    let failed = prop::sample::select(PrepareOptions::FAILED);
    let reward = prop::sample::select(vec![None, Some(RewardRule::Sum)]);
    (extent, on_fork, failed, any::<bool>(), reward).prop_map(
        |(extent, on_fork, failed, train_constrained, reward)| PrepareOptions {
            extent,
            on_fork,
            failed,
            train_constrained,
            reward,
        },
    )
}

/// Rows of a trial of any shape: constrained calls, labels of versions, a reward that may not measure the agent.
fn any_rows() -> impl Strategy<Value = Vec<RolloutRow>> {
    let label = prop::sample::select(vec!["", "7", "step", "+5"]);
    let verdict = prop::sample::select(vec![(Some(1.0), true), (Some(1.0), false), (None, false)]);
    let constrained = prop::collection::vec(prop::bool::weighted(0.3), 8);
    (arbitrary::trial(), label, verdict, constrained).prop_map(|(trial, label, verdict, constrained)| {
        let mut rows = trial.rows;
        for row in &mut rows {
            (row.reward, row.reward_valid) = verdict;
            for call in &mut row.calls {
                // A call is in several branches, and is constrained in all of them or in none.
                let place = usize::from(call.call_id.bytes().next_back().unwrap_or_default());
                call.constrained = constrained[place % constrained.len()];
            }
            let versions = if label.is_empty() { Vec::new() } else { row.token_version.clone() };
            let labels = versions.iter().filter(|&&version| version >= 0);
            row.version_labels = labels.map(|version| (version.to_string(), label.to_owned())).collect();
        }
        rows
    })
}

/// The trial as `rolltap export` takes it from a file with nothing else, and why it refuses the trial.
fn exported_trial(rows: Vec<RolloutRow>, options: &PrepareOptions) -> Result<Trial, String> {
    let mut survey = Survey::new(Rules {
        on_fork: options.on_fork,
        failed: options.failed,
        advantage: Advantage::None,
        comparison: Comparison::Never,
        open_groups: true,
        untrained_groups: true,
        superseded: false,
        train_constrained: options.train_constrained,
        reward: options.reward.clone(),
        staleness: None,
        min_reward: None,
        best_of_group: None,
    });
    survey.trial(RowFacts::from(&rows[0])).unwrap();
    let taken = survey.plan().unwrap().take(rows, &mut Tally::default());
    taken.map(Option::unwrap).map_err(|refusal| refusal.to_string())
}

fn without_texts(mut rows: Vec<RolloutRow>) -> Vec<RolloutRow> {
    remove_texts(&mut rows);
    rows
}

proptest! {
    /// Equal to the plainest format: `mask` has its rows, and `train` has the rows that train something.
    #[test]
    fn prepared_rows_are_those_of_an_export(rows in any_rows(), options in options()) {
        let made = prepare(rows.clone(), &Reward::default(), &options);
        let trial = match exported_trial(rows.clone(), &options) {
            Ok(trial) => trial,
            Err(problem) => {
                prop_assert_eq!((made.refused, made.rows.len()), (Some(problem), 0));
                return Ok(());
            }
        };
        prop_assert_eq!(&made.refused, &None);
        prop_assert_eq!(made.reward, trial.reward);
        prop_assert_eq!(made.left_out as usize, rows.len() - made.rows.len());
        let (lines, _) = written(JsonlExporter::new, [trial]).unwrap();
        let file = lines.join("\n");
        let expected: Vec<_> = without_texts(JsonlReader::new(file.as_bytes()).map(Result::unwrap).collect());
        let plain: Vec<_> = made.rows.iter().map(|prepared| prepared.row.clone()).collect();
        if options.extent == Extent::Mask {
            prop_assert_eq!(plain, expected);
            return Ok(());
        }
        let trained = expected.iter().filter(|row| row.loss_mask.contains(&1)).count();
        prop_assert_eq!(plain.len(), trained.max(1));
        for row in plain {
            let whole = expected.iter().find(|other| other.branch_index == row.branch_index).unwrap();
            let length = row.token_ids.len();
            prop_assert_eq!(&row.token_ids, &whole.token_ids[..length]);
            prop_assert_eq!(&row.loss_mask, &whole.loss_mask[..length]);
            prop_assert_eq!(&row.trainable_mask, &whole.trainable_mask[..length]);
            prop_assert_eq!(bits(&row.logprobs), bits(&whole.logprobs[..length]));
            prop_assert!(trained == 0 || row.loss_mask.last() == Some(&1));
            prop_assert!(!whole.loss_mask[length..].contains(&1));
        }
    }

    /// Equal to the format of a trainer that takes prompt and response apart, policy numbers included.
    #[test]
    fn prepared_rows_are_what_a_trainers_format_has(rows in any_rows(), options in options()) {
        let options = PrepareOptions { extent: Extent::Train, ..options };
        let made = prepare(rows.clone(), &Reward::default(), &options);
        let Ok(trial) = exported_trial(rows, &options) else { return Ok(()) };
        prop_assume!(trial.rows.iter().any(|row| row.loss_mask.contains(&1)));
        let alone = Trial { group: Some(GroupPlace { ordinal: 0, trials: 1 }), ..trial };
        let line = objects(VerlExporter::new, [alone]).remove(0);
        let outputs = line["outputs"].as_array().unwrap();
        prop_assert_eq!(outputs.len(), made.rows.len());
        for (output, prepared) in outputs.iter().zip(&made.rows) {
            let (prompt, response) = prepared.row.token_ids.split_at(prepared.row.prompt_len as usize);
            prop_assert_eq!((ints(&output["prompt_ids"]), ints(&output["response_ids"])), (prompt.to_vec(), response.to_vec()));
            let mask = &prepared.row.loss_mask[prompt.len()..];
            prop_assert_eq!(ints(&output["response_mask"]), mask.iter().map(|&bit| i32::from(bit)).collect::<Vec<_>>());
            prop_assert_eq!(float_bits(&output["response_logprobs"]), bits(&prepared.row.logprobs[prompt.len()..]));
            let steps = |name: &str| output["extra_fields"][name].as_i64();
            prop_assert_eq!(steps("min_global_steps"), Some(prepared.oldest_policy));
            prop_assert_eq!(steps("max_global_steps"), Some(prepared.newest_policy));
            prop_assert_eq!(prepared.policy_numbers.len(), prepared.row.token_ids.len());
        }
    }

    #[test]
    fn the_json_brings_back_the_same(rows in any_rows(), options in options()) {
        let made = prepare(rows, &Reward::default(), &options);
        let text = serde_json::to_string(&made).unwrap();
        prop_assert_eq!(serde_json::from_str::<PreparedTrial>(&text).unwrap(), made);
    }
}

fn train(rows: Vec<RolloutRow>) -> PreparedTrial {
    prepare(rows, &Reward::default(), &PrepareOptions::of(Extent::Train))
}

#[test]
fn a_prepared_row_is_a_row_with_the_numbers_of_its_weights() {
    let mut rows = straight().rows;
    rows[0].version_labels = [("0".to_owned(), "40".to_owned())].into();
    let value = serde_json::to_value(&train(rows).rows[0]).unwrap();
    assert_eq!(value["schema_version"], "rollout/1");
    assert_eq!(value["policy_numbers"], serde_json::json!([-1, -1, 40, -1, 40, 40]));
    assert_eq!((&value["oldest_policy"], &value["newest_policy"]), (&Value::from(40), &Value::from(40)));
    assert_eq!(value["policy_names"], serde_json::json!(["40"]));
}

#[test]
fn media_are_refused_where_something_is_trained() {
    let mut rows = straight().rows;
    rows[0].has_media = true;
    let refused = train(rows.clone()).refused.unwrap();
    assert!(refused.starts_with("trial straight, branch 0: it held images, audio or video"), "{refused}");
    rows[0].reward_valid = false;
    let failed = train(rows);
    assert_eq!((failed.refused, failed.reward, failed.rows.len()), (None, None, 1));
}

/// Constrained calls are masked before the branch is chosen, so the chosen branch trains the most.
#[test]
fn the_longest_branch_is_the_longest_of_what_is_trained() {
    let options = PrepareOptions { on_fork: OnFork::Longest, ..PrepareOptions::of(Extent::Train) };
    let branch = |rows: Vec<RolloutRow>| {
        let made = prepare(rows, &Reward::default(), &options);
        (made.rows[0].row.branch_index, made.rows[0].row.loss_mask.clone(), made.left_out)
    };
    assert_eq!(branch(forked().rows), (1, vec![0, 0, 1, 0, 1, 1], 1));
    let mut rows = forked().rows;
    rows[1].calls[1].constrained = true;
    assert_eq!(branch(rows), (0, vec![0, 0, 1, 0, 1], 1));
}

#[test]
fn a_trial_that_sampled_nothing_has_no_rows_and_its_reward() {
    let made = |reward: Option<f64>, valid, failed| {
        let reward = Reward { reward, valid, ..Reward::default() };
        prepare(Vec::new(), &reward, &PrepareOptions { failed, ..PrepareOptions::of(Extent::Train) })
    };
    let with = |reward| PreparedTrial { reward, ..PreparedTrial::default() };
    assert_eq!(made(Some(0.5), true, Failed::Mask), with(Some(0.5)));
    assert_eq!(made(Some(0.5), false, Failed::Mask), with(None), "the reward does not measure the agent");
    assert_eq!(made(None, false, Failed::Zero), with(Some(0.0)));
}
