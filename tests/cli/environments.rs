//! `rolltap env` as a user starts and stops it.

use rolltap_testing::limit;
use serde_json::json;

use super::program::{Running, repository};
use super::servers::post;

#[tokio::test]
async fn it_prints_its_address_plays_an_episode_and_stops_on_a_signal() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Running::start(dir.path(), &["env", "-e", "local", "--listen", "127.0.0.1:0"]);
    let url = format!("{}/v1/envs", server.next_url());
    let env = post(&url, json!({"task": repository("examples/tasks/hello-file")})).await;
    let call = |name: &str| format!("{url}/{}/{name}", env["env_id"].as_str().unwrap());
    post(&call("reset"), json!({})).await;
    let keystrokes = "echo 'Hello, world!' > hello.txt\n";
    let action = json!({"commands": [{"keystrokes": keystrokes, "duration": 0.5}], "task_complete": true});
    let ended = post(&call("step"), json!({"action": action})).await;
    assert_eq!((&ended["done"], &ended["reward"]), (&json!(true), &json!(1.0)), "{ended}");
    server.signal("TERM");
    assert_eq!(server.wait(limit(30)).0, Some(0));
}
