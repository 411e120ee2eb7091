use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn id(number: usize) -> GroupId {
    GroupId::new(format!("g{number}")).unwrap()
}

fn pace(max_staleness: u32, groups_per_step: u64) -> Pace {
    Pace { max_staleness, groups_per_step: NonZeroU64::new(groups_per_step).unwrap() }
}

fn window(max_staleness: u32, groups_per_step: u64) -> Window {
    Window::new(pace(max_staleness, groups_per_step), None, 0)
}

/// Admits groups while there is room. Returns the number of admitted groups.
fn fill(window: &mut Window, next: &mut usize) -> usize {
    let before = *next;
    while window.has_room() {
        window.admit(id(*next));
        *next += 1;
    }
    *next - before
}

#[test]
fn as_many_groups_begin_as_the_budget_has_places() {
    for (max_staleness, groups_per_step, places) in [(0, 4, 4), (2, 4, 12), (1, 1, 2)] {
        assert_eq!(fill(&mut window(max_staleness, groups_per_step), &mut 0), places);
    }
    let mut window = window(1, 2);
    let mut next = 0;
    assert_eq!(fill(&mut window, &mut next), 4);
    window.changed(1);
    assert_eq!(fill(&mut window, &mut next), 0, "the trainer went on without the groups of its first step");
    for group in 0..2 {
        window.ready(&id(group));
        assert_eq!(window.take(), Some(Release::Next(id(group))));
    }
    // The next places are taken at version 2.
    for group in 2..4 {
        assert_eq!(window.take(), None);
        window.ready(&id(group));
        assert_eq!(window.take(), Some(Release::TooOld(id(group))));
    }
    assert_eq!(fill(&mut window, &mut next), 2, "for version 2");
}

#[test]
fn a_ready_group_passes_a_running_one_only_while_that_one_can_be_in_time() {
    let mut window = window(1, 1);
    fill(&mut window, &mut 0);
    window.begun(&id(0));
    window.begun(&id(1));
    window.ready(&id(1));
    // Group 0 can take the second place, which is taken at version 1.
    assert_eq!(window.take(), Some(Release::Next(id(1))));
    window.changed(1);
    window.admit(id(2));
    window.begun(&id(2));
    window.ready(&id(2));
    assert_eq!(window.take(), None, "the second place is the last for group 0");
    window.ready(&id(0));
    assert_eq!(window.take(), Some(Release::Next(id(0))));
    assert_eq!(window.take(), Some(Release::Next(id(2))));
}

#[test]
fn a_group_that_is_older_than_the_budget_is_dropped_and_its_place_is_free() {
    let mut window = window(0, 1);
    let mut next = 0;
    fill(&mut window, &mut next);
    window.begun(&id(0));
    window.changed(1);
    window.ready(&id(0));
    assert_eq!(window.take(), Some(Release::TooOld(id(0))));
    assert_eq!(fill(&mut window, &mut next), 1);
    window.remove(&id(1));
    assert!(window.has_room(), "a dropped group takes no place");
}

#[test]
fn a_count_begins_anew_with_another_step_and_with_earlier_weights() {
    let earlier = Position { base: 0, released: 320, groups_per_step: NonZeroU64::new(32).unwrap() };
    let continued = Window::new(pace(2, 32), Some(earlier), 10);
    assert_eq!(continued.position(), earlier);
    let mut other = Window::new(pace(2, 8), Some(earlier), 10);
    assert_eq!(fill(&mut other, &mut 0), 24);
    let mut window = Window::new(pace(0, 1), None, 100);
    let mut next = 0;
    fill(&mut window, &mut next);
    window.ready(&id(0));
    assert_eq!(window.take(), Some(Release::Next(id(0))));
    window.changed(50);
    assert_eq!(fill(&mut window, &mut next), 1);
}

#[test]
fn a_group_that_reached_no_reader_gives_its_place_back() {
    let mut window = window(0, 1);
    let mut next = 0;
    fill(&mut window, &mut next);
    window.ready(&id(0));
    window.take();
    assert!(!window.has_room());
    window.was_empty();
    assert!(window.has_room());
}

/// A trainer and a service in virtual time. Each group has a length; `at_once` groups run at the same time.
struct Simulation {
    window: Window,
    /// The rest of each running group, and its version.
    running: Vec<(usize, u32, i64)>,
    /// The groups that are admitted and wait to run.
    waiting: Vec<usize>,
    versions: Vec<i64>,
    /// The released groups that the trainer has not taken.
    feed: Vec<usize>,
    version: i64,
    next: usize,
    /// The number of groups that were too old.
    dropped: usize,
    /// The number of groups that the trainer took.
    taken: usize,
}

impl Simulation {
    fn new(max_staleness: u32, groups_per_step: usize, groups: usize) -> Self {
        Self {
            window: window(max_staleness, groups_per_step as u64),
            running: Vec::new(),
            waiting: Vec::new(),
            versions: vec![0; groups],
            feed: Vec::new(),
            version: 0,
            next: 0,
            dropped: 0,
            taken: 0,
        }
    }

    fn name_version(&mut self) {
        self.version += 1;
        self.window.changed(i32::try_from(self.version).unwrap());
    }

    /// Lets time pass until something changes. Returns false if nothing can change. With `skips`, the trainer names a
    /// version without taking groups if it could take none.
    fn tick(&mut self, lengths: &[u32], at_once: usize, groups_per_step: usize, skips: bool) -> bool {
        while self.window.has_room() && self.next < lengths.len() {
            self.window.admit(id(self.next));
            self.waiting.push(self.next);
            self.next += 1;
        }
        while self.running.len() < at_once && !self.waiting.is_empty() {
            let group = self.waiting.remove(0);
            self.window.begun(&id(group));
            self.versions[group] = self.version;
            self.running.push((group, lengths[group], self.version));
        }
        let mut has_changed = false;
        if let Some(shortest) = self.running.iter().map(|(_, rest, _)| *rest).min() {
            self.running.iter_mut().for_each(|(_, rest, _)| *rest -= shortest);
            for (group, ..) in self.running.iter().filter(|(_, rest, _)| *rest == 0) {
                self.window.ready(&id(*group));
            }
            self.running.retain(|(_, rest, _)| *rest > 0);
            has_changed = true;
        }
        while let Some(release) = self.window.take() {
            match release {
                Release::Next(group) => self.feed.push(group.as_str()[1..].parse().unwrap()),
                Release::TooOld(_) => self.dropped += 1,
            }
            has_changed = true;
        }
        // The trainer takes whole steps, and is faster than the trials.
        while self.feed.len() >= groups_per_step {
            for group in self.feed.drain(..groups_per_step) {
                let age = self.version - self.versions[group];
                assert!(
                    age <= i64::from(self.window.pace.max_staleness),
                    "group {group} is {age} versions old"
                );
            }
            self.taken += groups_per_step;
            self.name_version();
            has_changed = true;
        }
        if skips && has_changed && self.feed.is_empty() {
            self.name_version();
        }
        has_changed
    }
}

proptest! {
    #[test]
    fn no_trained_group_is_older_than_the_budget_and_the_trainer_gets_all(
        lengths in prop::collection::vec(1..100_u32, 1..60), at_once in 1..12_usize,
        max_staleness in 0..4_u32, groups_per_step in 1..5_usize,
    ) {
        let mut simulation = Simulation::new(max_staleness, groups_per_step, lengths.len());
        while simulation.tick(&lengths, at_once, groups_per_step, false) {}
        // Only an incomplete last step is left.
        prop_assert_eq!(simulation.taken + simulation.feed.len(), lengths.len());
        prop_assert!(simulation.feed.len() < groups_per_step && simulation.dropped == 0);
    }

    #[test]
    fn a_trainer_that_skips_steps_gets_no_group_that_is_too_old(
        lengths in prop::collection::vec(1..100_u32, 1..60), at_once in 1..12_usize,
        max_staleness in 0..4_u32, groups_per_step in 1..5_usize, skips in prop::collection::vec(any::<bool>(), 20),
    ) {
        let mut simulation = Simulation::new(max_staleness, groups_per_step, lengths.len());
        let mut skips = skips.into_iter().chain(std::iter::repeat(false));
        while simulation.tick(&lengths, at_once, groups_per_step, skips.next().unwrap()) {}
        prop_assert_eq!(simulation.taken + simulation.feed.len() + simulation.dropped, lengths.len());
    }

    #[test]
    fn a_restored_window_promises_no_place_twice(
        restored in prop::collection::vec(0..3_i32, 0..6), released in 0..9_u64, max_staleness in 0..3_u32,
    ) {
        let earlier = Position { base: 0, released, groups_per_step: NonZeroU64::new(2).unwrap() };
        let mut window = Window::new(pace(max_staleness, 2), Some(earlier), 3);
        for (number, version) in restored.iter().enumerate() {
            window.restore(id(number), *version);
        }
        let mut next = 100;
        fill(&mut window, &mut next);
        for number in (0..restored.len()).chain(100..next) {
            window.ready(&id(number));
        }
        let mut seen = BTreeSet::new();
        while let Some(release) = window.take() {
            let (Release::Next(group) | Release::TooOld(group)) = &release;
            prop_assert!(seen.insert(group.clone()));
        }
    }
}
