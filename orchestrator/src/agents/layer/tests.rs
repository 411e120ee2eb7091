//! Layers that scripts make: complete or absent, made once, and by one run at a time.

use super::*;

fn definition(script: &str) -> Definition {
    let text = format!(
        "name = 'x'\ndescription = ''\ndialect = 'chat'\n[run]\ncommand = 'true'\n[install]\nkind = 'script'\nversion = '1'\n\
         script = '''\n{script}\n'''\n"
    );
    Definition::parse(&text).unwrap()
}

async fn made(cache: &Path, script: &str, version: &str) -> Result<Layer, LayerError> {
    layer_in(cache, &definition(script), version).await
}

#[tokio::test]
async fn a_layer_is_made_once_per_version_and_any_user_may_read_it() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let script = format!(
        "echo made $ROLLTAP_VERSION >> {}\ncd \"$ROLLTAP_LAYER\"\numask 077\nmkdir bin\necho x > bin/data\necho x > bin/run\n\
         chmod u+x bin/run\nln -s run bin/link",
        log.display()
    );
    let first = made(dir.path(), &script, "1").await.unwrap();
    assert_eq!(made(dir.path(), &script, "1").await.unwrap(), first);
    let other = made(dir.path(), &script, "2").await.unwrap();
    assert_ne!(other.host, first.host);
    assert_eq!(fs::read_to_string(log).unwrap(), "made 1\nmade 2\n");
    assert_eq!(first.inside, "/opt/rolltap/agents/x");
    let mode = |name: &str| fs::metadata(first.host.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("bin"), mode("bin/data"), mode("bin/run")), (0o755, 0o644, 0o755));
}

#[tokio::test]
async fn a_failed_installation_leaves_nothing_and_reports_its_last_lines() {
    let dir = tempfile::tempdir().unwrap();
    let error = made(dir.path(), "touch half\necho fetching\necho 'no such file' >&2\nexit 3", "1").await;
    let error = error.unwrap_err().to_string();
    assert_eq!(
        error,
        "agent \"x\" version 1 could not be installed: the install script ended with exit code 3; last lines:\n  fetching\n  \
         no such file"
    );
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name.to_string_lossy().ends_with(".lock")), "{left:?}");
}

#[tokio::test]
async fn what_a_dead_run_left_half_made_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let script = "touch whole";
    let partial = dir.path().join(format!("{}.partial", key(&definition(script), "1")));
    fs::create_dir(&partial).unwrap();
    fs::write(partial.join("rubbish"), "").unwrap();
    let layer = made(dir.path(), script, "1").await.unwrap();
    assert!(layer.host.join("whole").exists() && !layer.host.join("rubbish").exists());
}

#[tokio::test]
async fn runs_that_install_the_same_at_once_install_it_once() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let script = format!("sleep 0.1; echo made >> {}", log.display());
    let all = futures_util::future::join_all((0..4).map(|_| made(dir.path(), &script, "1"))).await;
    assert!(all.iter().all(Result::is_ok));
    assert_eq!(fs::read_to_string(log).unwrap(), "made\n");
}
