//! Episodes that succeed, and the ways in which an episode ends.

use serde_json::{Value, json};

use super::harness::Stage;

fn answer(keystrokes: &str, task_complete: bool) -> String {
    let commands =
        if keystrokes.is_empty() { json!([]) } else { json!([{"keystrokes": keystrokes, "duration": 0.2}]) };
    json!({"analysis": "a", "plan": "p", "commands": commands, "task_complete": task_complete}).to_string()
}

#[tokio::test]
async fn an_episode_is_rewarded_once_by_the_tests_at_its_end() {
    let stage = Stage::start().await;
    let env = stage.create(&stage.task("usual", &[]), json!({})).await;
    let begun = env.reset().await.ok();
    assert_eq!((&begun["info"]["step"], &begun["info"]["task_id"]), (&json!(0), &json!("usual")));
    let (prompt, observation) = (&begun["info"]["prompt"], begun["observation"].as_str().unwrap());
    let prompt = prompt.as_str().unwrap();
    assert!(prompt.ends_with(observation) && prompt.contains("Make a file /"), "{prompt}");

    let first = env.keys("echo out$((40+2))\n", 0.2).await;
    assert!(first["observation"].as_str().unwrap().contains("out42"), "{first}");
    assert_eq!((&first["reward"], &first["done"]), (&json!(0.0), &json!(false)));
    assert_eq!(
        first["info"],
        json!({"step": 1, "warnings": [], "terminated": false, "truncated": false}),
        "nothing of a verdict before the end"
    );
    let last = env.step(json!(answer("touch done\n", true))).await.ok();
    assert_eq!((&last["reward"], &last["done"]), (&json!(1.0), &json!(true)), "{last}");
    assert_eq!((&last["info"]["terminated"], &last["info"]["truncated"]), (&json!(true), &json!(false)));
    assert_eq!(
        (&last["info"]["reward_valid"], &last["info"]["rewards"]),
        (&json!(true), &json!({"reward": 1.0}))
    );

    assert_eq!(env.step(json!("more")).await.error(), (409, "done"));
    let kept = stage.get(&env.path("")).await.ok();
    assert_eq!(
        (&kept["status"], &kept["last"]),
        (&json!("done"), &last),
        "for a client that lost the answer"
    );
}

#[tokio::test]
async fn a_reset_begins_anew_and_nothing_of_before_is_there() {
    let stage = Stage::start().await;
    let env = stage.ready(json!({})).await;
    let before = env.workdir().await;
    env.keys("touch done\n", 0.2).await;
    env.reset().await.ok();
    let after = env.workdir().await;
    assert!(!before.exists() && after.exists() && before != after, "{before:?} {after:?}");
    let judged = env.complete().await;
    assert_eq!((&judged["reward"], &judged["info"]["step"]), (&json!(0.0), &json!(2)));
    env.reset().await.ok();
    assert_eq!(env.status().await, "running", "after the end too");
}

#[tokio::test]
async fn completion_is_confirmed_where_that_is_asked_for() {
    let stage = Stage::start().await;
    let env = stage.ready(json!({"confirm_completion": true})).await;
    let ask =
        |reply: &Value| reply["observation"].as_str().unwrap().contains("You said that the task is complete");
    let first = env.step(json!(answer("", true))).await.ok();
    assert!(!first["done"].as_bool().unwrap() && ask(&first), "{first}");
    let other = env.step(json!(answer("touch done\n", false))).await.ok();
    assert!(!ask(&other), "{other}");
    let again = env.step(json!(answer("", true))).await.ok();
    assert!(!again["done"].as_bool().unwrap(), "the one before was taken back: {again}");
    let unreadable = env.step(json!("hm")).await.ok();
    assert!(unreadable["info"]["parse_error"].is_string());
    let confirmed = env.step(json!(answer("", true))).await.ok();
    assert_eq!((&confirmed["done"], &confirmed["reward"]), (&json!(true), &json!(1.0)));
}

#[tokio::test]
async fn an_episode_is_cut_off_after_its_steps_and_judged() {
    let stage = Stage::start().await;
    let env = stage.ready(json!({"max_steps": 2})).await;
    assert_eq!(env.keys("touch done\n", 0.2).await["done"], json!(false));
    let last = env.step(json!("unreadable answers count")).await.ok();
    assert_eq!((&last["done"], &last["reward"]), (&json!(true), &json!(1.0)));
    assert_eq!((&last["info"]["terminated"], &last["info"]["truncated"]), (&json!(false), &json!(true)));
}

#[tokio::test]
async fn an_episode_is_cut_off_at_the_end_of_the_task_s_time_also_in_mid_step() {
    let stage = Stage::start().await;
    let config = "[environment]\ndocker_image = \"none\"\nworkdir = \"/app\"\n[agent]\ntimeout_sec = 1.0\n";
    let env = stage.create(&stage.task("short", &[("task.toml", config)]), json!({})).await;
    env.reset().await.ok();
    let last = env.keys("touch done\n", 50.0).await;
    assert_eq!(
        (&last["done"], &last["reward"]),
        (&json!(true), &json!(1.0)),
        "what was typed counts: {last}"
    );
    assert_eq!(last["info"]["truncated"], json!(true));
}

#[tokio::test]
async fn answers_are_read_as_the_terminal_agent_reads_them() {
    let stage = Stage::start().await;
    let env = stage.ready(json!({})).await;
    let whole = answer("echo seen$((1+1))\n", false);
    for (given, warned) in [
        (format!("Here it is: {whole} Bye."), true),
        (whole.strip_suffix('}').unwrap().to_owned(), true),
        (whole.clone(), false),
    ] {
        let reply = env.step(json!(given)).await.ok();
        assert!(reply["observation"].as_str().unwrap().contains("seen2"), "{reply}");
        assert_eq!(!reply["info"]["warnings"].as_array().unwrap().is_empty(), warned, "{reply}");
        assert!(reply["info"].get("parse_error").is_none(), "{reply}");
    }
    let half = whole.split("echo").next().unwrap();
    let wrong_types = json!({"analysis": "a", "plan": "p", "commands": [{"keystrokes": 3}]}).to_string();
    for refused in ["", "no JSON", half, &wrong_types, "[1]", "{\"commands\": 1}"] {
        let reply = env.step(json!(refused)).await.ok();
        let problem = reply["info"]["parse_error"].as_str().unwrap();
        assert!(reply["observation"].as_str().unwrap().contains(problem), "it has a reason: {reply}");
        assert_eq!(reply["done"], json!(false));
    }
}

#[tokio::test]
async fn answers_may_be_xml() {
    let stage = Stage::start().await;
    let env = stage.ready(json!({"format": "xml"})).await;
    let commands = "<commands><keystrokes duration=\"0.2\">touch done\n</keystrokes></commands>";
    let answer = format!(
        "<response><analysis>a</analysis><plan>p</plan>{commands}<task_complete>true</task_complete></response>"
    );
    let reply = env.step(json!(answer)).await.ok();
    assert_eq!((&reply["done"], &reply["reward"]), (&json!(true), &json!(1.0)), "{reply}");
}

#[tokio::test]
async fn a_full_screen_program_is_seen_and_driven() {
    let stage = Stage::start().await;
    let program = "#!/bin/sh\nprintf '\\033[?1049h\\033[2J\\033[3;5Hmenu: q quits'; stty -echo -icanon; \
                   k=$(dd bs=1 count=1 2>/dev/null); printf '\\033[?1049l'; stty sane; echo \"pressed=$k=\"\n";
    let env = stage.ready(json!({})).await;
    std::fs::write(env.workdir().await.join("tui.sh"), program).unwrap();
    let menu = env.type_and_see("sh tui.sh\n", &["menu: q quits"]).await;
    assert!(!menu["observation"].as_str().unwrap().contains("tui.sh"), "it has the screen to itself: {menu}");
    env.type_and_see("q", &["pressed=q="]).await;
}

#[tokio::test]
async fn several_environments_do_not_see_each_other() {
    let stage = Stage::start().await;
    let (one, two) = (stage.ready(json!({})).await, stage.ready(json!({"width": 50, "height": 10})).await);
    let (a, b) = tokio::join!(one.keys("touch done\n", 0.2), two.keys("stty size\n", 0.2));
    assert!(!a["done"].as_bool().unwrap() && b["observation"].as_str().unwrap().contains("10 50"), "{b}");
    let (a, b) = tokio::join!(one.complete(), two.complete());
    assert_eq!((&a["reward"], &b["reward"]), (&json!(1.0), &json!(0.0)));
}
