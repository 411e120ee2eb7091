use std::num::NonZeroUsize;

use rolltap_proxy::Seconds;
use rolltap_proxy::api::DropCause;
use rolltap_rollout::ids::TaskId;

use super::*;
use crate::job::service::log::GroupOfTask;

fn id(number: usize) -> SubmissionId {
    SubmissionId::new(format!("s{number}")).unwrap()
}

fn group(number: usize) -> GroupId {
    GroupId::new(format!("g{number}")).unwrap()
}

/// Returns the record of a submission of one group of two samples.
fn submitted(number: usize) -> SubmissionRecord {
    SubmissionRecord::Submitted(Box::new(Submitted {
        id: id(number),
        at: Timestamp::UNIX_EPOCH,
        policy_version: 0,
        request: Submit {
            idempotency_key: Some(format!("key-{number}")),
            deadline: Some(Seconds::try_from(60.0).unwrap()),
            ..Submit::default()
        },
        groups: vec![GroupOfTask { group_id: group(number), task_id: TaskId::new("t").unwrap(), samples: 2 }],
    }))
}

fn table(submissions: usize) -> Table {
    Table::of((0..submissions).map(submitted).collect(), &CancellationToken::new())
}

#[test]
fn samples_are_counted_from_their_beginning_to_their_end() {
    let mut table = table(1);
    let shown = |table: &Table| table.active().next().unwrap().shown().groups.remove(0);
    assert_eq!((table.queued(), table.begun(&group(0))), (2, Some(id(0))));
    let (id, group_id, at) = (id(0), group(0), Timestamp::from_second(9).unwrap());
    let begun = SubmissionRecord::GroupBegun { id: id.clone(), group_id, policy_version: 4, at };
    table.apply(begun, &CancellationToken::new());
    assert_eq!((shown(&table).waited_sec, shown(&table).began_at_version), (Some(9.0), Some(4)));
    assert_eq!(table.begun(&group(0)), None, "only the first sample starts the group");
    assert_eq!((shown(&table).queued, shown(&table).running), (0, 2));
    // A retry waits again.
    table.attempt_ended(&group(0), None);
    assert_eq!((shown(&table).queued, shown(&table).running, table.queued()), (1, 1, 1));
    table.attempt_ended(&group(0), Some(SampleEnd { failure: Some("Proxy".to_owned()), reward: None }));
    assert!(!table.is_to_be_closed(&group(0)));
    table.begun(&group(0));
    table.attempt_ended(&group(0), Some(SampleEnd { failure: None, reward: Some(1.0) }));
    assert!(table.is_to_be_closed(&group(0)));
    assert_eq!((shown(&table).ended, shown(&table).failures.get("Proxy")), (2, Some(&1)));
    let at = Timestamp::UNIX_EPOCH;
    let closed =
        SubmissionRecord::GroupClosed { id, group_id: group(0), at, dropped: Some(DropCause::Uniform) };
    table.apply(closed, &CancellationToken::new());
    assert!(!table.is_to_be_closed(&group(0)));
    assert_eq!((shown(&table).closed_at, shown(&table).dropped), (Some(at), Some(DropCause::Uniform)));
}

#[test]
fn rewards_that_differ_make_a_group_worth_training() {
    for (rewards, expected) in [
        ([Some(1.0), Some(1.0)], true),
        ([Some(1.0), Some(0.0)], false),
        ([Some(1.0), None], true),
        ([None, None], true),
    ] {
        let mut table = table(1);
        for reward in rewards {
            table.has_ended(&group(0), SampleEnd { failure: None, reward });
        }
        assert_eq!(table.is_uniform(&group(0)), expected, "{rewards:?}");
    }
}

#[test]
fn a_table_of_the_records_is_the_table_that_wrote_them() {
    let mut table = table(2);
    table.begun(&group(0));
    table.attempt_ended(&group(0), Some(SampleEnd::default()));
    let end = table.get(&id(0)).unwrap().end(SubmissionState::Cancelled, Timestamp::UNIX_EPOCH, None);
    let records = vec![
        submitted(0),
        submitted(1),
        SubmissionRecord::Stopping { id: id(0), state: SubmissionState::Cancelled },
        end.clone(),
    ];
    table.apply(end, &CancellationToken::new());
    let again = Table::of(records, &CancellationToken::new());
    let all = SubmissionPage { after: None, active: false, limit: NonZeroUsize::new(9).unwrap() };
    assert_eq!(again.page(&all), table.page(&all));
    assert_eq!(again.active().map(|entry| entry.submitted.id.clone()).collect::<Vec<_>>(), [id(1)]);
    assert_eq!((again.queued(), again.of_group(&group(0)).is_some()), (2, false));
}

#[test]
fn a_stopped_submission_waits_for_nothing_and_its_trials_are_stopped() {
    let mut table = table(1);
    table.begun(&group(0));
    let stop = table.get(&id(0)).unwrap().stop.clone();
    let stopping = SubmissionRecord::Stopping { id: id(0), state: SubmissionState::Expired };
    table.apply(stopping, &CancellationToken::new());
    let entry = table.get(&id(0)).unwrap();
    assert!(stop.is_cancelled() && !entry.is_idle());
    assert_eq!((table.queued(), entry.state), (0, SubmissionState::Stopping));
    assert_eq!(entry.expires_at(), Some(Timestamp::from_second(60).unwrap()));
}

#[test]
fn pages_follow_each_other() {
    let table = table(3);
    let page = |after: Option<usize>| {
        let limit = NonZeroUsize::new(2).unwrap();
        let (shown, more) = table.page(&SubmissionPage { after: after.map(id), active: true, limit });
        (shown.into_iter().map(|submission| submission.id).collect::<Vec<_>>(), more)
    };
    assert_eq!(page(None), (vec![id(0), id(1)], true));
    assert_eq!(page(Some(1)), (vec![id(2)], false));
    assert_eq!(page(Some(2)), (vec![], false));
}

#[test]
fn a_key_is_known_as_long_as_its_submission() {
    let mut table = table(KEPT + 1);
    let request = |number: usize| match submitted(number) {
        SubmissionRecord::Submitted(submitted) => submitted.request,
        _ => unreachable!(),
    };
    assert!(table.repeated(&request(0)).unwrap().1);
    let other = Submit { samples: None, task: Some("other".to_owned()), ..request(0) };
    assert!(!table.repeated(&other).unwrap().1);
    for number in 0..=KEPT {
        let end = table.get(&id(number)).unwrap().end(SubmissionState::Done, Timestamp::UNIX_EPOCH, None);
        table.apply(end, &CancellationToken::new());
    }
    assert!(table.get(&id(0)).is_none() && table.repeated(&request(0)).is_none(), "the oldest is forgotten");
    assert!(table.repeated(&request(1)).is_some());
}
