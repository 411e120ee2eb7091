//! The proxy is killed right after an agent read the last event of an answer, under each policy of fsync. The record of
//! that answer survives under every policy, because the operating system holds written data when a process dies.

use rolltap_testing::sample;

use super::harness::Stage;

/// The words of the calls. The store writes a small record in the task that gathers records, and a large one in a thread.
const WORDS: [usize; 2] = [10, 10_000];

#[tokio::test]
async fn with_sync_always() {
    loses_no_answer("always").await;
}

#[tokio::test]
async fn with_sync_interval() {
    loses_no_answer("interval").await;
}

#[tokio::test]
async fn with_sync_off() {
    loses_no_answer("off").await;
}

async fn loses_no_answer(sync: &str) {
    let dir = tempfile::tempdir().unwrap();
    let mut stage = Stage::set(dir.path(), |launch| {
        launch.variables = vec![("ROLLTAP_SYNC".to_owned(), sync.to_owned())];
    })
    .await;
    for _ in 0..sample(3, 30) {
        for words in WORDS {
            let trial = stage.open().await.unwrap();
            stage.streaming_call(&trial, words).await.unwrap();
            stage.kill_and_start().await;
            stage.call(&trial, words).await.unwrap();
            stage.kill_and_start().await;
            assert_eq!(stage.calls(&trial, "complete").await, 2, "{words} words");
        }
    }
    stage.assert_nothing_is_lost().await;
}
