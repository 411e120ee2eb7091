//! Chooses the next trial: in the job's order, within the limits of job, agent and task. Retries wait until they are
//! due.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroUsize;

use rolltap_rollout::ids::GroupId;
use tokio::time::Instant;
use uuid::Uuid;

use super::stretch::Stretch;
use crate::trial::{TrialOutcome, TrialPlan};

/// A trial that starts now.
pub(crate) struct NextTrial {
    pub(crate) plan: TrialPlan,
    /// The outcome of the previous attempt. It counts until this attempt has begun.
    pub(crate) before: Option<Box<TrialOutcome>>,
}

/// Trials that have not begun.
struct Waiting {
    stretch: Stretch,
    /// The earliest start. `None` if the trials may start at once.
    due: Option<Instant>,
    /// The outcome of the previous attempt at the first trial of the stretch.
    before: Option<Box<TrialOutcome>>,
    /// Trials with a higher priority begin first.
    priority: i32,
}

impl Waiting {
    fn now(stretch: Stretch, priority: i32) -> Self {
        Self { stretch, due: None, before: None, priority }
    }
}

/// The trials of a job that have not begun, and the numbers of running trials per task and per pool.
pub(crate) struct Queue {
    job_id: Uuid,
    waiting: VecDeque<Waiting>,
    at_once: usize,
    per_task: Option<usize>,
    running: usize,
    of_task: HashMap<String, usize>,
    of_pool: HashMap<String, usize>,
}

impl Queue {
    pub(super) fn new(
        job_id: Uuid,
        waiting: impl IntoIterator<Item = Stretch>,
        at_once: NonZeroUsize,
        per_task: Option<NonZeroUsize>,
    ) -> Self {
        Self {
            job_id,
            waiting: waiting.into_iter().map(|stretch| Waiting::now(stretch, 0)).collect(),
            at_once: at_once.get(),
            per_task: per_task.map(NonZeroUsize::get),
            running: 0,
            of_task: HashMap::new(),
            of_pool: HashMap::new(),
        }
    }

    /// Takes the first trial that may start, if it is admitted. It counts as running until [`Self::ended`].
    pub(super) fn take(
        &mut self,
        now: Instant,
        is_admitted: impl FnOnce(&TrialPlan) -> bool,
    ) -> Option<NextTrial> {
        if self.running >= self.at_once {
            return None;
        }
        // A trial at its limit does not hold up the trials behind it.
        let at = self.waiting.iter().position(|waiting| self.may_start(waiting, now))?;
        // A trial that is not admitted holds up those behind it, because one that needs less room would come first forever.
        if !self.waiting.get(at).is_some_and(|waiting| is_admitted(&waiting.stretch.first)) {
            return None;
        }
        let Waiting { stretch, before, priority, .. } = self.waiting.remove(at)?;
        let (plan, left) = stretch.split(self.job_id);
        // The rest takes the same place, because the order of the job is that of its groups.
        if let Some(left) = left {
            self.waiting.insert(at, Waiting::now(left, priority));
        }
        self.running += 1;
        *self.of_task.entry(task(&plan)).or_default() += 1;
        *self.of_pool.entry(pool(&plan)).or_default() += 1;
        Some(NextTrial { plan, before })
    }

    fn may_start(&self, waiting: &Waiting, now: Instant) -> bool {
        let Waiting { stretch: Stretch { first: plan, .. }, due, .. } = waiting;
        let below = |limit: Option<usize>, running: Option<&usize>| {
            limit.is_none_or(|limit| running.is_none_or(|running| *running < limit))
        };
        let of_agent = plan.agent.limit.as_ref().map(|limit| limit.trials.get());
        due.is_none_or(|due| due <= now)
            && below(self.per_task, self.of_task.get(&task(plan)))
            && below(of_agent, self.of_pool.get(&pool(plan)))
    }

    pub(super) fn ended(&mut self, plan: &TrialPlan) {
        self.running = self.running.saturating_sub(1);
        for (counts, key) in [(&mut self.of_task, task(plan)), (&mut self.of_pool, pool(plan))] {
            if let Some(count) = counts.get_mut(&key) {
                *count = count.saturating_sub(1);
            }
        }
    }

    /// Queues another attempt before all others, because its group is the nearest to its end.
    pub(super) fn again(&mut self, plan: TrialPlan, due: Instant, before: TrialOutcome) {
        let (stretch, before) = (Stretch::one(plan), Some(Box::new(before)));
        self.waiting.push_front(Waiting { stretch, due: Some(due), before, priority: i32::MAX });
    }

    /// Queues trials behind those of the same priority.
    pub(super) fn push(&mut self, stretch: Stretch, priority: i32) {
        let at = self.waiting.iter().position(|waiting| waiting.priority < priority);
        self.waiting.insert(at.unwrap_or(self.waiting.len()), Waiting::now(stretch, priority));
    }

    /// Removes and returns the waiting trials of these groups, the untried samples behind each left out. A trial that
    /// waited for a retry has the outcome of the attempt before it.
    pub(super) fn remove(&mut self, is_of: impl Fn(&GroupId) -> bool) -> Vec<NextTrial> {
        let (removed, waiting) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|waiting| is_of(&waiting.stretch.first.group_id));
        self.waiting = waiting;
        let removed: VecDeque<Waiting> = removed;
        let trial = |Waiting { stretch, before, .. }| NextTrial { plan: stretch.first, before };
        removed.into_iter().map(trial).collect()
    }

    /// Returns when the next retry becomes due. A retry that is already due waits for a running trial to end instead.
    pub(super) fn next_due(&self, now: Instant) -> Option<Instant> {
        self.waiting.iter().filter_map(|waiting| waiting.due).filter(|due| *due > now).min()
    }

    /// Removes all waiting trials. Returns the outcomes of those that waited for a retry.
    pub(super) fn give_up(&mut self) -> impl Iterator<Item = TrialOutcome> {
        std::mem::take(&mut self.waiting)
            .into_iter()
            .filter_map(|waiting| waiting.before)
            .map(|before| *before)
    }
}

fn task(plan: &TrialPlan) -> String {
    plan.task.dir.to_string_lossy().into_owned()
}

/// Returns the pool whose limit an agent shares. Agents without a group have a pool each.
fn pool(plan: &TrialPlan) -> String {
    let group = plan.agent.limit.as_ref().and_then(|limit| limit.group.as_ref());
    group.map_or_else(|| format!("agent:{}", plan.agent.label()), |group| format!("group:{group}"))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::agents::AgentSpec;
    use crate::failure::TimeoutPolicy;
    use crate::job::RewardRules;
    use crate::job::plan::Planner;
    use crate::job::tasks::JobTask;
    use crate::task::Task;
    use crate::trial::TrialExtras;
    use crate::trial::{AgentLimit, JobAgent};

    fn number(value: usize) -> NonZeroUsize {
        NonZeroUsize::new(value).unwrap()
    }

    const JOB: Uuid = Uuid::from_u128(7);

    /// Returns both bundled tasks, two samples each by each of these agents.
    fn groups_of(agents: &[JobAgent]) -> Vec<Stretch> {
        stretches(agents, 2)
    }

    fn stretches(agents: &[JobAgent], samples: u32) -> Vec<Stretch> {
        let examples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/tasks");
        let tasks = ["count-errors", "hello-file"];
        let tasks = tasks.map(|name| JobTask::from(Task::load(&examples.join(name)).unwrap())).to_vec();
        let agents: Vec<_> = agents.iter().cloned().map(Arc::new).collect();
        let samples = NonZeroU32::new(samples).unwrap();
        let (timeouts, extras) = (TimeoutPolicy::default(), TrialExtras::default());
        let (job_id, job_name) = (JOB, "job");
        let reward_rules = &RewardRules::default();
        let planner = Planner {
            job_id,
            job_name,
            agents: &agents,
            samples,
            timeouts,
            extras: &extras,
            reward_rules,
            request: &Arc::default(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let groups = runtime.block_on(planner.plan(tasks)).unwrap();
        groups.into_iter().map(Stretch::group).collect()
    }

    fn agent(spec: AgentSpec, limit: Option<(usize, &str)>) -> JobAgent {
        let limit =
            limit.map(|(trials, group)| AgentLimit { trials: number(trials), group: Some(group.to_owned()) });
        JobAgent { limit, ..JobAgent::new(spec, None) }
    }

    fn all(queue: &mut Queue) -> Vec<TrialPlan> {
        std::iter::from_fn(|| queue.take(Instant::now(), |_| true)).map(|waiting| waiting.plan).collect()
    }

    fn groups(plans: &[TrialPlan]) -> Vec<String> {
        plans.iter().map(|plan| format!("{} {}", plan.group_id, plan.sample_index)).collect()
    }

    #[test]
    fn a_group_is_next_to_itself() {
        let groups_of_both = groups_of(&[agent(AgentSpec::Oracle, None), agent(AgentSpec::Nop, None)]);
        let mut queue = Queue::new(JOB, groups_of_both, number(3), None);
        let taken = all(&mut queue);
        assert_eq!(
            groups(&taken),
            [
                "job/oracle/rolltap/count-errors 0",
                "job/oracle/rolltap/count-errors 1",
                "job/nop/rolltap/count-errors 0"
            ]
        );
        queue.ended(taken.first().unwrap());
        assert_eq!(groups(&all(&mut queue)), ["job/nop/rolltap/count-errors 1"]);
    }

    #[test]
    fn a_group_has_the_same_size_here_however_many_samples_it_has() {
        let mut queue = Queue::new(JOB, stretches(&[agent(AgentSpec::Nop, None)], u32::MAX), number(3), None);
        assert_eq!(queue.waiting.len(), 2, "one per group");
        let names: std::collections::BTreeSet<_> =
            all(&mut queue).into_iter().map(|plan| plan.name).collect();
        assert_eq!((names.len(), queue.waiting.len()), (3, 2), "a trial is made when its turn comes");
    }

    #[test]
    fn a_full_pool_or_task_lets_others_pass() {
        let agents =
            [agent(AgentSpec::Oracle, Some((1, "shared"))), agent(AgentSpec::Nop, Some((1, "shared")))];
        let mut queue = Queue::new(JOB, groups_of(&agents), number(8), None);
        let taken = all(&mut queue);
        assert_eq!(taken.len(), 1, "agents of one group share its place");
        queue.ended(taken.first().unwrap());
        assert_eq!(all(&mut queue).len(), 1);
        let agents = [agent(AgentSpec::Oracle, None)];
        let mut queue = Queue::new(JOB, groups_of(&agents), number(8), Some(number(1)));
        assert_eq!(groups(&all(&mut queue)), ["job/rolltap/count-errors 0", "job/rolltap/hello-file 0"]);
    }

    #[test]
    fn a_trial_that_is_not_admitted_keeps_its_place() {
        let mut queue = Queue::new(JOB, groups_of(&[agent(AgentSpec::Nop, None)]), number(3), None);
        let mut asked = Vec::new();
        let mut take = |is_admitted| {
            queue.take(Instant::now(), |plan| {
                asked.push(plan.name.clone());
                is_admitted
            })
        };
        assert!(take(false).is_none());
        let taken = take(true).unwrap().plan.name;
        assert_eq!(asked, [taken.clone(), taken]);
    }

    #[test]
    fn a_retry_waits_for_its_time_and_then_comes_first() {
        let mut queue = Queue::new(JOB, groups_of(&[agent(AgentSpec::Nop, None)]), number(1), None);
        let now = Instant::now();
        let failed = queue.take(now, |_| true).unwrap().plan;
        queue.ended(&failed);
        let due = now + Duration::from_secs(60);
        queue.again(failed.clone(), due, TrialOutcome::new(&failed));
        assert_eq!(queue.next_due(now), Some(due));
        let other = queue.take(now, |_| true).unwrap().plan;
        assert_ne!(other.name, failed.name);
        assert!(queue.take(due, |_| true).is_none(), "there is no place");
        assert_eq!(queue.next_due(due), None);
        queue.ended(&other);
        let taken = queue.take(due, |_| true).unwrap();
        assert_eq!((taken.plan.name, taken.before.is_some()), (failed.name, true));
    }
}
