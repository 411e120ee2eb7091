//! For any events in any order, no reader misses a trial, and a restart changes nothing.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Open {
        group: Option<u8>,
        sample: u32,
        attempt: u32,
        patience: [Option<u8>; 2],
    },
    Seal(prop::sample::Index),
    Reward(prop::sample::Index),
    Close(u8),
    Wait(u8),
    /// Each reader reads up to this number of lines.
    Read(u8),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let patience = || prop::option::weighted(0.3, 1..20_u8);
    let open = (prop::option::weighted(0.8, 0..3_u8), 0..4_u32, 0..3_u32, patience(), patience());
    let open = open.prop_map(|(group, sample, attempt, reward, group_deadline)| Step::Open {
        group,
        sample,
        attempt,
        patience: [reward, group_deadline.filter(|_| group.is_some())],
    });
    prop_oneof![
        4 => open,
        4 => any::<prop::sample::Index>().prop_map(Step::Seal),
        4 => any::<prop::sample::Index>().prop_map(Step::Reward),
        1 => (0..3_u8).prop_map(Step::Close),
        2 => (0..12_u8).prop_map(Step::Wait),
        3 => (0..4_u8).prop_map(Step::Read),
        1 => Just(Step::Restart),
    ]
}

/// A reader that stores its cursor, and the trials that it has read.
struct Reader {
    cursor: Cursor,
    read: Vec<TrialId>,
}

impl Reader {
    fn new(closed_groups: bool) -> Self {
        Self { cursor: Cursor::begin(closed_groups), read: Vec::new() }
    }

    fn read(&mut self, ledger: &Ledger, limit: usize) {
        for _ in 0..limit {
            let Some(next) = ledger.next(self.cursor, true) else { return };
            // The cursor makes a round trip through its text form.
            let closed_groups = matches!(self.cursor, Cursor::Releases(_));
            self.cursor = Cursor::read(&next.cursor.to_string(), closed_groups, ledger.last()).unwrap();
            self.read.push(next.trial);
        }
    }
}

impl Scene {
    fn step(&mut self, step: &Step, number: usize, readers: &mut [Reader]) {
        let some = |index: &prop::sample::Index| {
            let trial = (!self.kept.is_empty()).then(|| index.get(&self.kept))?;
            Some(trial.opened.facts.trial_id.clone())
        };
        match step {
            Step::Open { group, sample, attempt, patience } => {
                let name = group.map(|group| format!("g{group}"));
                let mut opened = trial(&format!("t{number}"), (name.as_deref(), *sample, *attempt));
                // A third of the groups have no size. The trials of one group agree on the size.
                opened.facts.group_size = group.map(u32::from).filter(|&group| group > 0);
                let [reward, group] = patience.map(|patience| patience.and_then(|s| seconds(s.into())));
                (opened.reward_deadline, opened.group_deadline) = (reward, group);
                // The ledger rejects some trials: their place is taken, or their group is closed.
                let _ = self.open(opened);
            }
            Step::Seal(index) => some(index).iter().for_each(|trial| self.seal(trial)),
            Step::Reward(index) => some(index).iter().for_each(|trial| self.reward(trial)),
            Step::Close(name) => {
                self.ledger.close(&group(&format!("g{name}")), ClosingCause::Call);
            }
            Step::Wait(seconds) => self.now += i64::from(*seconds),
            Step::Read(limit) => {
                readers.iter_mut().for_each(|reader| reader.read(&self.ledger, (*limit).into()))
            }
            Step::Restart => self.ledger = self.retold(),
        }
    }
}

proptest! {
    #[test]
    fn readers_miss_nothing_and_a_restart_changes_nothing(steps in prop::collection::vec(step(), 0..60)) {
        let mut scene = Scene::default();
        let mut readers = [Reader::new(false), Reader::new(true)];
        for (number, step) in steps.iter().enumerate() {
            scene.step(step, number, &mut readers);
            // The clerk runs after two of three steps, so some events precede it and others follow it.
            if number % 3 > 0 {
                scene.settle();
                prop_assert_eq!(&scene.retold(), &scene.ledger);
            }
        }
        scene.settle();
        let told: BTreeMap<_, _> = scene.kept.iter().map(|told| (&told.opened.facts.trial_id, told)).collect();
        for (trial, told) in &told {
            let is_complete = told.sealed_at.is_some() && told.is_rewarded;
            prop_assert_eq!(told.completion.is_some(), is_complete, "{}", trial);
        }
        let [in_order, by_group] = &mut readers;
        for reader in [&mut *in_order, &mut *by_group] {
            reader.read(&scene.ledger, usize::MAX);
        }

        let mut expected: Vec<_> = told.values().filter(|told| told.completion.is_some()).collect();
        expected.sort_by_key(|told| told.completion.unwrap().sequence);
        let expected: Vec<_> = expected.iter().map(|told| told.opened.facts.trial_id.clone()).collect();
        prop_assert_eq!(&in_order.read, &expected, "each once, in order of completion");

        let closed = |told: &StoredTrial| {
            let group = told.opened.facts.group_id.as_ref()?;
            scene.closed_groups.iter().find(|closed| closed.group_id == *group).map(|closed| closed.sequence)
        };
        let released = |told: &StoredTrial| {
            let completed = told.completion?.sequence;
            let of_no_group = told.opened.facts.group_id.is_none();
            let released = if of_no_group { completed } else { closed(told)?.max(completed) };
            Some((released, completed))
        };
        let mut expected: Vec<_> = told.iter().filter_map(|(trial, told)| Some((released(told)?, *trial))).collect();
        expected.sort();
        let expected: Vec<_> = expected.into_iter().map(|(_, trial)| trial.clone()).collect();
        prop_assert_eq!(&by_group.read, &expected, "each once, in order of release");
    }

    #[test]
    fn numbers_are_given_once_and_only_grow(steps in prop::collection::vec(step(), 0..60)) {
        let mut scene = Scene::default();
        for (number, step) in steps.iter().enumerate() {
            scene.step(step, number, &mut []);
            scene.settle();
            prop_assert_eq!(scene.ledger.last(), scene.given);
        }
        let completions = scene.kept.iter().filter_map(|told| Some(told.completion?.sequence));
        let closings = scene.closed_groups.iter().map(|closed| closed.sequence);
        let mut numbers: Vec<_> = completions.chain(closings).collect();
        numbers.sort_unstable();
        prop_assert!(numbers.into_iter().eq(1..=scene.given));
        let groups = scene.closed_groups.iter().map(|closed| &closed.group_id);
        prop_assert_eq!(groups.collect::<std::collections::BTreeSet<_>>().len(), scene.closed_groups.len());
    }
}
