//! The weights that sample. A version is an ordinal of rolltap, with the label of the trainer or of vLLM. A gate holds
//! new calls back while weights are updated.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rolltap_cluster::ClusterError;
use rolltap_cluster::versions::{NamedBy, VersionNumbers};
use tokio::sync::watch;

use crate::common::clock;
use crate::store::{Durable, Event, Pause, PolicyChange, QueueSlot};

/// The labels so far, the current version, and whether calls are held back.
#[derive(Debug)]
pub(crate) struct Policy {
    /// Numbers the versions of all shards. `None` without a cluster of several shards.
    numbers: Option<VersionNumbers>,
    /// Whether pauses outlive this process, because another node takes its shard over.
    is_of_shard: bool,
    state: Mutex<PolicyState>,
    /// The current pause. `None` if calls may go upstream.
    paused: watch::Sender<Option<Pause>>,
    /// The ordinal of the current version.
    version: watch::Sender<i32>,
}

/// The number that all shards of a cluster give to a label.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedNumber(usize);

#[derive(Debug)]
struct PolicyState {
    /// By version. The first version has no label until the weights at the start get a name.
    labels: Vec<Option<String>>,
    current: usize,
    /// Whether the trainer set the current version. Otherwise a replica reported it.
    is_set: bool,
}

/// A version and its label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) ordinal: i32,
    pub(crate) label: Option<String>,
}

/// The kind of a replica's report about its weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReportedWeights {
    /// The first report of the replica.
    First,
    /// The replica reported another label before.
    Changed,
}

impl Policy {
    /// Restores the state from the changes in the store.
    pub(crate) fn restored(changes: &[PolicyChange]) -> Self {
        let mut state = PolicyState { labels: vec![None], current: 0, is_set: false };
        for change in changes {
            state.current = usize::try_from(change.version).unwrap_or_default();
            if state.current >= state.labels.len() {
                state.labels.resize(state.current + 1, None);
            }
            if let Some(label) = state.labels.get_mut(state.current) {
                *label = Some(change.label.clone());
            }
            state.is_set = change.is_set;
        }
        let version = watch::Sender::new(ordinal(state.current));
        let paused = watch::Sender::new(None);
        Self { numbers: None, is_of_shard: false, state: Mutex::new(state), paused, version }
    }

    /// Makes this the policy of a shard. `pause` is that of the previous holder.
    pub(crate) fn of_shard(self, numbers: Option<VersionNumbers>, pause: Option<Pause>) -> Self {
        if let Some(Pause { began_at, .. }) = pause {
            tracing::warn!(
                %began_at,
                "calls are held, because the previous holder was paused; POST /v1/policy/resume ends the pause"
            );
        }
        Self { numbers, is_of_shard: true, paused: watch::Sender::new(pause), ..self }
    }

    /// Whether this is the policy of a shard, whose pauses outlive this process.
    pub(crate) fn is_of_shard(&self) -> bool {
        self.is_of_shard
    }

    /// Returns the number of a label in the cluster, for [`Self::set`] or [`Self::learn`]. `None` without a cluster of several
    /// shards: the policy then numbers the label itself.
    pub(crate) async fn number(
        &self,
        label: &str,
        by: NamedBy,
    ) -> Result<Option<SharedNumber>, ClusterError> {
        let Some(numbers) = &self.numbers else { return Ok(None) };
        numbers.number(label, by).await.map(|number| Some(SharedNumber(number)))
    }

    /// Whether a report is only the baseline of later changes: the first one of a replica after the trainer has set a
    /// version.
    pub(crate) fn is_baseline(&self, told: ReportedWeights) -> bool {
        told == ReportedWeights::First && self.lock().is_set
    }

    /// Returns the current version.
    pub(crate) fn current(&self) -> Version {
        let state = self.lock();
        state.version(state.current)
    }

    /// Sets the version of all replicas, on the trainer's request. `publish` runs under the lock, before any other
    /// change.
    pub(crate) fn set(
        &self,
        label: &str,
        number: Option<SharedNumber>,
        place: QueueSlot,
        publish: impl FnOnce(i32),
    ) -> (Version, Durable) {
        let mut state = self.lock();
        state.current = state.find_or_add(label, number);
        state.is_set = true;
        // Handed over under the lock, so that the store has the changes in their order.
        let kept = place.append(state.change());
        let version = state.version(state.current);
        self.version.send_replace(version.ordinal);
        publish(version.ordinal);
        (version, kept)
    }

    /// Applies a replica's report, and returns the version that the replica has. Returns `None` for the first report of
    /// a replica after the trainer has set a version: that report is only the baseline of later changes.
    pub(crate) fn learn(
        &self,
        label: &str,
        number: Option<SharedNumber>,
        told: ReportedWeights,
        place: QueueSlot,
    ) -> Option<i32> {
        let mut state = self.lock();
        if told == ReportedWeights::First && state.is_set {
            return None;
        }
        let before = state.current;
        // The first label names the weights at the start, instead of adding a version.
        let is_nameless = matches!(state.labels.as_slice(), [None]);
        let number = number.or(is_nameless.then_some(SharedNumber(0)));
        state.current = state.find_or_add(label, number);
        if is_nameless || state.is_set || state.current != before {
            // From now on the reports of replicas count, even if the trainer set the version before.
            state.is_set = false;
            drop(place.append(state.change()));
        }
        let version = ordinal(state.current);
        self.version.send_if_modified(|known| std::mem::replace(known, version) != version);
        Some(version)
    }

    /// Returns the ordinal of the current version, and follows its changes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<i32> {
        self.version.subscribe()
    }

    /// Returns the labels of those versions that have a label.
    pub(crate) fn labels_of(&self, versions: impl IntoIterator<Item = i32>) -> BTreeMap<i32, String> {
        let state = self.lock();
        let label = |version: i32| state.labels.get(usize::try_from(version).ok()?)?.clone();
        versions.into_iter().filter_map(|version| Some((version, label(version)?))).collect()
    }

    /// Returns every version with its label.
    pub(crate) fn versions(&self) -> Vec<Version> {
        let state = self.lock();
        (0..state.labels.len()).map(|index| state.version(index)).collect()
    }

    /// Begins a pause, in which new calls are held back. Returns the pause, or the one that has already begun.
    pub(crate) fn pause(&self) -> Pause {
        let mut pause = Pause { began_at: clock::now(), ended_at: None };
        self.paused.send_modify(|paused| pause = *paused.get_or_insert(pause));
        pause
    }

    /// The current pause. `None` if calls may go upstream.
    pub(crate) fn current_pause(&self) -> Option<Pause> {
        *self.paused.borrow()
    }

    /// Ends the pause, if there is one.
    pub(crate) fn resume(&self) {
        self.paused.send_replace(None);
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused.borrow().is_some()
    }

    /// Resolves once calls may go upstream.
    pub(crate) async fn resumed(&self) {
        // The wait cannot fail: `self` holds the sender.
        let _ = self.paused.subscribe().wait_for(Option::is_none).await;
    }

    fn lock(&self) -> MutexGuard<'_, PolicyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PolicyState {
    /// Returns the version of a known label, or adds a version for a new label. `number` is the version that the label must have.
    fn find_or_add(&mut self, label: &str, number: Option<SharedNumber>) -> usize {
        if let Some(SharedNumber(number)) = number {
            // Versions in between were named while this shard had no holder.
            let length = self.labels.len().max(number.saturating_add(1));
            self.labels.resize(length, None);
            if let Some(place) = self.labels.get_mut(number) {
                *place = Some(label.to_owned());
            }
            return number;
        }
        let known = self.labels.iter().position(|known| known.as_deref() == Some(label));
        known.unwrap_or_else(|| {
            self.labels.push(Some(label.to_owned()));
            self.labels.len() - 1
        })
    }

    fn version(&self, index: usize) -> Version {
        Version { ordinal: ordinal(index), label: self.labels.get(index).cloned().flatten() }
    }

    /// Returns the current version as an event for the store.
    fn change(&self) -> Event {
        let Version { ordinal, label } = self.version(self.current);
        let label = label.unwrap_or_default();
        Event::Policy(PolicyChange { version: ordinal, label, is_set: self.is_set, at: clock::now() })
    }
}

fn ordinal(index: usize) -> i32 {
    i32::try_from(index).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{OpenedStore, Store, StoreSettings};

    struct Scene {
        policy: Policy,
        store: Store,
        _data: tempfile::TempDir,
    }

    impl Scene {
        fn new() -> Self {
            let data = tempfile::tempdir().unwrap();
            let OpenedStore { store, .. } = Store::open(data.path(), StoreSettings::default()).unwrap();
            Self { policy: Policy::restored(&[]), store, _data: data }
        }

        async fn set(&self, label: &str) -> i32 {
            let place = self.store.reserve().await.unwrap();
            self.policy.set(label, None, place, |_| ()).0.ordinal
        }

        async fn learn(&self, label: &str, told: ReportedWeights) -> Option<i32> {
            self.policy.learn(label, None, told, self.store.reserve().await.unwrap())
        }
    }

    #[tokio::test]
    async fn each_new_label_is_the_next_version_and_a_known_one_is_what_it_was() {
        let scene = Scene::new();
        assert_eq!(scene.policy.current(), Version { ordinal: 0, label: None });
        assert_eq!(scene.set("a").await, 1);
        assert_eq!(scene.set("b").await, 2);
        assert_eq!(scene.set("b").await, 2);
        assert_eq!(scene.set("a").await, 1);
        assert_eq!(scene.policy.labels_of([0, 1, 2, 3]), [(1, "a".into()), (2, "b".into())].into());
    }

    #[tokio::test]
    async fn what_a_replica_says_first_names_the_version_that_is_there() {
        let scene = Scene::new();
        assert_eq!(scene.learn("default", ReportedWeights::First).await, Some(0));
        assert_eq!(scene.policy.current().label.as_deref(), Some("default"));
        assert_eq!(scene.learn("next", ReportedWeights::Changed).await, Some(1));
        // Another replica has not loaded the next weights yet.
        assert_eq!(scene.learn("default", ReportedWeights::First).await, Some(0));
    }

    #[tokio::test]
    async fn the_trainers_word_holds_until_a_replica_says_something_new() {
        let scene = Scene::new();
        assert_eq!(scene.set("step-1").await, 1);
        assert_eq!(scene.learn("default", ReportedWeights::First).await, None);
        assert_eq!(scene.policy.current().ordinal, 1);
        assert_eq!(scene.learn("step-2", ReportedWeights::Changed).await, Some(2));
        assert_eq!(scene.policy.current().ordinal, 2);
    }

    #[tokio::test]
    async fn the_number_of_the_cluster_holds_where_a_shard_has_missed_versions() {
        let scene = Scene::new();
        let place = async || scene.store.reserve().await.unwrap();
        let number = |number| Some(SharedNumber(number));
        let learnt = scene.policy.learn("c", number(2), ReportedWeights::First, place().await);
        assert_eq!(learnt, Some(2));
        assert_eq!(scene.policy.set("b", number(1), place().await, |_| ()).0.ordinal, 1);
        let labels: Vec<_> = scene.policy.versions().into_iter().map(|version| version.label).collect();
        assert_eq!(labels, [None, Some("b".to_owned()), Some("c".to_owned())]);
        assert_eq!(scene.policy.current().ordinal, 1);
    }

    #[test]
    fn changes_are_restored() {
        let change = |version, label: &str, is_set| PolicyChange {
            version,
            label: label.to_owned(),
            is_set,
            at: clock::now(),
        };
        let policy = Policy::restored(&[change(0, "default", false), change(1, "a", true)]);
        assert_eq!(policy.current(), Version { ordinal: 1, label: Some("a".to_owned()) });
        assert_eq!(policy.versions().len(), 2);
        assert!(policy.lock().is_set && !policy.is_paused());
    }

    #[test]
    fn a_shard_is_paused_as_its_previous_holder_was() {
        let pause = Policy::restored(&[]).pause();
        let policy = Policy::restored(&[]).of_shard(None, Some(pause));
        assert_eq!((policy.pause(), policy.current_pause()), (pause, Some(pause)));
        policy.resume();
        assert!(!policy.is_paused());
        assert!(!Policy::restored(&[]).of_shard(None, None).is_paused());
    }
}
