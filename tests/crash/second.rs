//! Two proxies on one data directory.

use rolltap_testing::limit;

use super::harness::Stage;

#[tokio::test]
async fn a_second_proxy_on_the_same_captures_is_refused_and_harms_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut stage = Stage::set(dir.path(), |_| {}).await;
    let trial = stage.open().await.unwrap();
    stage.call(&trial, 10).await.unwrap();
    let second = tokio::time::timeout(limit(20), stage.launch.run()).await;
    let second = second.expect("the second proxy does not end");
    let said = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(2), "{said}");
    assert!(said.contains(stage.launch.data.to_str().unwrap()), "which directory is it? {said}");
    assert!(!said.contains("panicked"), "{said}");

    stage.call(&trial, 10).await.unwrap();
    stage.assert_nothing_is_lost().await;
}
