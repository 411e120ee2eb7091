//! Trials that are opened, sealed and rewarded as by a runner. Each seal is compared with the
//! answers that the agent got.

use std::net::SocketAddr;
use std::sync::Mutex;

use serde_json::{Value, json};

/// The admin plane, with the counts of all trials that ended.
pub(crate) struct Trials {
    http: reqwest::Client,
    admin: SocketAddr,
    ended: Mutex<Ended>,
}

/// An open trial.
pub(crate) struct Trial {
    id: String,
    pub(crate) path: String,
    /// The number of complete answers that its agent got.
    pub(crate) answered: u64,
}

/// The counts of the trials that ended.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    /// The names and the numbers of answers.
    trials: Vec<(String, u64)>,
    pub(crate) answered: u64,
    pub(crate) recorded: u64,
    /// The answers that have no record, with the name of a trial that lacks one.
    pub(crate) missing: u64,
    pub(crate) first_missing: Option<String>,
}

impl Ended {
    pub(crate) fn trials(&self) -> usize {
        self.trials.len()
    }

    fn compare(&mut self, trial: &str, answered: u64, complete: u64) {
        let missing = answered.saturating_sub(complete);
        self.missing += missing;
        if missing > 0 {
            let problem = format!("{trial}: {answered} answers, {complete} complete records");
            self.first_missing.get_or_insert(problem);
        }
    }
}

impl Trials {
    pub(crate) fn new(admin: SocketAddr) -> Self {
        Self { http: rolltap_testing::http_client(), admin, ended: Mutex::default() }
    }

    pub(crate) async fn open(&self) -> Trial {
        let url = format!("http://{}/v1/trials", self.admin);
        let opened = self.answer(self.http.post(url).json(&json!({"task_id": "soak"}))).await;
        let opened: Value = serde_json::from_str(&opened).unwrap();
        let path = format!("/t/{}{}", opened["key"].as_str().unwrap(), crate::gate::PATH);
        Trial { id: opened["trial_id"].as_str().unwrap().to_owned(), path, answered: 0 }
    }

    /// Seals and rewards a trial.
    pub(crate) async fn end(&self, trial: Trial) {
        let url = format!("http://{}/v1/trials/{}", self.admin, trial.id);
        let sealed = self.answer(self.http.post(format!("{url}/seal"))).await;
        let reward = json!({"rewards": {"reward": 1.0}});
        self.answer(self.http.put(format!("{url}/reward")).json(&reward)).await;
        let sealed: Value = serde_json::from_str(&sealed).unwrap();
        let complete = sealed["calls"]["complete"].as_u64().unwrap();
        let mut ended = self.ended.lock().unwrap();
        ended.answered += trial.answered;
        ended.recorded += sealed["calls"]["total"].as_u64().unwrap();
        ended.compare(&trial.id, trial.answered, complete);
        ended.trials.push((trial.id, trial.answered));
    }

    /// Reads the records of up to `most` of the ended trials from the store, evenly spread, and compares their number
    /// with the answers. Returns the number of these trials.
    pub(crate) async fn read_back(&self, most: usize) -> usize {
        let all = self.ended.lock().unwrap().trials.clone();
        let some: Vec<_> = all.iter().step_by(all.len().div_ceil(most).max(1)).collect();
        for (trial, answered) in &some {
            let url = format!("http://{}/v1/trials/{trial}/calls", self.admin);
            let calls = self.answer(self.http.get(url)).await;
            let calls = calls.lines().map(|call| serde_json::from_str::<Value>(call).unwrap());
            let complete = calls.filter(|call| call["status"] == "complete").count() as u64;
            self.ended.lock().unwrap().compare(trial, *answered, complete);
        }
        some.len()
    }

    pub(crate) fn ended<T>(&self, read: impl FnOnce(&Ended) -> T) -> T {
        read(&self.ended.lock().unwrap())
    }

    async fn answer(&self, request: reqwest::RequestBuilder) -> String {
        let answer = request.send().await.unwrap();
        let status = answer.status();
        let body = answer.text().await.unwrap();
        assert!(status.is_success(), "{status}: {body}");
        body
    }
}
