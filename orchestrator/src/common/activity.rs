//! Long work that concerns more than one trial, such as the build of an image. It is logged, and a display can list it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::plain::plain;

/// The minimum time between two log lines about one activity.
const LOG_PAUSE: Duration = Duration::from_secs(5);
/// The longest status of an activity in bytes. Builders print lines of any length.
const LONGEST_STATUS: usize = 500;

/// The activities of a job. Clones share one list.
#[derive(Clone, Debug, Default)]
pub struct Activities(Arc<Mutex<List>>);

#[derive(Debug, Default)]
struct List {
    next: u64,
    running: BTreeMap<u64, ActivityView>,
    /// Announced activities that have ended since the last call of [`Activities::news`].
    ended: Vec<ActivityView>,
}

/// The state of one activity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ActivityView {
    /// The work and its object, such as `building the image of hello`.
    pub(crate) title: String,
    /// When it began.
    pub(crate) since: Instant,
    /// The last line of its output. Empty at first.
    pub(crate) status: String,
    is_announced: bool,
}

/// Something to report about activities where they cannot be redrawn.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ActivityNews {
    /// An activity takes a while.
    Runs(ActivityView),
    /// An activity that was announced has ended.
    Ended(ActivityView),
}

impl Activities {
    /// Begins an activity. It ends when the result is dropped.
    pub(crate) fn begin(&self, doing: &str, name: &str) -> Activity {
        let title = format!("{doing} {name}");
        tracing::info!("{title}");
        let now = Instant::now();
        let mut list = self.lock();
        let id = list.next;
        list.next += 1;
        let view =
            ActivityView { title: title.clone(), since: now, status: String::new(), is_announced: false };
        list.running.insert(id, view);
        drop(list);
        Activity { list: self.clone(), id, title, next_log: now + LOG_PAUSE }
    }

    /// Returns the running activities, the oldest first.
    pub(crate) fn running(&self) -> Vec<ActivityView> {
        self.lock().running.values().cloned().collect()
    }

    /// Returns the activities that have run for at least `patience` and were not returned before, and those of them
    /// that have ended.
    pub(crate) fn news(&self, now: Instant, patience: Duration) -> Vec<ActivityNews> {
        let mut list = self.lock();
        let mut news: Vec<_> = list.ended.drain(..).map(ActivityNews::Ended).collect();
        let is_new = |view: &&mut ActivityView| {
            !view.is_announced && now.saturating_duration_since(view.since) >= patience
        };
        for view in list.running.values_mut().filter(is_new) {
            view.is_announced = true;
            news.push(ActivityNews::Runs(view.clone()));
        }
        news
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running activity.
#[derive(Debug)]
pub struct Activity {
    list: Activities,
    id: u64,
    title: String,
    next_log: Instant,
}

impl Activity {
    /// Records a line of the activity's output. Some of the lines are logged.
    pub(crate) fn report(&mut self, line: &str) {
        let mut line = plain(line.lines().next().unwrap_or_default()).replace(char::is_control, " ");
        line.truncate(line.floor_char_boundary(LONGEST_STATUS));
        let now = Instant::now();
        if now >= self.next_log {
            self.next_log = now + LOG_PAUSE;
            tracing::info!("{}: {line}", self.title);
        }
        if let Some(view) = self.list.lock().running.get_mut(&self.id) {
            view.status = line;
        }
    }
}

impl Drop for Activity {
    fn drop(&mut self) {
        let mut list = self.list.lock();
        if let Some(view) = list.running.remove(&self.id).filter(|view| view.is_announced) {
            list.ended.push(view);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_takes_a_while_is_news_and_its_end_too() {
        let activities = Activities::default();
        let patience = Duration::from_secs(2);
        let short = activities.begin("pulling", "a");
        let mut long = activities.begin("building", "b");
        long.report("step \u{1b}[1m1\u{1b}[0m\nmore");
        let now = Instant::now();
        assert_eq!(activities.news(now, patience), []);
        drop(short);
        let later = now + patience;
        let news = activities.news(later, patience);
        let [ActivityNews::Runs(view)] = &news[..] else { panic!("{news:?}") };
        assert_eq!((view.title.as_str(), view.status.as_str()), ("building b", "step 1"));
        assert_eq!(activities.news(later, patience), [], "once");
        drop(long);
        assert!(activities.running().is_empty());
        let news = activities.news(later, patience);
        assert!(matches!(&news[..], [ActivityNews::Ended(view)] if view.title == "building b"), "{news:?}");
    }

    proptest::proptest! {
        #[test]
        fn any_output_becomes_a_short_line(text: String) {
            let activities = Activities::default();
            let mut activity = activities.begin("building", "x");
            activity.report(&text.repeat(40));
            let status = activities.running().remove(0).status;
            proptest::prop_assert!(status.len() <= LONGEST_STATUS && !status.contains(char::is_control));
        }
    }
}
