//! Harbor's own Terminus-2, in tmux in a folder of this machine. It records ids too, and both records must agree.

use rolltap_rollout::agent_reported::{self, Comparison, Segment, compare, rollout_details, trajectory};
use rolltap_rollout::row::RolloutRow;
use rolltap_sim as sim;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::clients::{are_whole, printed, script};
use crate::harness::Stage;
use crate::viewer::program::Server;

/// The model writes a file, and then sends the completion twice, because the agent asks for a confirmation.
const SCRIPT: &str = r#"
[[conversation]]
[[conversation.turn]]
[[conversation.turn.answer]]
content = '''{"analysis": "A file is wanted.", "plan": "Write it.", "commands": [{"keystrokes": "echo 'Hello, world!' > hello.txt\n", "duration": 0.5}]}'''
[[conversation.turn]]
[[conversation.turn.answer]]
content = '''{"analysis": "It is there.", "plan": "None.", "commands": [], "task_complete": true}'''
"#;

#[tokio::test]
#[ignore = "needs Python and tmux: run ./scripts/test"]
async fn terminus_2_finishes_a_task() {
    let answers = sim::Script::from_toml(SCRIPT, "script").unwrap();
    let upstream =
        sim::start(sim::Settings { script: Some(answers), ..sim::Settings::default() }).await.unwrap();
    let stage = Stage::before(format!("http://{}", upstream.addr())).await;
    let trial = stage.open().await;
    let folder = TempDir::new().unwrap();
    let mut terminus = script("terminus_2.py");
    terminus.args([&trial.base_urls.openai, "sim"]).arg(folder.path()).args(["5", "Write hello.txt"]);
    let seen = printed(&terminus.output().await.unwrap());
    assert_eq!(std::fs::read_to_string(folder.path().join("work/hello.txt")).unwrap(), "Hello, world!\n");
    let calls = stage.calls(&trial).await;
    assert_eq!((calls.len(), &seen["metadata"]["n_episodes"]), (3, &json!(3)));
    are_whole(&calls);
    let account = rollout_details(seen.to_string().as_bytes()).unwrap();
    let trajectory = std::fs::read(folder.path().join("logs/agent/trajectory.json")).unwrap();
    for segments in [account, trajectory_of(&trajectory)] {
        let returned = agent_reported::calls(&trial.trial_id, jiff::Timestamp::UNIX_EPOCH, segments);
        are_whole(&returned);
        let same = Comparison { captured: 3, returned: 3, same: 3, ..Comparison::default() };
        assert_eq!(compare(&calls, &returned), same);
    }
    let rows = stage.rollout(&trial).await;
    assert_viewed(&rows, &trajectory).await;
}

/// Checks that the viewer has a screen per turn, each with the call that sampled it.
async fn assert_viewed(rows: &[RolloutRow], trajectory: &[u8]) {
    let dir = TempDir::new().unwrap();
    let job = dir.path().join("job");
    let agent = job.join(&rows[0].trial_id).join("agent");
    std::fs::create_dir_all(&agent).unwrap();
    std::fs::write(job.join("config.json"), "{}").unwrap();
    std::fs::write(agent.join("trajectory.json"), trajectory).unwrap();
    let lines: Vec<Value> = rows.iter().map(|row| serde_json::to_value(row).unwrap()).collect();
    rolltap_testing::write_jsonl(&job.join("rollouts.jsonl"), &lines);
    let view = Server::view(&job);
    let page = view.page(&format!("/jobs/job/trials/{}/screens", rows[0].trial_id));
    let page = rolltap_testing::get(page).await.unwrap().text().await.unwrap();
    assert_eq!(page.matches("<section class=\"screen\"").count(), 3, "{page}");
    assert!(page.contains("Analysis: A file is wanted.") && page.contains("hello.txt⏎"), "{page}");
    for call in rows.iter().flat_map(|row| &row.calls) {
        assert!(page.contains(&call.call_id), "{}: {page}", call.call_id);
    }
}

fn trajectory_of(json: &[u8]) -> Vec<Segment> {
    trajectory(json).unwrap().segments
}
