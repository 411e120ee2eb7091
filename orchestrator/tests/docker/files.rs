//! Uploads and downloads of files.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rolltap_orchestrator::environment::{EnvironmentError, Share, TrialLabel};

use crate::harness::{output, prebuilt, run, start, with_host};

#[tokio::test]
#[ignore = "needs Docker: run scripts/test"]
async fn a_shared_directory_is_read_and_not_written_and_one_that_is_not_there_is_left_out() {
    with_host(async |host, _| {
        let shared = tempfile::tempdir().unwrap();
        fs::write(shared.path().join("program"), "here").unwrap();
        let task = prebuilt("");
        let see =
            |from: &std::path::Path| Share { host: from.to_owned(), inside: "/opt/some/program".to_owned() };
        let prepared = host.prepare(&task).await.unwrap();
        let with = prepared.clone().sharing(vec![see(shared.path())]);
        let environment = host.start(&with, &task, &TrialLabel::new("shared")).await.unwrap();
        assert_eq!(output(&environment, "cat /opt/some/program/program").await, "here");
        assert_ne!(run(&environment, "echo changed > /opt/some/program/program").await.exit_code, Some(0));
        assert_eq!(fs::read_to_string(shared.path().join("program")).unwrap(), "here");
        let without = prepared.sharing(vec![see(&shared.path().join("nowhere"))]);
        let environment = host.start(&without, &task, &TrialLabel::new("not shared")).await.unwrap();
        assert_eq!(output(&environment, "test -e /opt/some || echo none").await, "none");
    })
    .await;
}

#[tokio::test]
#[ignore = "needs Docker: run scripts/test"]
async fn files_go_in_and_come_out_with_their_modes() {
    with_host(async |host, _| {
        let environment = start(host, &prebuilt("")).await;
        let from = tempfile::tempdir().unwrap();
        fs::create_dir_all(from.path().join("deep/empty")).unwrap();
        fs::write(from.path().join("deep/text"), "/app and /tests stay\n").unwrap();
        fs::write(from.path().join("run.sh"), "#!/bin/sh\necho ran\n").unwrap();
        fs::set_permissions(from.path().join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::symlink("run.sh", from.path().join("link")).unwrap();
        environment.upload(from.path(), "/tests").await.unwrap();
        environment.upload(from.path(), "/not/there/yet").await.unwrap();
        environment.upload(&from.path().join("deep/empty"), "/made").await.unwrap();
        assert_eq!(
            output(
                &environment,
                "/tests/link; cd /not/there/yet; cat deep/text; ls -d /made deep/empty; stat -c %a:%u run.sh"
            )
            .await,
            "ran\n/app and /tests stay\n/made\ndeep/empty\n755:0"
        );
        let to = tempfile::tempdir().unwrap();
        let downloaded = environment.download("/not/there/yet", &to.path().join("new")).await.unwrap();
        assert_eq!((downloaded.files, downloaded.skipped.len()), (3, 0));
        assert_eq!(fs::read_to_string(to.path().join("new/deep/text")).unwrap(), "/app and /tests stay\n");
        assert_eq!(fs::metadata(to.path().join("new/link")).unwrap().permissions().mode() & 0o777, 0o755);
        let missing = environment.download("/nowhere", to.path()).await.unwrap_err();
        assert_eq!(missing.to_string(), "there is no /nowhere in the environment");
    })
    .await;
}

#[tokio::test]
#[ignore = "needs Docker: run scripts/test"]
async fn a_hostile_container_cannot_write_outside_its_download() {
    with_host(async |host, _| {
        let environment = start(host, &prebuilt("")).await;
        let outer = tempfile::tempdir().unwrap();
        let target = outer.path().join("logs");
        output(
            &environment,
            "cd /logs/agent && ln -s / root && ln -s ../../.. up && ln -s /etc/passwd passwd && mkfifo pipe \
             && echo fine >fine && ln fine hard && ln -s fine soft && touch $'odd\\nname\\\\..' && ln -s /dev/zero reward.txt",
        )
        .await;
        let downloaded = environment.download("/logs/agent", &target).await.unwrap();
        let mut skipped = downloaded.skipped;
        skipped.sort();
        let hard = skipped.iter().position(|name| name == "agent/hard" || name == "agent/fine").map(|at| skipped.remove(at));
        assert!(hard.is_some(), "one name of a file with two stays behind");
        assert_eq!(skipped, ["agent/passwd", "agent/pipe", "agent/reward.txt", "agent/root", "agent/up"]);
        let names: Vec<_> = fs::read_dir(outer.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["logs"]);
        // The directory itself becomes a link, and later holds a file over the limit.
        output(&environment, "rm -r /logs/agent && ln -s /etc /logs/agent").await;
        let through_link = environment.download("/logs/agent", &outer.path().join("other")).await.unwrap();
        assert_eq!(through_link.files, 0);
        output(&environment, "truncate -s 3G /logs/verifier/huge").await;
        let error = environment.download("/logs/verifier", &target).await.unwrap_err();
        assert!(matches!(error, EnvironmentError::TooLarge { .. }), "{error}");
    })
    .await;
}
