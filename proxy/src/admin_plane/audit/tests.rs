use std::os::unix::fs::symlink;
use std::path::Path;

use jiff::Timestamp;
use rolltap_testing::eventually;
use serde_json::{Value, json};

use super::*;
use crate::admin_plane::role::AdminRole;

fn record() -> AuditRecord {
    AuditRecord {
        time: Timestamp::UNIX_EPOCH,
        caller: Caller::default(),
        role: AdminRole::Open,
        method: "POST",
        route: "/v1/trials",
        subject: Subject::default(),
        status: Some(201),
        source: Some(([127, 0, 0, 1], 9).into()),
        denied: None,
        suppressed: 0,
    }
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn a_record_is_in_the_file_when_its_write_returns() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit");
    let log = AuditLog::start(path.clone(), RefusalCounts::default()).unwrap();
    log.place().await.unwrap().write(&record()).await;
    let expected = json!({"time": "1970-01-01T00:00:00Z", "token": null, "role": "open", "method": "POST",
        "route": "/v1/trials", "status": 201, "source": "127.0.0.1:9"});
    assert_eq!(lines(&path), [expected]);
    log.place().await.unwrap().leave(&AuditRecord { status: None, ..record() });
    log.place().await.unwrap().write(&record()).await;
    assert_eq!(
        lines(&path).iter().map(|line| line["status"].clone()).collect::<Vec<_>>(),
        [json!(201), json!(null), json!(201)]
    );
}

#[tokio::test]
async fn a_full_disk_gives_no_further_place_until_the_records_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let (path, good) = (dir.path().join("audit"), dir.path().join("good"));
    symlink("/dev/full", &path).unwrap();
    let metrics = crate::common::metrics::Metrics::new();
    let log = AuditLog::start(path.clone(), metrics.refusals()).unwrap();
    // The first action has had its effect when its record fails.
    log.place().await.unwrap().write(&record()).await;
    let error = log.place().await.unwrap_err().to_string();
    assert!(error.contains("No space left on device"), "{error}");
    log.note(&record());
    let text = metrics.text().unwrap();
    assert!(
        text.contains("rolltap_audit_log_failing 1") && text.contains("rolltap_audit_records_lost_total 1"),
        "{text}"
    );
    std::fs::remove_file(&path).unwrap();
    symlink(&good, &path).unwrap();
    log.place().await.unwrap().write(&AuditRecord { status: Some(200), ..record() }).await;
    assert_eq!(lines(&good).iter().map(|line| line["status"].clone()).collect::<Vec<_>>(), [201, 200]);
    assert!(metrics.text().unwrap().contains("rolltap_audit_log_failing 0"));
    log.note(&record());
    eventually("the note is written", async || lines(&good).len() == 3).await;
}
