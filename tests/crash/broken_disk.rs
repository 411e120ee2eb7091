//! A disk that is full or fails, and then works again. Meanwhile new calls are rejected with a reason, and running
//! streams end or break off. Acknowledged records survive, and no restart is needed.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use reqwest::Method;
use rolltap_proxy::store::{Archive, CallNoteKind};
use rolltap_rollout::ids::TrialId;
use rolltap_testing::{eventually, limit};
use serde_json::{Value, json};

use super::harness::{Refused, Stage, Trial};
use super::shim::{Fault, Shim};
use super::small_disk::SmallDisk;
use super::upstream::HOLD;

#[tokio::test]
async fn a_full_disk_refuses_new_calls_until_there_is_space_again() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(&dir.path().join("disk"), 8) else { return };
    let stage = Stage::set(dir.path(), |launch| {
        launch.data = disk.within.join("data");
        launch.seen_data = disk.outside.join("data");
        launch.entry = disk.entry();
    });
    goes_wrong_and_well_again(stage.await, || disk.fill(), || disk.free()).await;
}

#[tokio::test]
async fn a_full_disk_that_also_holds_the_log_refuses_new_calls_until_there_is_space_again() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(&dir.path().join("disk"), 8) else { return };
    let stage = Stage::set(dir.path(), |launch| {
        launch.data = disk.within.join("data");
        launch.seen_data = disk.outside.join("data");
        launch.log = disk.outside.join("proxy.log");
        launch.entry = disk.entry();
    });
    let stage = goes_wrong_and_well_again(stage.await, || disk.fill(), || disk.free()).await;
    assert_eq!(stage.proxy.stop().await, Some(0));
}

#[tokio::test]
async fn a_disk_that_cannot_be_written_refuses_new_calls_until_it_can() {
    fails_and_works_again(Fault::WriteError).await;
}

#[tokio::test]
async fn what_is_half_written_is_taken_back() {
    fails_and_works_again(Fault::HalfWrite).await;
}

#[tokio::test]
async fn captures_that_cannot_be_made_durable_refuse_new_calls_until_they_can() {
    fails_and_works_again(Fault::SyncError).await;
}

#[tokio::test]
async fn writes_that_take_a_few_bytes_at_a_time_are_no_fault() {
    let dir = tempfile::tempdir().unwrap();
    let shim = Shim::compile(dir.path());
    let mut stage = Stage::set(dir.path(), |launch| launch.variables = shim.variables()).await;
    shim.fails(Fault::ShortWrite);
    let trial = stage.open().await.unwrap();
    for _ in 0..20 {
        stage.call(&trial, 50).await.unwrap();
    }
    stage.assert_nothing_is_lost().await;
}

#[tokio::test]
async fn a_slow_disk_slows_calls_and_refuses_none() {
    let dir = tempfile::tempdir().unwrap();
    let shim = Shim::compile(dir.path());
    let mut stage = Stage::set(dir.path(), |launch| launch.variables = shim.variables()).await;
    shim.fails(Fault::SlowWrite);
    let trial = stage.open().await.unwrap();
    let calls = join_all((0..200).map(|_| stage.call(&trial, 50))).await;
    assert!(calls.iter().all(Result::is_ok), "{calls:?}");
    stage.assert_nothing_is_lost().await;
}

#[tokio::test]
async fn a_marked_retry_gets_the_answer_whose_agent_left_while_the_disk_failed_and_no_second_one_does() {
    let dir = tempfile::tempdir().unwrap();
    let shim = Shim::compile(dir.path());
    let stage = Stage::set(dir.path(), |launch| launch.variables = shim.variables()).await;
    let trial = stage.open().await.unwrap();
    let answer = stage.ask(&trial, true, HOLD, Some(0)).await.unwrap();
    until_upstream_works(&stage, &trial, 1).await;
    shim.fails(Fault::WriteError);
    stage.world.upstream.let_go();
    eventually("the answer is whole and waits", async || stage.calls(&trial, "in_flight").await == 0).await;
    eventually("the store tries again and again", async || stage.ready().await.0 != 200).await;
    drop(answer);
    // The proxy learns that the agent left before it reads a request that comes later.
    for _ in 0..3 {
        assert_eq!(stage.calls(&trial, "in_flight").await, 0);
    }
    shim.works();
    stage.until_ready().await;

    let retry = stage.ask(&trial, true, HOLD, Some(1)).await.unwrap().text().await.unwrap();
    assert!(retry.contains("[DONE]"), "{retry}");
    assert_eq!(stage.world.upstream.asked(trial.book.page().number).requests, 1);
    stage.ask(&trial, true, HOLD, Some(1)).await.unwrap();
    until_upstream_works(&stage, &trial, 2).await;

    let trial_id = TrialId::new(&trial.book.page().trial_id).unwrap();
    let is_noted = async || {
        let archive = Archive::open(&stage.launch.data).unwrap();
        let (trial, _) = archive.trial(&trial_id).unwrap();
        matches!((trial.notes(), &*trial.calls), ([note], [call])
            if note.kind == CallNoteKind::Replayed && note.call_id == call.call_id && note.at >= call.ended_at)
    };
    eventually("the captures have the replay of the call", is_noted).await;
}

#[tokio::test]
async fn an_answer_that_a_failing_disk_replaced_by_an_error_is_recorded_as_failed() {
    let dir = tempfile::tempdir().unwrap();
    let shim = Shim::compile(dir.path());
    let mut stage = Stage::set(dir.path(), |launch| launch.variables = shim.variables()).await;
    let trial = stage.open().await.unwrap();
    let stream = async {
        let mut answer = stage.ask(&trial, true, HOLD, None).await.unwrap();
        while let Some(bytes) = answer.chunk().await? {
            assert!(!String::from_utf8_lossy(&bytes).contains("[DONE]"));
        }
        Ok::<_, reqwest::Error>(())
    };
    let trouble = async {
        until_upstream_works(&stage, &trial, 2).await;
        shim.fails(Fault::WriteError);
        stage.world.upstream.let_go();
    };
    let (whole, stream, ()) = tokio::join!(stage.ask(&trial, false, HOLD, None), stream, trouble);
    has_a_retry_after(&whole.unwrap_err());
    assert!(stream.is_err(), "the stream broke off");
    let all_failed = async |stage: &Stage| {
        (stage.calls(&trial, "complete").await, stage.calls(&trial, "failed").await) == (0, 2)
    };
    assert!(all_failed(&stage).await);
    shim.works();
    stage.until_ready().await;
    // The store writes the marks of failed answers after the records. An opening that it acknowledges comes after both.
    stage.open().await.unwrap();
    stage.kill_and_start().await;
    assert!(all_failed(&stage).await);
}

#[tokio::test]
async fn a_trial_whose_opening_failed_does_not_come_back_in_the_place_of_the_next_of_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let shim = Shim::compile(dir.path());
    let mut stage = Stage::set(dir.path(), |launch| launch.variables = shim.variables()).await;
    let asked = json!({"task_id": "t", "trial_id": "x", "group_id": "g", "group_size": 1});
    shim.fails(Fault::WriteError);
    assert_eq!(stage.admin(Method::POST, "/v1/trials", asked.clone()).await.status().as_u16(), 503);
    shim.works();
    stage.until_ready().await;
    let opened = stage.admin(Method::POST, "/v1/trials", asked).await;
    assert_eq!(opened.status().as_u16(), 201);
    let key = opened.json::<Value>().await.unwrap()["key"].as_str().unwrap().to_owned();
    for _ in 0..2 {
        let models = format!("{}/t/{key}/v1/models", stage.proxy.place.agents);
        assert_eq!(stage.world.http.get(models).send().await.unwrap().status().as_u16(), 200);
        stage.kill_and_start().await;
    }
    stage.proxy.kill().await;
    let (code, said) = stage.launch.check();
    assert_eq!(code, Some(0), "{said}");
}

async fn fails_and_works_again(fault: Fault) {
    let dir = tempfile::tempdir().unwrap();
    let shim = Shim::compile(dir.path());
    let stage = Stage::set(dir.path(), |launch| launch.variables = shim.variables()).await;
    goes_wrong_and_well_again(stage, || shim.fails(fault), || shim.works()).await;
}

async fn goes_wrong_and_well_again(mut stage: Stage, break_it: impl Fn(), mend_it: impl Fn()) -> Stage {
    let (quiet, held) = (stage.open().await.unwrap(), stage.open().await.unwrap());
    let (sealed, rewarded) = (stage.open().await.unwrap(), stage.open().await.unwrap());
    stage.seal(&rewarded).await.unwrap();
    for trial in [&quiet, &held, &sealed] {
        stage.call(trial, 20).await.unwrap();
    }
    let running = async { tokio::join!(stage.held_call(&held), stage.held_call(&held)) };
    let trouble = async {
        until_upstream_works(&stage, &held, 3).await;
        break_it();
        is_refused(&stage, &quiet).await;
        let (status, why) = stage.ready().await;
        assert_eq!(status, 503, "{why}");
        assert!(why.contains("captures") || why.contains("capture store"), "no reason: {why}");
        // A rejected request must be repeated, and an accepted one must hold.
        let sealing = stage.seal(&sealed).await;
        let rewarding = stage.reward(&rewarded, 0.5).await;
        let opening = stage.open().await.map(drop);
        for refused in [sealing, rewarding, opening].into_iter().filter_map(Result::err) {
            has_a_retry_after(&refused);
        }
        stage.world.upstream.let_go();
    };
    let (ends, ()) = tokio::join!(running, trouble);
    println!("streams that were under way: {ends:?}");

    mend_it();
    stage.until_ready().await;
    for trial in [&quiet, &held] {
        stage.call(trial, 20).await.unwrap();
    }
    stage.seal(&sealed).await.unwrap();
    stage.reward(&rewarded, 0.5).await.unwrap();
    stage.open().await.unwrap();
    stage.assert_nothing_is_lost().await;
    stage.call(&quiet, 20).await.unwrap();
    stage
}

async fn until_upstream_works(stage: &Stage, trial: &Trial, requests: u64) {
    let number = trial.book.page().number;
    let deadline = Instant::now() + limit(20);
    while stage.world.upstream.asked(number).requests < requests {
        assert!(Instant::now() < deadline, "upstream was not asked");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until every call is rejected with a `Retry-After`. The last free bytes of a disk may accept some more calls.
async fn is_refused(stage: &Stage, trial: &Trial) {
    let deadline = Instant::now() + limit(20);
    let mut in_a_row = 0;
    while in_a_row < 5 {
        assert!(Instant::now() < deadline, "calls are still taken; {}", stage.launch.log_text());
        match stage.call(trial, 200).await {
            Ok(()) => in_a_row = 0,
            Err(refused) => {
                has_a_retry_after(&refused);
                in_a_row += 1;
            }
        }
    }
}

fn has_a_retry_after(refused: &Refused) {
    let Refused::Status { code: 503, retry_after: Some(seconds) } = refused else { panic!("{refused:?}") };
    assert!(seconds.parse::<u32>().is_ok(), "{seconds}");
}
