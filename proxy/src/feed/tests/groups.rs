//! Tests of groups, attempts and deadlines.

use super::*;

#[test]
fn a_later_attempt_counts_instead_of_an_earlier_one() {
    let mut scene = Scene::default();
    for (name, place) in [
        ("first", (Some("g"), 0, 0)),
        ("second", (Some("g"), 0, 2)),
        ("elsewhere", (Some("h"), 0, 0)),
        ("alone", (None, 0, 0)),
        ("alone_too", (None, 0, 0)),
        ("alone_again", (None, 1, 1)),
    ] {
        scene.open(trial(name, place)).unwrap();
        scene.end(name);
        scene.settle();
    }
    assert!(scene.ledger.standing(&id("first")).superseded);
    assert_eq!(scene.names(false), ["second", "elsewhere", "alone", "alone_too", "alone_again"]);
    let all = scene.read(&mut Cursor::begin(false), true);
    let superseded: Vec<_> = all.iter().map(|next| next.superseded).collect();
    assert_eq!(superseded, [true, false, false, false, false, false]);
}

#[test]
fn a_group_closes_when_as_many_samples_as_its_size_are_complete() {
    let mut scene = Scene::default();
    let sized = |name, sample, attempt| {
        let mut opened = trial(name, (Some("g"), sample, attempt));
        opened.facts.group_size = Some(2);
        opened
    };
    scene.open(sized("a", 0, 0)).unwrap();
    scene.open(trial("b0", (Some("g"), 1, 0))).unwrap();
    scene.end("b0");
    scene.settle();
    scene.open(sized("b1", 1, 1)).unwrap();
    scene.end("a");
    scene.settle();
    let status = scene.ledger.group(&group("g")).unwrap();
    assert_eq!((status.samples.complete, status.samples.open, status.trials), (1, 1, 3));
    assert_eq!(status.closed, None, "the attempt that counts at sample 1 is at work");
    scene.end("b1");
    scene.settle();
    let status = scene.ledger.group(&group("g")).unwrap();
    assert_eq!(status.closed.unwrap().cause, ClosingCause::Size);
    assert_eq!((scene.names(true), scene.names(false)), (vec!["a".into(), "b1".into()], scene.names(true)));
    let refused = scene.open(sized("c", 2, 0)).unwrap_err();
    assert!(refused.contains("group g is closed (as many samples as its size are complete)"), "{refused}");
}

#[test]
fn a_held_group_closes_by_call_alone_and_a_dropped_one_is_for_no_reader_of_closed_groups() {
    let mut scene = Scene::default();
    let held = |name, group, sample| {
        let mut opened = trial(name, (Some(group), sample, 0));
        (opened.facts.group_size, opened.hold_group) = (Some(2), true);
        opened
    };
    for (name, group, sample) in [("a", "g", 0), ("b", "g", 1), ("c", "h", 0), ("d", "h", 1)] {
        scene.open(held(name, group, sample)).unwrap();
    }
    for name in ["a", "b", "c"] {
        scene.end(name);
    }
    scene.settle();
    assert_eq!(scene.ledger.group(&group("g")).unwrap().closed, None, "it is full and held");
    assert_eq!(scene.names(true), [""; 0]);
    scene.ledger.close(&group("h"), ClosingCause::Dropped);
    scene.settle();
    scene.ledger.close(&group("g"), ClosingCause::Call);
    scene.settle();
    scene.end("d");
    scene.settle();
    assert_eq!((scene.names(true), scene.names(false).len()), (vec!["a".into(), "b".into()], 4));
    assert_eq!(scene.retold(), scene.ledger, "after a restart too");
}

#[test]
fn a_late_completion_is_released_alone_and_marked_late() {
    let mut scene = Scene::default();
    for (name, sample) in [("a", 0), ("b", 1), ("c", 2)] {
        scene.open(trial(name, (Some("g"), sample, 0))).unwrap();
    }
    scene.open(trial("alone", (None, 0, 0))).unwrap();
    for name in ["c", "alone", "a"] {
        scene.end(name);
        scene.settle();
    }
    assert_eq!(scene.names(true), ["alone"]);
    assert!(
        scene.ledger.close(&group("g"), ClosingCause::Call)
            && !scene.ledger.close(&group("unknown"), ClosingCause::Call)
    );
    let refused = scene.open(trial("d", (Some("g"), 3, 0))).unwrap_err();
    assert!(refused.contains("closed by call"), "already while it is being closed: {refused}");
    scene.settle();
    let mut cursor = Cursor::begin(true);
    let of_group = |read: Vec<Delivery>| -> Vec<_> {
        let told = |next: Delivery| {
            (next.trial.to_string(), next.of_group.map(|of_group| (of_group.remaining, of_group.late)))
        };
        read.into_iter().map(told).collect()
    };
    let read = of_group(scene.read(&mut cursor, false));
    let expected = [("alone", None), ("c", Some((1, false))), ("a", Some((0, false)))];
    assert_eq!(read, expected.map(|(name, of_group)| (name.to_owned(), of_group)));
    scene.end("b");
    scene.settle();
    assert_eq!(of_group(scene.read(&mut cursor, false)), [("b".to_owned(), Some((0, true)))]);
    scene.ledger.close(&group("g"), ClosingCause::Call);
    assert_eq!(scene.ledger.due(at(0)), None, "closed once");
}

#[test]
fn deadlines_that_passed_unchecked_count_in_their_order() {
    let mut scene = Scene::default();
    let with = |name, sample, reward_deadline, group_deadline| {
        let mut opened = trial(name, (Some("g"), sample, 0));
        opened.facts.group_size = Some(3);
        (opened.reward_deadline, opened.group_deadline) = (reward_deadline, group_deadline);
        opened
    };
    scene.open(with("quick", 0, seconds(5.0), None)).unwrap();
    scene.open(with("slow", 1, seconds(50.0), seconds(20.0))).unwrap();
    scene.open(with("at_work", 2, seconds(1.0), None)).unwrap();
    scene.seal(&id("quick"));
    scene.seal(&id("slow"));
    scene.settle();
    assert_eq!(scene.ledger.next_deadline(), Some(at(5)));
    assert_eq!(scene.ledger.group(&group("g")).unwrap().deadline_at, Some(at(20)));

    scene.now = 1000;
    assert_eq!(scene.retold().next_deadline(), Some(at(5)), "counted from the seal");
    scene.settle();
    assert_eq!(scene.names(false), ["quick", "slow"]);
    let status = scene.ledger.group(&group("g")).unwrap();
    assert_eq!((status.closed.unwrap().cause, status.samples.open), (ClosingCause::Deadline, 1));
    let late: Vec<_> = scene
        .read(&mut Cursor::begin(true), false)
        .into_iter()
        .map(|next| (next.trial.to_string(), next.of_group.unwrap().late))
        .collect();
    assert_eq!(late, [("quick".to_owned(), false), ("slow".to_owned(), true)]);
}

#[test]
fn a_trial_that_contradicts_its_group_is_refused_with_a_reason() {
    let mut scene = Scene::default();
    let with = |size, deadline| {
        let mut opened = trial("second", (Some("g"), 1, 0));
        (opened.facts.group_size, opened.group_deadline) = (size, deadline);
        opened
    };
    let mut first = with(Some(4), seconds(60.0));
    (first.facts.trial_id, first.facts.sample_index) = (id("first"), 0);
    scene.open(first).unwrap();
    let mut of_no_group = trial("x", (None, 0, 0));
    of_no_group.group_deadline = seconds(1.0);
    for (opened, said) in [
        (with(Some(8), None), "has group_size 4, and this trial gives 8"),
        (with(None, seconds(1.5)), "has group_deadline 60 s, and this trial gives 1.5"),
        (with(Some(0), None), "group_size is 0"),
        (of_no_group, "give a group_id with it"),
        (trial("x", (Some("g"), 0, 0)), "attempt 0 of sample 0 of group g is trial first already"),
    ] {
        let refused = scene.open(opened).unwrap_err();
        assert!(refused.contains(said), "{refused}");
    }
    scene.open(with(None, None)).unwrap();
}

#[test]
fn a_trial_that_could_not_be_stored_leaves_nothing_behind() {
    let mut scene = Scene::default();
    let sized = |name, attempt| {
        let mut opened = trial(name, (Some("g"), 0, attempt));
        opened.facts.group_size = Some(1);
        opened
    };
    let mut lost = sized("lost", 0);
    (lost.reward_deadline, lost.group_deadline) = (seconds(1.0), seconds(1.0));
    scene.ledger.opened(&lost);
    // A caller may know the name, because the request contained it.
    scene.ledger.sealed(&id("lost"), at(0));
    scene.ledger.withdrawn(&id("lost"));
    assert_eq!(scene.ledger, Ledger::default());

    scene.open(sized("first", 0)).unwrap();
    scene.ledger.opened(&sized("lost", 1));
    scene.end("first");
    scene.settle();
    assert_eq!(scene.ledger.group(&group("g")).unwrap().closed, None);
    scene.ledger.withdrawn(&id("lost"));
    scene.settle();
    assert_eq!(scene.names(true), ["first"], "it counts again, and its group is full");
}
