//! `rolltap admin-token`, and a proxy that takes its tokens.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::program::{Running, rolltap, run};

/// Makes a token in `tokens.toml`.
fn make(dir: &std::path::Path, args: &[&str]) -> String {
    let ended = run(dir, &[&["admin-token", "--file", "tokens.toml"], args].concat());
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let token = ended.stdout.trim_end().to_owned();
    assert!(token.starts_with("rolltap-admin-") && !token.contains('\n'), "{token}");
    token
}

#[tokio::test]
async fn a_token_works_with_its_roles_and_leaves_a_record() {
    let dir = tempfile::tempdir().unwrap();
    let runner = make(dir.path(), &["--name", "runner", "--role", "open", "--role", "reward"]);
    let reader = make(dir.path(), &["--name", "reader", "--role", "read", "--expires", "1d"]);
    let file = fs::read_to_string(dir.path().join("tokens.toml")).unwrap();
    assert!(!file.contains(&runner[20..]) && !file.contains(&reader[20..]), "{file}");
    let args =
        ["proxy", "--upstream", "http://127.0.0.1:1", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let mut command = rolltap(dir.path(), &args);
    command.args(["--admin-tokens", "tokens.toml", "--audit-log", "audit"]);
    let mut proxy = Running::spawn(&mut command);
    let (_agents, admin) = (proxy.next_url(), proxy.next_url());
    let http = rolltap_testing::http_client();
    let open = async |token: &str| {
        let request = http.post(format!("{admin}/v1/trials")).bearer_auth(token);
        request.json(&json!({"task_id": "t"})).send().await.unwrap().status().as_u16()
    };
    assert_eq!([open(&runner).await, open(&reader).await], [201, 403]);
    let records = fs::read_to_string(dir.path().join("audit")).unwrap();
    let record: Value = serde_json::from_str(records.lines().next().unwrap()).unwrap();
    assert_eq!((&record["token"], &record["status"]), (&json!("runner"), &json!(201)));
}

#[test]
fn without_a_file_the_entry_is_on_standard_error() {
    let dir = tempfile::tempdir().unwrap();
    let ended = run(dir.path(), &["admin-token", "--name", "ci", "--role", "read"]);
    assert_eq!((ended.code, ended.stdout.lines().count()), (Some(0), 1));
    assert!(
        ended.stderr.starts_with("[[token]]\nname = \"ci\"\nroles = [\"read\"]\nsha256 = \""),
        "{}",
        ended.stderr
    );
    assert_eq!(dir.path().read_dir().unwrap().count(), 0);
}

#[test]
fn wrong_names_roles_and_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), &["--name", "a", "--role", "read"]);
    for (args, expected) in [
        (["--name", "a b", "--role", "read"], "a name has 1 to 64 letters"),
        (["--name", "b", "--role", "root"], "open, reward, read, operate"),
        (["--name", "a", "--role", "read"], "tokens.toml: line 7: the token of line 2 has the same name"),
    ] {
        let ended = run(dir.path(), &[&["admin-token", "--file", "tokens.toml"], &args[..]].concat());
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
        assert!(ended.stderr.contains(expected), "{ended:?}");
    }
}

#[test]
fn a_proxy_does_not_start_with_a_broken_file() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = dir.path().join("tokens.toml");
    fs::write(&tokens, "[[token]]\nname = \"a\"\nroles = [\"root\"]\n").unwrap();
    fs::set_permissions(&tokens, Permissions::from_mode(0o666)).unwrap();
    let args = ["proxy", "--upstream", "http://h:8000", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let ended = run(dir.path(), &[&args[..], &["--admin-tokens", "tokens.toml"]].concat());
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("tokens.toml: line 1: missing field `sha256`"), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("every user of this machine can add tokens to tokens.toml"),
        "{}",
        ended.stderr
    );
}
