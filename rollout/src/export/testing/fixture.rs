//! Trials for the tests of formats: two of one group, the second one with a fork.

use serde_json::json;

use crate::call::Call;
use crate::export::exporter::{GroupPlace, Trial};
use crate::forest::tests::call;
use crate::ids::{GroupId, TaskId, TrialId};
use crate::rollout::{Reward, TrialFacts, rows};
use crate::training::TrainingPolicy;

/// A trial of one branch with two turns: ids 1 2 [3] 4 [5 6], with sampled ids in brackets. The logprob of a sampled id
/// is its negative.
pub(crate) fn straight() -> Trial {
    trial("straight", 0, 1.0, 0.5, &[call(0, &[1, 2], &[&[3]]), call(1, &[1, 2, 3, 4], &[&[5, 6]])])
}

/// A trial of two branches, 1 2 [3] 4 [5] and 1 2 [3] 7 [8 9]. The first one owns the shared 3.
pub(crate) fn forked() -> Trial {
    let calls =
        [call(0, &[1, 2], &[&[3]]), call(1, &[1, 2, 3, 4], &[&[5]]), call(2, &[1, 2, 3, 7], &[&[8, 9]])];
    trial("forked", 1, 0.0, -0.5, &calls)
}

/// A group of three without advantages: a trial with a reward that trains nothing, a failed one, and one that is trained.
pub(crate) fn judged_failed_and_trained() -> [Trial; 3] {
    let untrained = |mut trial: Trial| {
        trial.rows.iter_mut().for_each(|row| row.loss_mask.fill(0));
        trial
    };
    let mut trained = straight();
    trained.rows[0].trial_id = "trained".to_owned();
    trained.rows[0].sample_index = 2;
    let failed = Trial { reward: None, ..untrained(forked()) };
    let group = Some(GroupPlace { ordinal: 0, trials: 3 });
    [untrained(straight()), failed, trained].map(|trial| Trial { advantage: None, group, ..trial })
}

/// A trial of the group "group" with these calls.
pub(crate) fn trial(name: &str, sample_index: u32, reward: f64, advantage: f64, calls: &[Call]) -> Trial {
    let facts = TrialFacts {
        trial_id: TrialId::new(name).unwrap(),
        task_id: TaskId::new("org/task").unwrap(),
        group_id: Some(GroupId::new("group").unwrap()),
        group_size: Some(2),
        sample_index,
        attempt: 0,
        agent: Some("terminal".into()),
        environment: Some("docker".into()),
        model: Some("model".into()),
        logprobs_mode: "processed_logprobs".into(),
        tokenizer_hash: Some("0123456789abcdef".into()),
        vocab_size: Some(1000),
        training: TrainingPolicy::default(),
    };
    let given = Reward { reward: Some(reward), valid: true, ..Reward::default() };
    Trial {
        rows: rows(&facts, &given, calls),
        reward: Some(reward),
        stand_in: None,
        advantage: Some(advantage),
        group: Some(GroupPlace { ordinal: 0, trials: 2 }),
        left_out: 0,
    }
}

#[test]
fn the_fixtures_are_what_they_say() {
    let ids = |trial: &Trial| trial.rows.iter().map(|row| row.token_ids.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&straight()), [[1, 2, 3, 4, 5, 6]]);
    let forked = forked();
    assert_eq!(ids(&forked), [vec![1, 2, 3, 4, 5], vec![1, 2, 3, 7, 8, 9]]);
    assert_eq!(
        (&*forked.rows[0].loss_mask, &*forked.rows[1].loss_mask),
        (&[0, 0, 1, 0, 1][..], &[0, 0, 0, 0, 1, 1][..])
    );
}

/// The trial with messages: a conversation of the task and, before each further answer, the message "next". The words of
/// an answer are the names of its trial and call.
pub(crate) fn with_messages(mut trial: Trial) -> Trial {
    for row in &mut trial.rows {
        let mut messages = Vec::new();
        for call in &mut row.calls {
            let content = if messages.is_empty() { row.task_id.as_str() } else { "next" };
            messages.push(json!({"role": "user", "content": content}));
            messages
                .push(json!({"role": "assistant", "content": format!("{} {}", row.trial_id, call.call_id)}));
            call.messages = Some(json!(messages).to_string());
        }
    }
    trial
}
