use proptest::prelude::*;

use super::*;

const ONE: ServerId = 7;
const OTHER: ServerId = 8;

fn trial(number: usize) -> TrialId {
    TrialId::new(format!("t-{number}")).unwrap()
}

fn report(capacity: u64) -> Option<CacheReport> {
    Some(CacheReport { capacity, block_size: 16, ..CacheReport::default() })
}

/// A ledger with these servers, each with a cache of this many tokens.
fn ledger(servers: &[ServerId], capacity: u64) -> CacheLedger {
    let mut ledger = CacheLedger::default();
    for &server in servers {
        ledger.add(server);
        ledger.report(server, report(capacity), 0.0);
    }
    ledger
}

/// Admits trials of this kind until one does not fit. Returns the servers of those that did.
fn admit_all(ledger: &mut CacheLedger, kind: &str, servers: &[ServerId]) -> Vec<ServerId> {
    let first = ledger.open_trials();
    (first..first + 1000).map_while(|number| ledger.admit(&trial(number), kind, servers)).collect()
}

/// Notes that 32 trials of this kind made one call each and ended. That is enough to know the length of others.
fn run_some(ledger: &mut CacheLedger, kind: &str, prompt: u64, answer: u64) {
    for number in 0..32 {
        let trial = TrialId::new(format!("earlier-{number}")).unwrap();
        let server = ledger.admit(&trial, kind, &[ONE]).unwrap();
        ledger.ended_call(&trial, server, EndedCall { prompt, answer, known: 0, seconds: 1.0 });
        ledger.release(&trial);
    }
    let report = ledger.servers[&ONE].report();
    ledger.report(ONE, report, 0.0);
}

#[test]
fn no_trial_is_admitted_before_the_server_has_answered() {
    let mut ledger = CacheLedger::default();
    ledger.add(ONE);
    assert_eq!(ledger.admit(&trial(0), "a", &[ONE]), None);
    assert_eq!(ledger.admit(&trial(0), "a", &[]), None);
    assert!(ledger.report(ONE, None, 0.0), "the first answer is news");
    assert!(!ledger.report(ONE, None, 0.0));
    assert_eq!(
        admit_all(&mut ledger, "a", &[ONE]).len(),
        FIXED_TRIALS,
        "without metrics the fixed rule applies"
    );
    assert!(ledger.report(ONE, report(1 << 20), 0.0), "news");
}

/// Returns the number of trials of this length that fit at a server at once. Half a block of each is empty.
fn fitting(ledger: &CacheLedger, length: u64) -> u64 {
    ledger.status(ONE).unwrap().limit.unwrap() / (length + 8)
}

#[test]
fn a_few_trials_are_admitted_before_any_has_ended_and_then_as_many_as_fit() {
    let mut ledger = ledger(&[ONE], 8000);
    let first = admit_all(&mut ledger, "a", &[ONE]).len();
    assert_eq!(first as u64, fitting(&ledger, 8000 / FIRST_SHARE));
    (0..first).for_each(|number| ledger.release(&trial(number)));
    run_some(&mut ledger, "a", 100, 900);
    let then = admit_all(&mut ledger, "a", &[ONE]).len() as u64;
    // 100 tokens are shared, and each trial has 900 of its own. A quarter may be longer, because so few are known.
    assert!((fitting(&ledger, 1200)..=fitting(&ledger, 900)).contains(&then), "{then}");
}

#[test]
fn trials_at_different_points_leave_room_for_more() {
    let mut ledger = ledger(&[ONE], 8000);
    run_some(&mut ledger, "a", 100, 1000);
    let at_once = admit_all(&mut ledger, "a", &[ONE]).len();
    for number in 0..at_once {
        let answer = 1000 * number as u64 / at_once as u64;
        ledger.ended_call(&trial(number), ONE, EndedCall { prompt: 100, answer, known: 0, seconds: 1.0 });
    }
    let more = admit_all(&mut ledger, "a", &[ONE]).len();
    assert!(more >= 3, "{at_once} and {more}");
}

#[test]
fn a_trial_that_is_too_long_for_the_cache_runs_alone() {
    let mut ledger = ledger(&[ONE], 500);
    run_some(&mut ledger, "a", 100, 900);
    assert_eq!(admit_all(&mut ledger, "a", &[ONE]), [ONE]);
}

#[test]
fn samples_of_a_task_go_to_the_server_that_has_its_prompt_until_it_has_too_many() {
    let servers = [ONE, OTHER];
    let mut ledger = ledger(&servers, 100_000);
    run_some(&mut ledger, "earlier", 100, 100);
    let placed: Vec<_> = (0..7).map(|number| ledger.admit(&trial(number), "a", &servers).unwrap()).collect();
    let of_one = placed.iter().filter(|server| **server == ONE).count();
    assert_eq!((placed[..3].to_vec(), of_one), (vec![ONE, ONE, ONE], 4), "{placed:?}");
    assert_eq!(ledger.admit(&trial(7), "b", &servers), Some(OTHER), "another task goes where fewer are");
}

#[test]
fn a_trial_keeps_its_place_and_frees_it_once() {
    let mut ledger = ledger(&[ONE, OTHER], 1000);
    let server = ledger.admit(&trial(0), "a", &[ONE, OTHER]);
    assert_eq!(ledger.admit(&trial(0), "a", &[ONE, OTHER]), server);
    assert_eq!(ledger.open_trials(), 1);
    // Its server takes no calls any more.
    ledger.ended_call(&trial(0), OTHER, EndedCall { prompt: 10, answer: 5, known: 10, seconds: 1.0 });
    assert_eq!(ledger.status(ONE).unwrap().trials, 0);
    assert_eq!(ledger.status(OTHER).unwrap().trials, 1);
    ledger.release(&trial(0));
    ledger.release(&trial(0));
    assert_eq!(ledger.open_trials(), 0);
    ledger.remove(OTHER);
    assert_eq!((ledger.status(OTHER), ledger.admit(&trial(1), "a", &[OTHER])), (None, None));
}

#[test]
fn a_queue_that_remains_admits_no_further_trial() {
    let mut ledger = ledger(&[ONE], 100_000);
    let busy =
        CacheReport { capacity: 100_000, block_size: 16, running: 8, waiting: 5, ..CacheReport::default() };
    ledger.admit(&trial(0), "a", &[ONE]).unwrap();
    ledger.report(ONE, Some(busy), 0.0);
    assert!(ledger.admit(&trial(1), "a", &[ONE]).is_some(), "one report may be a moment");
    ledger.report(ONE, Some(busy), 0.0);
    assert_eq!(ledger.admit(&trial(2), "a", &[ONE]), None);
    ledger.report(ONE, Some(CacheReport { waiting: 0, ..busy }), 0.0);
    assert!(ledger.admit(&trial(2), "a", &[ONE]).is_some());
}

#[test]
fn preemptions_leave_less_room_at_all_servers() {
    let mut ledger = ledger(&[ONE, OTHER], 1000);
    ledger.admit(&trial(0), "a", &[ONE]).unwrap();
    let before = ledger.status(OTHER).unwrap().limit.unwrap();
    for prompt in [500, 700, 900, 1100] {
        ledger.ended_call(
            &trial(0),
            ONE,
            EndedCall { prompt, answer: 100, known: prompt - 100, seconds: 1.0 },
        );
    }
    let preempting = CacheReport { queries: 2100, hits: 2000, preemptions: 3, ..report(1000).unwrap() };
    for second in 1..=60 {
        ledger.report(ONE, Some(preempting), f64::from(second));
    }
    assert!(ledger.status(OTHER).unwrap().limit.unwrap() < before);
}

#[derive(Clone, Debug)]
enum Step {
    Admit(usize, bool),
    Call(usize, u64, u64),
    Release(usize),
    Report(Option<u64>),
    Remove,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..9_usize, any::<bool>()).prop_map(|(trial, is_a)| Step::Admit(trial, is_a)),
        (0..9_usize, any::<u64>(), 0..900_u64)
            .prop_map(|(trial, prompt, answer)| Step::Call(trial, prompt, answer)),
        (0..9_usize).prop_map(Step::Release),
        prop::option::of(1..u64::MAX).prop_map(Step::Report),
        Just(Step::Remove),
    ];
    prop::collection::vec(step, 0..60)
}

proptest! {
    #[test]
    fn places_are_those_of_open_trials_whatever_comes(steps in steps()) {
        let mut ledger = ledger(&[ONE, OTHER], 5000);
        for step in steps {
            match step {
                Step::Admit(number, is_a) => {
                    ledger.admit(&trial(number), if is_a { "a" } else { "b" }, &[ONE, OTHER]);
                }
                Step::Call(number, prompt, answer) => {
                    let call = EndedCall { prompt, answer, known: prompt / 2, seconds: 1.0 };
                    ledger.ended_call(&trial(number), OTHER, call);
                }
                Step::Release(number) => ledger.release(&trial(number)),
                Step::Report(capacity) => {
                    ledger.report(ONE, capacity.and_then(report), 0.0);
                }
                Step::Remove => ledger.remove(ONE),
            }
            for (id, server) in &ledger.servers {
                for trial in &server.open {
                    prop_assert_eq!(ledger.open.get(trial).map(|open| open.server), Some(*id));
                }
            }
            let placed: usize = ledger.servers.values().map(|server| server.open.len()).sum();
            prop_assert!(placed <= ledger.open.len());
        }
    }
}
