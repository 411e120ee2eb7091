//! The feed's events in the store, and the events that count before they are stored.

use rolltap_rollout::rollout::Reward;
use rolltap_testing::limit;
use tempfile::TempDir;

use super::*;
use crate::api::RolloutLine;
use crate::store::{self, Damage, Event, OpenedStore, Store};
use crate::trial::{RewardConflict, Trial};

fn completed(name: &str, sequence: u64) -> Event {
    Event::Completed { trial_id: id(name), completion: Completion { sequence, at: at(2) } }
}

/// Returns the store that the next process opens, and its damage.
async fn stored(events: Vec<Event>) -> (OpenedStore, Vec<Damage>) {
    let data = data_of(events).await;
    let damage = store::read_dir(data.path()).unwrap().damage;
    (Store::open(data.path(), store::StoreSettings::default()).unwrap(), damage)
}

async fn data_of(events: Vec<Event>) -> TempDir {
    let data = TempDir::new().unwrap();
    let OpenedStore { store, thread, .. } =
        Store::open(data.path(), store::StoreSettings::default()).unwrap();
    for event in events {
        store.append(event).await.unwrap();
    }
    drop(store);
    tokio::task::spawn_blocking(|| thread.finish()).await.unwrap().unwrap();
    data
}

fn opened(name: &str, sample: u32) -> Event {
    Event::Opened(Box::new(trial(name, (Some("g"), sample, 0))))
}

#[tokio::test]
async fn completions_and_closings_are_read_as_they_were_stored() {
    let closed = GroupClosed { group_id: group("g"), sequence: 2, cause: ClosingCause::Call, at: at(3) };
    let events = vec![
        opened("a", 0),
        opened("b", 1),
        completed("a", 1),
        Event::GroupClosed(closed.clone()),
        completed("b", 4),
        // A disk that fails at an unlucky moment leaves this order of events.
        completed("a", 1),
        Event::GroupClosed(closed.clone()),
    ];
    let (stored, damage) = stored(events).await;
    assert!(damage.is_empty(), "{damage:?}");
    assert_eq!(stored.closed_groups, [closed]);
    let sequences = stored.trials.iter().map(|trial| trial.completion.unwrap().sequence);
    assert_eq!(sequences.collect::<Vec<_>>(), [1, 4], "a number without a stored event is omitted");
}

#[tokio::test]
async fn a_number_that_was_given_before_is_damage() {
    let closed = GroupClosed { group_id: group("g"), sequence: 1, cause: ClosingCause::Size, at: at(3) };
    for second in [completed("b", 1), completed("b", 0), Event::GroupClosed(closed)] {
        let (_, damage) = stored(vec![opened("a", 0), opened("b", 1), completed("a", 1), second]).await;
        let [damage] = &damage[..] else { panic!("{damage:?}") };
        assert!(damage.reason.contains("comes after 1"), "{damage}");
    }
}

#[tokio::test]
async fn a_reader_learns_that_trials_went_before_it_had_them() {
    let names = ["a", "b", "c"];
    let sealed = |name: &str| Event::Sealed { trial_id: id(name), at: at(1) };
    let rewarded = |name: &str| Event::Rewarded { trial_id: id(name), reward: Reward::default() };
    let complete = (1..).zip(names).flat_map(|(n, name)| [sealed(name), rewarded(name), completed(name, n)]);
    let opened = names.map(|name| Event::Opened(Box::new(trial(name, (None, 0, 0)))));
    let forgotten = Event::Forgotten { trials: vec![id("b")], policy: Vec::new(), sequence: 3, through: 2 };
    let data = data_of(opened.into_iter().chain(complete).chain([forgotten]).collect()).await;
    let settings = crate::Settings::on_loopback(Vec::new(), data.path().to_owned());
    let proxy = crate::start(settings).await.unwrap();
    let read = async |query: &str| {
        let url = format!("http://{}/v1/rollouts?{query}", proxy.admin_addr());
        let answer = rolltap_testing::get(url).await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let (status, error) = read("after=1").await;
    assert!(status == 410 && error.contains("up to number 2") && error.contains("allow_gap=true"), "{error}");
    for (query, trials) in [("after=1&allow_gap=true", 1), ("after=2", 1), ("after=3", 0), ("", 2)] {
        let (status, lines) = read(query).await;
        assert_eq!((status, lines.lines().count()), (200, trials), "{query}: {lines}");
    }
    proxy.shutdown(limit(10)).await.unwrap();
}

#[tokio::test]
async fn what_was_due_when_the_process_ended_is_done_by_the_next() {
    let mut first = trial("first", (Some("g"), 0, 0));
    first.facts.group_size = Some(2);
    let rewarded = |name| Event::Rewarded { trial_id: id(name), reward: Reward::default() };
    let sealed = |name, second| Event::Sealed { trial_id: id(name), at: at(second) };
    let opened = [Event::Opened(Box::new(first)), opened("second", 1)];
    let ends = [sealed("second", 1), sealed("first", 2), rewarded("first"), rewarded("second")];
    let data = data_of(opened.into_iter().chain(ends).collect()).await;
    let settings = crate::Settings::on_loopback(Vec::new(), data.path().to_owned());
    let proxy = crate::start(settings).await.unwrap();
    let url = format!("http://{}/v1/rollouts?closed_groups=true&wait=60", proxy.admin_addr());
    let lines = rolltap_testing::get(url).await.unwrap().text().await.unwrap();
    let lines: Vec<RolloutLine> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<_> = lines.iter().map(|line| line.trial_id.as_str()).collect();
    assert_eq!(names, ["second", "first"], "in the order in which they were sealed");
    proxy.shutdown(limit(5)).await.unwrap();
    let stored = Store::open(data.path(), store::StoreSettings::default()).unwrap();
    assert_eq!((stored.closed_groups.len(), stored.closed_groups[0].sequence), (1, 3));
}

#[test]
fn of_a_reward_and_its_deadline_the_first_counts() {
    let overdue = || {
        let mut opened = trial("a", (None, 0, 0));
        opened.reward_deadline = seconds(0.0);
        Trial::new(opened)
    };
    let reward = Reward { reward: Some(1.0), valid: true, ..Reward::default() };
    let early = overdue();
    assert_eq!((early.reward(&reward), early.reward(&reward)), (Ok(true), Ok(false)));
    assert_eq!(early.reward(&Reward::default()), Err(RewardConflict::Other));
    early.seal();
    assert_eq!(early.reward_or_missed(), reward);

    let late = overdue();
    late.seal();
    assert_eq!(late.reward(&reward), Err(RewardConflict::DeadlinePassed), "before any check");
    assert_eq!(late.reward_or_missed().failure_cause.as_deref(), Some("reward_deadline"));
    assert_eq!(late.reward(&reward), Err(RewardConflict::DeadlinePassed));
}
