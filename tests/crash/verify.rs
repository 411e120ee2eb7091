//! Compares the state of a trial at a restarted proxy with the earlier answers to its agent and its runner.

use std::collections::BTreeSet;

use futures_util::{StreamExt, stream};
use rolltap_rollout::call::{Call, CallStatus};
use serde_json::Value;

use super::ledger::{Book, Page, Reward, State};
use super::rng::Chance;
use super::shared_state::World;
use super::tokens;
use super::upstream::Sent;

/// The number of settled trials to verify again.
const AGAIN: usize = 20;

/// The number of trials that are verified at the same time.
const AT_ONCE: usize = 8;

/// The broken promises about one trial, or about several.
pub(crate) struct Verdict {
    pub(crate) breaches: Vec<String>,
    /// The number of calls in the captures that are not complete.
    pub(crate) partial: usize,
    /// The number of complete calls whose end no agent saw.
    pub(crate) unseen: usize,
}

/// Verifies a trial while it gets no calls. `admin` is the URL of the admin plane.
pub(crate) async fn trial(world: &World, admin: &str, book: &Book) -> Verdict {
    let url = format!("{admin}/v1/trials/{}", book.page().trial_id);
    let get = async |what: &str| {
        let answer = world.http.get(format!("{url}{what}")).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let (status, calls, rollout) = (get("").await, get("/calls").await, get("/rollout").await);
    let mut page = book.page();
    let mut verdict = Verdict { breaches: Vec::new(), partial: 0, unseen: 0 };
    if status.0 == 404 && page.state == State::Asked {
        page.is_settled = true;
        return verdict;
    }
    if status.0 != 200 || calls.0 != 200 {
        verdict.breach(&page, format!("it is gone: {}", status.1));
        return verdict;
    }
    let status: Value = serde_json::from_str(&status.1).unwrap();
    verdict.life(&page, &status);
    let read: Vec<Call> = calls.1.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let whole = read.iter().filter(|call| call.status == CallStatus::Complete).count();
    verdict.partial = read.len() - whole;
    verdict.unseen = whole.saturating_sub(page.seen.len());
    if !page.is_settled {
        let asked = world.upstream.asked(page.number);
        verdict.calls(&page, &read, asked.requests, |answer| asked.answers.get(&answer));
    }
    if page.state == State::Sealed {
        if !Book::is_as_ever(&mut page.calls, calls.1) {
            verdict.breach(&page, "its calls changed after it was sealed".to_owned());
        }
        if let Reward::Kept(_) = page.reward {
            if !Book::is_as_ever(&mut page.rollout, rollout.1) {
                verdict.breach(&page, "its rollout changed after it was rewarded".to_owned());
            }
            page.is_settled = true;
        }
    }
    verdict
}

/// Verifies the trials that are not settled, and of the settled ones all or some, chosen at random.
pub(crate) async fn trials(world: &World, admin: &str, chance: &mut Chance, every_trial: bool) -> Verdict {
    let (settled, live): (Vec<_>, Vec<_>) =
        world.books().into_iter().partition(|book| book.page().is_settled);
    let few =
        |chance: &mut Chance| settled.get(chance.among(0..settled.len().max(1) as u64) as usize).cloned();
    let again: Vec<Book> = match every_trial {
        true => settled.clone(),
        false => (0..AGAIN).filter_map(|_| few(chance)).collect(),
    };
    let mut all = Verdict { breaches: world.complaints(), partial: 0, unseen: 0 };
    let verified = live.iter().chain(&again).map(async |book: &Book| {
        let verdict = trial(world, admin, book).await;
        let page = book.page();
        if page.is_settled {
            world.upstream.forget(page.number);
        }
        verdict
    });
    let mut verdicts = stream::iter(verified).buffer_unordered(AT_ONCE);
    while let Some(verdict) = verdicts.next().await {
        all.breaches.extend(verdict.breaches);
        all.partial += verdict.partial;
        all.unseen += verdict.unseen;
    }
    all
}

impl Verdict {
    fn breach(&mut self, page: &Page, what: String) {
        self.breaches.push(format!("{}: {what}", page.trial_id));
    }

    /// Checks that the trial is sealed and rewarded as acknowledged.
    fn life(&mut self, page: &Page, status: &Value) {
        let is_sealed = status["state"] == "sealed";
        let may_be = match page.state {
            State::Asked | State::Open => !is_sealed,
            State::Sealing => true,
            State::Sealed => is_sealed,
        };
        if !may_be {
            self.breach(page, format!("it is {}, and {:?} was acknowledged", status["state"], page.state));
        }
        let reward = status["reward"].as_f64();
        let may_be = match page.reward {
            Reward::None => reward.is_none(),
            Reward::Sent(number) => reward.is_none_or(|kept| kept == number),
            Reward::Kept(number) => reward == Some(number),
        };
        if !may_be {
            self.breach(page, format!("its reward is {reward:?}, and {:?} was acknowledged", page.reward));
        }
    }

    /// Checks that every seen answer is recorded once, complete and exact. Every other answer must have been sampled
    /// for this trial.
    fn calls<'a>(
        &mut self,
        page: &Page,
        calls: &[Call],
        requests: u64,
        sent: impl Fn(u32) -> Option<&'a Sent>,
    ) {
        let mut whole = BTreeSet::new();
        let (mut names, mut answers) = (BTreeSet::new(), BTreeSet::new());
        for call in calls {
            if !names.insert(call.call_id.to_string()) {
                self.breach(page, format!("call {} is there twice", call.call_id));
            }
            match self.call(page, call, &sent) {
                None => {}
                Some(answer) if !answers.insert(answer) => {
                    self.breach(page, format!("answer {answer} is there twice"));
                }
                Some(answer) if call.status == CallStatus::Complete => {
                    whole.insert(answer);
                }
                Some(_) => {}
            }
        }
        for answer in page.seen.difference(&whole) {
            self.breach(page, format!("answer {answer}, whose end its agent saw, is not there"));
        }
        let count = calls.len() as u64;
        if count > page.asked {
            self.breach(page, format!("{count} calls are there, and {} were made", page.asked));
        }
        if count < requests {
            self.breach(page, format!("upstream got {requests} calls, and {count} are there"));
        }
    }

    /// Returns the answer that a call records, or `None` if the call has no token of an answer.
    fn call<'a>(&mut self, page: &Page, call: &Call, sent: impl Fn(u32) -> Option<&'a Sent>) -> Option<u32> {
        let mut wrong = |what: &str| self.breach(page, format!("call {}: {what}", call.call_id));
        if call.trial_id.to_string() != page.trial_id {
            wrong("it is of another trial");
        }
        let prompt: Vec<u32> = call.prompt_token_ids.iter().map(|&id| id.into()).collect();
        if !prompt.is_empty() && tokens::trial_in(&prompt) != Some(page.number) {
            wrong("its prompt is of another trial");
        }
        let is_whole = call.status == CallStatus::Complete;
        let choice = call.choices.first();
        let ids: Vec<u32> = choice.iter().flat_map(|choice| &choice.token_ids).map(|&id| id.into()).collect();
        let Some(&first) = ids.first() else {
            if is_whole {
                wrong("it is complete without tokens");
            }
            return None;
        };
        let answer = tokens::answer_at(first);
        let Some(sent) = answer.and_then(sent) else {
            wrong("its tokens were sampled for another trial");
            return answer;
        };
        let logprobs: Vec<_> =
            choice.iter().flat_map(|choice| &choice.logprobs).map(|one| one.map(|one| one.get())).collect();
        let expected: Vec<_> = sent.logprobs.iter().map(|&one| Some(one)).collect();
        if prompt != sent.prompt || !sent.ids.starts_with(&ids) || !expected.starts_with(&logprobs) {
            wrong("its tokens or logprobs are not what upstream sent");
        }
        if is_whole && (ids.len(), logprobs.len()) != (sent.ids.len(), sent.ids.len()) {
            wrong("it is complete, and tokens are missing");
        }
        answer
    }
}
